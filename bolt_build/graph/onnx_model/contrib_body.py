"""What functions of the domain com.microsoft are written with: steps, and the types of inputs.

Import this only where such an operator is met: it imports onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Port:
    """An input: TensorProto's number of its element type, and its extents, 0 where one is not known."""

    elem_type: int
    shape: tuple[int, ...]


Ports = Sequence[Port | None]
Attributes = Mapping[str, Any]


class Body:
    """Steps of a function, in order; names of tensors are its own."""

    def __init__(self, opset: int) -> None:
        self.steps: list[NodeProto] = []
        self.opset = opset

    def __call__(self, op_type: str, inputs: str, /, output: str = "", **attributes: Any) -> str:
        name = output or f"t{len(self.steps)}"
        self.steps.append(helper.make_node(op_type, inputs.split(), [name], **attributes))
        return name

    def all(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """A step of several outputs, some of whose inputs ("") may be left out."""
        self.steps.append(helper.make_node(op_type, inputs, outputs, **attributes))

    def numbers(self, values: Sequence[Any], elem_type: int = TensorProto.INT64) -> str:
        """A constant list."""
        kind = helper.tensor_dtype_to_np_dtype(elem_type)
        return self("Constant", "", value=numpy_helper.from_array(np.asarray(values).astype(kind)))

    def none(self) -> str:
        """The shape of a scalar."""
        return self("Constant", "", value=numpy_helper.from_array(np.empty(0, np.int64)))

    def reduced(self, op_type: str, x: str, axes: Sequence[int], output: str = "", keeps: int = 0) -> str:
        """A reduction of axes, of those whose axes are an input from opset 18 on."""
        if self.opset < 18:
            return self(op_type, x, output, axes=list(axes), keepdims=keeps)
        return self(op_type, f"{x} {self.numbers(axes)}", output, keepdims=keeps)

    def part(self, x: str, axis: int, begin: int, end: int) -> str:
        limits = " ".join(self.numbers([each]) for each in (begin, end, axis))
        return self("Slice", f"{x} {limits}")


Writer = Callable[[Body, Ports, Attributes], bool]
"""Writes a function of inputs i0, i1, ... and outputs o0, o1, ...; False where the inputs are none that it takes."""


def port_of(ports: Ports, index: int) -> Port | None:
    return ports[index] if index < len(ports) else None
