"""Elementwise functions of two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, numpy_dtype, widened
from bolt_build.graph.example import IMAGE, OF_TWO_IMAGES, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_same_dtype
from bolt_build.graph.ops.shape import Identity


def _divide(a: Array, b: Array) -> Array:
    """Quotient; of integers rounded toward zero, as ONNX and C do."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.floor_divide(a, b)
    inexact = quotient * b != a
    negative = (a < 0) != (b < 0)
    return np.asarray(quotient + (inexact & negative))


_EVALUATE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "pow": np.power, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip

FUNCTIONS = tuple(_EVALUATE)


@dataclass(frozen=True)
class Binary(Op):
    """y = a (function) b with NumPy broadcasting; `function` is "add", "sub", "mul", "div", "pow", "max" or "min"."""

    kind = "binary"
    function: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_same_dtype(inputs)
        if self.function not in FUNCTIONS:
            raise ShapeError(f"'{self.function}' is no function of two tensors")
        return (TensorType(inputs[0].dtype, broadcast(inputs[0].shape, inputs[1].shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = _EVALUATE[self.function](widened(inputs[0]), widened(inputs[1]))
        return (narrowed(result, inputs[0].dtype),)


def import_binary(node: NodeImport) -> None:
    node.emit(Binary(node.node.op_type.lower()), [node.input(0), node.input(1)], 0)


def import_pow(node: NodeImport) -> None:
    """The exponent may be of another element type: a constant one is converted."""
    exponent = node.input(1)
    base = node.type(0).dtype
    array = node.constant(1)
    if array is not None and node.type(1).dtype != base:
        if not base.is_float and node.type(1).dtype.is_float:
            left = node.static(0, "an integer base")
            result = TensorType(base, broadcast(left.shape, array.shape))
            node.fold(result, lambda: narrowed(np.power(widened(left), widened(array)), numpy_dtype(base)))
            return
        exponent = node.helper(array.astype(numpy_dtype(base)), "exponent")
    node.emit(Binary("pow"), [node.input(0), exponent], 0)


def import_chain(node: NodeImport) -> None:
    """Sum, Max and Min of any number of tensors, from left to right."""
    function = {"Sum": "add", "Max": "max", "Min": "min"}[node.node.op_type]
    names = node.inputs()
    if not names:
        raise ShapeError("takes at least one input")
    if len(names) == 1:
        node.emit(Identity(), names, 0)
        return
    left = names[0]
    for right in names[1:-1]:
        left = node.emit(Binary(function), [left, right])
    node.emit(Binary(function), [left, names[-1]], 0)


IMPORTERS = (
    *(Importer(name, (7, 13, 14), import_binary, example=OF_TWO_IMAGES) for name in ("Add", "Sub", "Mul", "Div")),
    Importer(
        "Pow", (7, 12, 13, 15), import_pow, example=Example((Data(IMAGE), Weights(()))), note="a constant exponent"
    ),
    Importer("Max", (8, 12, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("Min", (8, 12, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("Sum", (8, 13), import_chain, example=OF_TWO_IMAGES),
)
