"""Elementwise functions of two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, numpy_dtype, widened
from bolt_build.graph.example import IMAGE, OF_TWO_IMAGES, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.shape import Cast, Identity
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, LOST, Padded, Tail, Tails
from bolt_build.graph.tail_rules import elementwise


def _divide(a: Array, b: Array) -> Array:
    """Quotient; of integers rounded toward zero, as ONNX and C do, and zero where they are divided by zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & (b != 0)
    negative = (a < 0) != (b < 0)
    return np.asarray(quotient + (inexact & negative))


def _power(a: Array, b: Array) -> Array:
    """Of integers, a negative exponent gives 1 of 1, 1 or -1 of -1 and 0 of all others."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.power(a, b))
    least = np.maximum(b, b.dtype.type(0))
    odd = b % 2 != 0
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)) if a.dtype.kind == "i" else a == 1
    return np.where(b < 0, inverse, np.power(a, least)).astype(a.dtype)


_EVALUATE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "pow": _power, "max": np.maximum,
    "min": np.minimum, "mod": np.mod, "fmod": np.fmod,
    "prelu": lambda x, slope: np.where(x < 0, slope * x, x),
}  # fmt: skip

FUNCTIONS = tuple(_EVALUATE)


@dataclass(frozen=True)
class Binary(Op):
    """y = a (function) b with NumPy broadcasting; `function` is "add", "sub", "mul", "div", "pow", "max", "min",
    "mod" (with the divisor's sign), "fmod" (with the dividend's) or "prelu" (a, times b where it is negative).

    Integers wrap around; a quotient and a remainder by zero are zero, quotients are cut off towards zero.
    """

    kind = "binary"
    function: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_same_dtype(inputs)
        if inputs[0].dtype is DType.BOOL:
            raise ShapeError("takes numbers, not bool")
        if self.function not in FUNCTIONS:
            raise ShapeError(f"'{self.function}' is no function of two tensors")
        return (TensorType(inputs[0].dtype, broadcast(inputs[0].shape, inputs[1].shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = _EVALUATE[self.function](widened(inputs[0]), widened(inputs[1]))
        return (narrowed(result, inputs[0].dtype),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, self._decided)

    def _decided(self, tails: Sequence[Tail]) -> Tail:
        """What is hidden stays so beside any number; zero times any number is zero. What is infinite may become no
        number."""
        values = [tail.value for tail in tails if tail.value is not None]
        endless = inf in values or (self.function in ("mul", "div") and -inf in values)
        if endless or any(tail.lost for tail in tails):
            return LOST
        hidden = [tail.hidden for tail in tails]
        if (self.function in ("add", "min") and any(hidden)) or (self.function == "sub" and hidden[0]):
            return Tail(below=True)
        return Tail(0.0) if self.function == "mul" and 0.0 in [tail.value for tail in tails] else ANYTHING


def import_binary(node: NodeImport) -> None:
    node.emit(Binary(node.node.op_type.lower()), [node.input(0), node.input(1)], 0)


def import_pow(node: NodeImport) -> None:
    """The exponent may be of another element type; integers to the power of other numbers go through doubles."""
    base, exponent = node.input(0), node.input(1)
    own, other = node.type(0).dtype, node.type(1).dtype
    if not own.is_float and other.is_float:
        sides = [node.emit(Cast(DType.F64), [name]) for name in (base, exponent)]
        node.emit(Cast(own), [node.emit(Binary("pow"), sides)], 0)
        return
    array = node.constant(1)
    if other is not own:
        made = None if array is None else node.helper(array.astype(numpy_dtype(own)), "exponent")
        exponent = node.emit(Cast(own), [exponent]) if made is None else made
    node.emit(Binary("pow"), [base, exponent], 0)


_FLOORED = 28
"""The version of Mod that says what fmod=0 is of floating-point numbers."""


def import_mod(node: NodeImport) -> None:
    fmod = bool(node.integer("fmod", 0))
    if node.type(0).dtype.is_float and not fmod and node.version < _FLOORED:
        message = f"of floating-point numbers fmod=0 means nothing before opset {_FLOORED}"
        raise Refusal("unsupported-attribute", message, hint="write fmod=1, or convert the model to that opset")
    node.emit(Binary("fmod" if fmod else "mod"), [node.input(0), node.input(1)], 0)


def import_chain(node: NodeImport) -> None:
    """Sum, Max, Min and Mean of any number of tensors, from left to right; Mean divides their sum by their number."""
    function = {"Sum": "add", "Max": "max", "Min": "min", "Mean": "add"}[node.node.op_type]
    names = node.inputs()
    if not names:
        raise ShapeError("takes at least one input")
    if len(names) == 1:
        node.emit(Identity(), names, 0)
        return
    left = names[0]
    for right in names[1:-1]:
        left = node.emit(Binary(function), [left, right])
    if node.node.op_type == "Mean":
        total = node.emit(Binary(function), [left, names[-1]])
        node.emit(Binary("div"), [total, node.scalar_like(len(names), total)], 0)
    else:
        node.emit(Binary(function), [left, names[-1]], 0)


def import_prelu(node: NodeImport) -> None:
    shape = node.type(0).shape
    if broadcast(shape, node.type(1).shape) != shape:
        raise ShapeError(f"the slope {list(node.type(1).shape)} does not broadcast to {list(shape)}")
    node.emit(Binary("prelu"), [node.input(0), node.input(1)], 0)


IMPORTERS = (
    *(Importer(name, (7, 13, 14), import_binary, example=OF_TWO_IMAGES) for name in ("Add", "Sub", "Mul", "Div")),
    Importer("Pow", (7, 12, 13, 15), import_pow, example=Example((Data(IMAGE), Weights(())))),
    Importer(
        "Mod",
        (10, 13, 28),
        import_mod,
        example=Example((Data(IMAGE), Data(IMAGE)), (("fmod", 1),)),
        note="of floating-point numbers with fmod=1, or from opset 28 on",
    ),
    Importer("Max", (6, 8, 12, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("Min", (6, 8, 12, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("Sum", (6, 8, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("Mean", (6, 8, 13), import_chain, example=OF_TWO_IMAGES),
    Importer("PRelu", (7, 9, 16), import_prelu, example=Example((Data(IMAGE), Weights((IMAGE[1], 1, 1))))),
)
