"""What the lowerings of operators write into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from bolt_build.graph.ir import Array, Graph, Node


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

    def buffer(self, array: Array) -> fx.Node:
        name = self._fresh("constant")
        self.root.register_buffer(name, tensor_of(array))
        return self.code.get_attr(name)

    def layer(self, layer: nn.Module, x: fx.Node, **parameters: Array | None) -> fx.Node:
        """A layer of torch's with these weights, applied to `x`."""
        for name, array in parameters.items():
            held = getattr(layer, name)
            if held is not None and array is not None:
                with torch.no_grad():
                    held.copy_(tensor_of(array))
        name = self._fresh("layer")
        self.root.add_module(name, layer)
        return self.code.call_module(name, (x,))

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> fx.Node:
        return self.code.call_function(function, arguments, named)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"


Lower = Callable[[Builder, Node], fx.Node]
"""Writes the code of one node; returns its output 0."""


def tensor_of(array: Array) -> torch.Tensor:
    """A copy as a tensor; floating-point elements as f32."""
    kept = array if array.dtype.kind in "iub" else array.astype(np.float32)
    return torch.from_numpy(np.array(kept, order="C"))
