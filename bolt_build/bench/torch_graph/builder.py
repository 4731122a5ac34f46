"""What the lowerings of operators write into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node

_DTYPES = {
    DType.BOOL: torch.bool, DType.I8: torch.int8, DType.U8: torch.uint8, DType.I16: torch.int16,
    DType.I32: torch.int32, DType.I64: torch.int64,
}  # fmt: skip
"""Element types of what is no floating-point data. torch computes with no other."""


class Unsupported(Exception):
    """A graph that has no counterpart in torch; the text says what of it."""


class Builder:
    """The module and the code under construction. `made` are the values computed so far, by name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.root = nn.Module()
        self.code = fx.Graph()
        self.made: dict[str, fx.Node] = {}
        self._count = 0
        self._floating: fx.Node | None = None

    def take(self, name: str) -> None:
        """An input of the module."""
        self.made[name] = self.code.placeholder(f"input_{len(self.made)}")

    def value(self, name: str) -> fx.Node:
        """A value of the graph; a constant becomes a buffer."""
        if name not in self.made:
            array = self.graph.constant(name)
            assert array is not None, name
            self.made[name] = self.buffer(array)
        return self.made[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.type(name).shape

    def constants(self, names: tuple[str, ...]) -> list[Array] | None:
        """The arrays of all of them, None unless all are constants."""
        found = [array for array in map(self.graph.constant, names) if array is not None]
        return found if len(found) == len(names) else None

    def axes(self, name: str) -> int:
        return len(self.shape(name))

    def is_float(self, name: str) -> bool:
        return self.graph.type(name).dtype.is_float

    def dtype(self, name: str) -> torch.dtype:
        """Of a value that is no floating-point data. Raises Unsupported."""
        return dtype_of(self.graph.type(name).dtype)

    def as_floating(self, x: fx.Node) -> fx.Node:
        """`x` in the type of the module's data, which whoever casts the module decides."""
        if self._floating is None:
            self._floating = self.buffer(np.zeros((), np.float32))
        return self.call(torch.Tensor.type_as, x, self._floating)

    def places(self, name: str, extent: int) -> fx.Node:
        """Indices of an axis as i64, none of them negative: of constants that is known, and so it is of indices that
        an operator found."""
        array = self.graph.constant(name)
        if array is not None:
            return self.buffer(np.where(array < 0, array + extent, array).astype(np.int64))
        found = self.value(name)
        if self.graph.type(name).dtype is not DType.I64:
            found = self.call(torch.Tensor.to, found, torch.int64)
        producer = self.graph.producer(name)
        if producer is not None and producer.op.kind in ("places", "pool_places"):
            return found
        return self.call(torch.remainder, found, extent)

    def buffer(self, array: Array) -> fx.Node:
        name = self._fresh("constant")
        self.root.register_buffer(name, tensor_of(array))
        return self.code.get_attr(name)

    def layer(self, layer: nn.Module, x: fx.Node, *more: object, **parameters: Array | None) -> fx.Node:
        """A layer of torch's with these weights, applied to `x`, and to what else it takes."""
        for name, array in parameters.items():
            held = getattr(layer, name)
            if held is not None and array is not None:
                with torch.no_grad():
                    held.copy_(tensor_of(array))
        name = self._fresh("layer")
        self.root.add_module(name, layer)
        return self.code.call_module(name, (x, *more))

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> fx.Node:
        return self.code.call_function(function, arguments, named)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"


Lower = Callable[[Builder, Node], fx.Node]
"""Writes the code of one node; returns its output 0."""


def dtype_of(dtype: DType) -> torch.dtype:
    """torch's type of integers or booleans. Raises Unsupported."""
    if dtype not in _DTYPES:
        raise Unsupported(f"torch does not compute with {dtype.value}")
    return _DTYPES[dtype]


def tensor_of(array: Array) -> torch.Tensor:
    """A copy as a tensor; floating-point elements as f32."""
    kept = array if array.dtype.kind in "iub" else array.astype(np.float32)
    return torch.from_numpy(np.array(kept, order="C"))
