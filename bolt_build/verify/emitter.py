"""Builds the graphs that onnxruntime computes for verification: nodes and constants with names that clash with none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

ALL_AXES_INPUT = {"ReduceSum": 13, "ReduceMax": 18, "ReduceMean": 18}
"""Opset from which a reduction takes its axes as an input."""


class Emitter:
    """Nodes and scalar constants of one graph, in order. Names begin with `prefix`, which no tensor of a model does."""

    def __init__(self, opset: int, prefix: str) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._prefix = prefix
        self._count = 0
        self._constants: dict[tuple[str, tuple[float, ...]], str] = {}

    def fresh(self) -> str:
        """A name that was not given before."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def add(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node of one output of ONNX's own operators; the output's name."""
        output = self.fresh()
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def in_fp64(self, node: NodeProto) -> None:
        """`node`, whose inputs and only output are fp32, computed in fp64.

        For LayerNormalization: onnxruntime's kernel for fp32 takes the variance as a difference of two sums, and is off
        by more than rounding where many elements of a row are 0, as those that padding brings are.
        """
        wide = [self.add("Cast", [name], to=TensorProto.DOUBLE) if name else "" for name in node.input]
        made = self.fresh()
        inner = helper.make_node(node.op_type, wide, [made])
        inner.attribute.extend(node.attribute)
        self.nodes += [inner, helper.make_node("Cast", [made], node.output, to=TensorProto.FLOAT)]

    def again(
        self, node: NodeProto, inputs: Sequence[str], changed: Mapping[str, Any] | None = None, output: int = 0
    ) -> str:
        """A node of the same operator and attributes, but for those `changed`, on other inputs; one of its outputs.

        One behind the first has those before it beside it, for not every operator may leave them out."""
        names = [self.fresh() for _ in range(output + 1)]
        other = helper.make_node(node.op_type, inputs, names, domain=node.domain, **(changed or {}))
        other.attribute.extend(_kept(node.attribute, changed or {}))
        self.nodes.append(other)
        return names[output]

    def constant(self, values: float | Sequence[int]) -> str:
        """A scalar in fp32, or a list of integers."""
        integers = not isinstance(values, int | float)
        flat = tuple(map(float, values)) if integers else (float(values),)  # type: ignore[arg-type]
        key = ("int64" if integers else "float32", flat)
        if key not in self._constants:
            array = np.asarray(flat, np.int64) if integers else np.asarray(flat[0], np.float32)
            self._constants[key] = self.fresh()
            self.initializers.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def sum(self, a: str, b: str) -> str:
        return self.add("Add", [a, b])

    def product(self, a: str, b: str) -> str:
        return self.add("Mul", [a, b])

    def scaled(self, a: str, factor: float) -> str:
        """`a` times a number; `a` itself where that is 1."""
        return a if factor == 1.0 else self.product(a, self.constant(factor))

    def quotient(self, a: str, b: str) -> str:
        return self.add("Div", [a, b])

    def square(self, a: str) -> str:
        return self.product(a, a)

    def affine(self, a: str, factor: float, offset: float) -> str:
        """factor * a + offset."""
        scaled = self.scaled(a, factor)
        return scaled if offset == 0.0 else self.sum(scaled, self.constant(offset))

    def size(self, a: str) -> str:
        """The number of elements, as an fp32 scalar."""
        return self.add("Cast", [self.add("Size", [a])], to=TensorProto.FLOAT)

    def extent(self, a: str, axis: int) -> str:
        """The extent of an axis (negative: from the end), as an fp32 tensor of one element."""
        picked = self.add("Gather", [self.add("Shape", [a]), self.constant([axis])])
        return self.add("Cast", [picked], to=TensorProto.FLOAT)

    def zeros_like(self, a: str) -> str:
        """fp32 zeros of the shape of `a`."""
        return self.add("ConstantOfShape", [self.add("Shape", [a])])

    def reduce(self, op_type: str, a: str, axes: Sequence[int]) -> str:
        """A reduction over `axes` that keeps the rank."""
        if self.opset >= ALL_AXES_INPUT[op_type]:
            return self.add(op_type, [a, self.constant(axes)], keepdims=1)
        return self.add(op_type, [a], axes=list(axes), keepdims=1)

    def graph(self, name: str) -> GraphProto:
        """The nodes and constants; the caller adds inputs and outputs."""
        return helper.make_graph(self.nodes, name, [], [], self.initializers)


def _kept(attributes: Iterable[AttributeProto], changed: Mapping[str, Any]) -> list[AttributeProto]:
    return [attribute for attribute in attributes if attribute.name not in changed]
