"""Builds the graphs that onnxruntime computes for verification: nodes and constants with names that clash with none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.defs
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

ALL_AXES_INPUT = {"ReduceSum": 13, "ReduceMax": 18, "ReduceMean": 18}
"""Opset from which a reduction takes its axes as an input."""
EXACT = ("LayerNormalization", "InstanceNormalization", "STFT", "DFT")
"""What is computed in fp64. onnxruntime's kernels for fp32 take the variance of rows as a difference of two sums, or
their results as one of two products: they are off by more than rounding where rows are nearly alike, or in part
padding. A spectrum of a length that is no power of 2, such as 400, is off by 1e-4 of its size."""
_REAL = {"STFT": (0, 2), "DFT": (0,)}
"""Which inputs are no lengths or axes, where some are."""


class Emitter:
    """Nodes and scalar constants of one graph, in order. Names begin with `prefix`, which no tensor of a model does."""

    def __init__(self, opset: int, prefix: str) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._prefix = prefix
        self._count = 0
        self._constants: dict[tuple[str, tuple[float, ...]], str] = {}
        self._typed: list[ValueInfoProto] = []

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
        """`node`, one of `EXACT`, whose inputs and only output are fp32, computed in fp64."""
        real = _REAL.get(node.op_type, range(len(node.input)))
        wide = [
            self.add("Cast", [name], to=TensorProto.DOUBLE) if name and index in real else name
            for index, name in enumerate(node.input)
        ]
        if node.op_type == "InstanceNormalization":
            made = self._instance_norm(node, wide)
        else:
            made = self.fresh()
            inner = helper.make_node(node.op_type, wide, [made])
            inner.attribute.extend(node.attribute)
            self.nodes.append(inner)
        self.nodes.append(helper.make_node("Cast", [made], node.output, to=TensorProto.FLOAT))

    def _instance_norm(self, node: NodeProto, wide: Sequence[str]) -> str:
        """Written out, of the node's inputs in fp64: onnxruntime has no such kernel."""
        x, scale, bias = wide
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        rows = self.add("Reshape", [x, self.constant([0, 0, -1])])
        centred = self.add("Sub", [rows, self.reduce("ReduceMean", rows, [2])])
        variance = self.reduce("ReduceMean", self.square(centred), [2])
        least = self.add("Cast", [self.constant(epsilon)], to=TensorProto.DOUBLE)
        unit = self.quotient(centred, self.add("Sqrt", [self.sum(variance, least)]))
        factors, offsets = (self.add("Reshape", [each, self.constant([-1, 1])]) for each in (scale, bias))
        return self.add("Reshape", [self.sum(self.product(unit, factors), offsets), self.add("Shape", [x])])

    def logistic(self, x: str) -> str:
        """1 / (1 + e^-x), off by a part of itself. onnxruntime's Sigmoid is off by 1e-7, which may be all there is."""
        power = self.add("Exp", [self.add("Neg", [x])])
        return self.add("Reciprocal", [self.affine(power, 1.0, 1.0)])

    def again(
        self, node: NodeProto, inputs: Sequence[str], changed: Mapping[str, Any] | None = None, output: int = 0
    ) -> str:
        """A node of the same operator and attributes, but for those `changed`, on other inputs; one of its outputs.

        Others stand beside it where the operator may not leave them out."""
        if node.op_type == "Gemm" and self.opset < 11 and len(inputs) == 2:
            inputs = (*inputs, self.constant(0.0))  # it had to add something
        # An opset may lack the operator: onnxruntime's optimiser writes LayerNormalization into any.
        known = not node.domain and onnx.defs.has(node.op_type, self.opset, "")
        least = int(onnx.defs.get_schema(node.op_type, self.opset, "").min_output) if known else 1
        # What such a kernel needs beside its result, the model asks for; so does a BatchNormalization of its own input.
        trains = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if trains or node.domain not in ("", "ai.onnx"):
            least = len(node.output)
        count = max(output + 1, least)
        left_out = {index for index, name in enumerate(node.output) if name == ""} - {output}
        names = ["" if index in left_out else self.fresh() for index in range(count)]
        self.typed(node, names)
        other = helper.make_node(node.op_type, inputs, names, domain=node.domain, **(changed or {}))
        other.attribute.extend(_kept(node.attribute, changed or {}))
        self.nodes.append(other)
        return names[output]

    def typed(self, node: NodeProto, names: Sequence[str]) -> None:
        """Says of what type `names` are, as `node` makes them, where onnxruntime does not know that itself: caches
        that an attention begins."""
        if node.op_type == "GroupQueryAttention" and node.domain == "com.microsoft":
            self._typed += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name]

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

    def flat(self, a: str, axis: int) -> str:
        """`a` as a matrix, whose columns are the axes from `axis` (negative: from the end) on. Flatten counts from the
        end since opset 11 alone; models of older ones have such axes in Softmax."""
        if axis >= 0 or self.opset >= 11:
            return self.add("Flatten", [a], axis=axis)
        shape, columns = self.add("Shape", [a]), ""
        for each in range(axis, 0):
            extent = self.add("Gather", [shape, self.constant([each])])
            columns = self.product(columns, extent) if columns else extent
        return self.add("Reshape", [a, self.add("Concat", [self.constant([-1]), columns], axis=0)])

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
        return helper.make_graph(self.nodes, name, [], [], self.initializers, value_info=self._typed)


def _kept(attributes: Iterable[AttributeProto], changed: Mapping[str, Any]) -> list[AttributeProto]:
    return [attribute for attribute in attributes if attribute.name not in changed]


def unused_prefix(names: Iterable[str]) -> str:
    """With which none of `names` begins."""
    prefix = "v"
    taken = set(names)
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return prefix
