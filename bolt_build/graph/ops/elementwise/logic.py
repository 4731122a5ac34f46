"""Questions to elements, functions of booleans and of bits, and the choice between two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import IMAGE, OF_TWO_IMAGES, Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_float, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, Tail, Tails
from bolt_build.graph.tail_rules import elementwise

_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip
_LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def _shift(a: Array, b: Array, left: bool) -> Array:
    """A shift by less than 0, or by all bits and more, leaves no bit but copies of the sign on the right."""
    width = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < width)
    by = np.where(inside, b, b.dtype.type(width - 1))
    none = np.zeros_like(a) if left or a.dtype.kind == "u" else np.right_shift(a, a.dtype.type(width - 1))
    return np.where(inside, np.left_shift(a, by) if left else np.right_shift(a, by), none).astype(a.dtype)


_BITS: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shift_left": lambda a, b: _shift(a, b, True), "shift_right": lambda a, b: _shift(a, b, False),
}  # fmt: skip
_QUESTIONS: dict[str, Callable[[Array], Array]] = {
    "nan": np.isnan, "inf": np.isinf, "positive_inf": np.isposinf, "negative_inf": np.isneginf,
    "not": np.logical_not,
}  # fmt: skip

COMPARISONS, LOGIC, BITS, QUESTIONS = tuple(_COMPARISONS), tuple(_LOGIC), tuple(_BITS), tuple(_QUESTIONS)


def _known(question: str, known: Sequence[str]) -> None:
    if question not in known:
        raise ShapeError(f"'{question}' is none of {', '.join(known)}")


@dataclass(frozen=True)
class Compare(Op):
    """Booleans: whether a is `question` b, with NumPy broadcasting. `question` is one of COMPARISONS.

    Booleans can be asked for "equal" alone.
    """

    kind = "compare"
    question: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_same_dtype(inputs)
        _known(self.question, COMPARISONS)
        if inputs[0].dtype is DType.BOOL and self.question != "equal":
            raise ShapeError(f"booleans are not {self.question}")
        return (TensorType(DType.BOOL, broadcast(inputs[0].shape, inputs[1].shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(_COMPARISONS[self.question](*inputs)),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at)


@dataclass(frozen=True)
class Logic(Op):
    """Booleans from two tensors of booleans, with NumPy broadcasting. `function` is "and", "or" or "xor"."""

    kind = "logic"
    function: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        _known(self.function, LOGIC)
        for t in inputs:
            if t.dtype is not DType.BOOL:
                raise ShapeError(f"takes booleans, not {t.dtype.value}")
        return (TensorType(DType.BOOL, broadcast(inputs[0].shape, inputs[1].shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(_LOGIC[self.function](*inputs)),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, self._decided)

    def _decided(self, tails: Sequence[Tail]) -> Tail:
        """One side alone says what "and" of false is, and "or" of true."""
        decides = {"and": 0.0, "or": 1.0}.get(self.function)
        return Tail(decides) if decides is not None and decides in [tail.value for tail in tails] else ANYTHING


@dataclass(frozen=True)
class Bitwise(Op):
    """Integers from two tensors of one integer type, bit by bit. `function` is "and", "or", "xor", "shift_left" or
    "shift_right": a shifted by b bits, a signed a with copies of its sign. By a negative b, or all bits and more, none
    of a's bits are left."""

    kind = "bitwise"
    function: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_same_dtype(inputs)
        _known(self.function, BITS)
        if not inputs[0].dtype.is_integer:
            raise ShapeError(f"takes integers, not {inputs[0].dtype.value}")
        return (TensorType(inputs[0].dtype, broadcast(inputs[0].shape, inputs[1].shape)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(_BITS[self.function](*inputs)),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at)


@dataclass(frozen=True)
class Ask(Op):
    """Booleans: whether each element is what `question` says: "nan", "inf", "positive_inf" or "negative_inf" of a
    floating-point number; "not" (false) of a boolean."""

    kind = "ask"
    question: str

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        _known(self.question, QUESTIONS)
        if self.question != "not":
            expect_float(inputs[0])
        elif inputs[0].dtype is not DType.BOOL:
            raise ShapeError(f"takes booleans, not {inputs[0].dtype.value}")
        return (TensorType(DType.BOOL, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(_QUESTIONS[self.question](inputs[0])).astype(np.bool_),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at)


@dataclass(frozen=True)
class Where(Op):
    """Of inputs (condition of booleans, a, b) the elements of a where the condition is true, else those of b, with
    NumPy broadcasting of all three."""

    kind = "where"
    moves = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        if inputs[0].dtype is not DType.BOOL:
            raise ShapeError(f"the condition is of {inputs[0].dtype.value}, not of booleans")
        expect_same_dtype(inputs[1:])
        shape = broadcast(broadcast(inputs[0].shape, inputs[1].shape), inputs[2].shape)
        return (TensorType(inputs[1].dtype, shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.where(*inputs).astype(inputs[1].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, self._chosen)

    def _chosen(self, tails: Sequence[Tail]) -> Tail:
        condition, yes, no = tails
        return ANYTHING if condition.value is None else yes if condition.value else no


_COMPARED = {
    "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
}  # fmt: skip


def import_compare(node: NodeImport) -> None:
    node.emit(Compare(_COMPARED[node.node.op_type]), [node.input(0), node.input(1)], 0)


def import_logic(node: NodeImport) -> None:
    node.emit(Logic(node.node.op_type.lower()), [node.input(0), node.input(1)], 0)


def import_bitwise(node: NodeImport) -> None:
    node.emit(Bitwise(node.node.op_type.removeprefix("Bitwise").lower()), [node.input(0), node.input(1)], 0)


def import_bit_shift(node: NodeImport) -> None:
    direction = node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Refusal("invalid-node", f"direction '{direction}' is neither LEFT nor RIGHT")
    node.emit(Bitwise(f"shift_{direction.lower()}"), [node.input(0), node.input(1)], 0)


def import_bitwise_not(node: NodeImport) -> None:
    """Every bit turned: the exclusive or with ones."""
    dtype = node.type(0).dtype
    if not dtype.is_integer:
        raise ShapeError(f"takes integers, not {dtype.value}")
    ones = -1 if dtype.value.startswith("i") else (1 << 8 * dtype.nbytes) - 1
    node.emit(Bitwise("xor"), [node.input(0), node.scalar_like(ones, node.input(0))], 0)


def import_not(node: NodeImport) -> None:
    node.emit(Ask("not"), [node.input(0)], 0)


def import_is_nan(node: NodeImport) -> None:
    node.emit(Ask("nan"), [node.input(0)], 0)


def import_is_inf(node: NodeImport) -> None:
    positive, negative = bool(node.integer("detect_positive", 1)), bool(node.integer("detect_negative", 1))
    x = node.input(0)
    if not positive and not negative:
        node.emit(Compare("less"), [x, x], 0)  # nothing is
        return
    question = "inf" if positive and negative else "positive_inf" if positive else "negative_inf"
    node.emit(Ask(question), [x], 0)


def import_where(node: NodeImport) -> None:
    node.emit(Where(), [node.input(0), node.input(1), node.input(2)], 0)


_TRUTH = Data(IMAGE, DType.BOOL)

IMPORTERS = (
    Importer("Equal", (7, 11, 13, 19), import_compare, example=OF_TWO_IMAGES),
    Importer("Less", (7, 9, 13), import_compare, example=OF_TWO_IMAGES),
    Importer("Greater", (7, 9, 13), import_compare, example=OF_TWO_IMAGES),
    Importer("LessOrEqual", (12, 16), import_compare, example=OF_TWO_IMAGES),
    Importer("GreaterOrEqual", (12, 16), import_compare, example=OF_TWO_IMAGES),
    *(Importer(name, (7,), import_logic, example=OF_TWO_IMAGES) for name in ("And", "Or", "Xor")),
    Importer("Not", (1,), import_not),
    *(Importer(f"Bitwise{name}", (18,), import_bitwise, example=OF_TWO_IMAGES) for name in ("And", "Or", "Xor")),
    Importer(
        "BitShift",
        (11, 28),
        import_bit_shift,
        example=Example((Data(IMAGE), Data(IMAGE)), (("direction", "LEFT"),)),
    ),
    Importer("BitwiseNot", (18,), import_bitwise_not),
    Importer("IsNaN", (9, 13, 20), import_is_nan),
    Importer("IsInf", (10, 20), import_is_inf),
    Importer("Where", (9, 16), import_where, example=Example((_TRUTH, Data(IMAGE), Data(IMAGE)))),
)
