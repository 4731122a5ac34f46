"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails, stride


@dataclass(frozen=True)
class MatMul(Op):
    """Inputs a [...,M,K] ([...,K,M] if transpose_a), b [...,K,N] ([...,N,K] if transpose_b), optionally bias [N].

    Leading dimensions broadcast as in NumPy. ONNX MatMul (rank 1 operands are reshaped at import) and Gemm (rank 2;
    alpha and beta other than 1 become multiplications at import; a C that is not [N] becomes an addition).
    """

    kind = "matmul"
    factors = 2
    transpose_a: bool = False
    transpose_b: bool = False

    def _matrices(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Rows and columns of both factors, transposed as they are used."""
        rows, depth = (a[-1], a[-2]) if self.transpose_a else (a[-2], a[-1])
        other, columns = (b[-1], b[-2]) if self.transpose_b else (b[-2], b[-1])
        return rows, depth, other, columns

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2, 3)
        expect_same_dtype(inputs)
        a, b = inputs[0], inputs[1]
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(f"factors {list(a.shape)} and {list(b.shape)} must have at least two axes")
        rows, depth, other, columns = self._matrices(a.shape, b.shape)
        if depth != other:
            raise ShapeError(f"a {rows}x{depth} matrix cannot be multiplied with a {other}x{columns} one")
        if len(inputs) == 3 and inputs[2].shape != (columns,):
            raise ShapeError(f"bias {list(inputs[2].shape)} must be [{columns}], one a column")
        return (TensorType(a.dtype, (*broadcast(a.shape[:-2], b.shape[:-2]), rows, columns)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        a, b = widened(inputs[0]), widened(inputs[1])
        left = a.swapaxes(-1, -2) if self.transpose_a else a
        right = b.swapaxes(-1, -2) if self.transpose_b else b
        result = left @ right
        if len(inputs) == 3:
            result = result + widened(inputs[2])
        return (narrowed(result, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        depth = self._matrices(inputs[0].shape, inputs[1].shape)[1]
        return outputs[0].elements * (2 * depth + (len(inputs) == 3))

    def _multiplies_alone(self, node: Node, side: int, at: Padded) -> bool:
        """Whether zeros in the factor `side` make zeros: the other is a constant, and nothing is added."""
        other = node.inputs[1 - side]
        return (
            len(node.inputs) == 2
            and at.constant(other) is not None
            and not at.tails(other)
            and len(at.tails(node.inputs[side])) == 1
        )

    def tails(self, node: Node, at: Padded) -> Tails:
        """A sum over it is of the real part alone where one of the factors is zero behind it."""
        shape = at.shape(node.outputs[0])
        rank, found = len(shape), dict[int, Tail]()
        summed: list[dict[int, Tail]] = [{}, {}]
        for side, name in enumerate(node.inputs[:2]):
            own = len(at.shape(name))
            depth = own - 1 if side == 0 else own - 2
            if self.transpose_a if side == 0 else self.transpose_b:
                depth = 2 * own - 3 - depth
            for step, tail in at.tails(name).items():
                axis = at.axis(name, step)
                if axis == depth:
                    summed[side][step // stride(at.shape(name), axis)] = tail
                else:
                    place = axis + rank - own if axis < own - 2 else rank - 2 + side
                    none = tail.value == 0.0 and self._multiplies_alone(node, side, at)
                    found[at.moved(name, step, shape, place)] = Tail(0.0) if none else ANYTHING
        for step in {*summed[0], *summed[1]}:
            if not any(side.get(step, ANYTHING).value == 0.0 for side in summed):
                raise PaddingReaches("adds up over it, and padding is not zero there")
            if any(side.get(step, ANYTHING).lost for side in summed):
                raise PaddingReaches("adds up over it, and padding is no number there")
        for name in node.inputs[2:]:
            found |= {at.moved(name, step, shape, rank - 1): ANYTHING for step in at.tails(name)}
        return found


_WITH_KERNELS = (DType.F32, DType.F16, DType.BF16)
_MOST_PLAIN = 1 << 22
"""Elements of a product that is written out: four bytes each are what a cache of a large CPU holds."""


def import_matmul(node: NodeImport) -> None:
    matrices(node, node.input(0), node.input(1), lambda a, b, output: multiplied(node, MatMul(), a, b, output), 0)


def multiplied(node: NodeImport, op: MatMul, a: str, b: str, output: int | None = None) -> str:
    """The product of two factors. No kernel multiplies matrices of whole numbers, or of doubles: of two such that are
    data and small every element of one is multiplied with those of the other, and sums are taken."""
    left, right = node.type_of(a), node.type_of(b)
    (product,) = op.infer([left, right])
    depth = left.shape[-2 if op.transpose_a else -1]
    known = all(node.array(name) is not None for name in (a, b))
    if left.dtype in _WITH_KERNELS or known or product.elements * depth > _MOST_PLAIN:
        return node.emit(op, [a, b], output)
    rows = _turned(node, a) if op.transpose_a else a
    columns = b if op.transpose_b else _turned(node, b)
    rows = node.emit(Reshape(_with_one(node.type_of(rows).shape, -1)), [rows])
    columns = node.emit(Reshape(_with_one(node.type_of(columns).shape, -2)), [columns])
    pairs = node.emit(Binary("mul"), [rows, columns])
    return node.emit(Reduce("sum", (product.rank,), keepdims=False), [pairs], output)


def _turned(node: NodeImport, name: str) -> str:
    rank = node.type_of(name).rank
    return node.emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), [name])


def _with_one(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*shape[:place], 1, *shape[place:])


def matrices(
    node: NodeImport, a: str, b: str, multiplied: Callable[[str, str, int | None], str], output: int | None
) -> str:
    """What `multiplied` makes of two factors of two axes or more, as NumPy's matmul takes and leaves those of one;
    it is output `output` of the node."""
    left, right = node.type_of(a), node.type_of(b)
    if not left.rank or not right.rank:
        raise ShapeError("a scalar is no factor of a matrix product")
    if left.rank > 1 and right.rank > 1:
        return multiplied(a, b, output)
    if left.rank == 1:
        a = node.emit(Reshape((1, *left.shape)), [a])
    if right.rank == 1:
        b = node.emit(Reshape((*right.shape, 1)), [b])
    product = multiplied(a, b, None)
    shape = list(node.type_of(product).shape)
    if right.rank == 1:
        del shape[-1]
    if left.rank == 1:
        del shape[-1 if right.rank == 1 else -2]
    return node.emit(Reshape(tuple(shape)), [product], output)


def import_gemm(node: NodeImport) -> None:
    gemm(node, 0)


def gemm(node: NodeImport, output: int | None) -> str:
    """alpha * A' B' + beta * C as output `output`. Scales of constants are folded by `emit`; a C of one row becomes the
    bias."""
    for index in (0, 1):
        if node.type(index).rank != 2:
            raise ShapeError(f"input {index} {list(node.type(index).shape)} must be a matrix")
    op = MatMul(bool(node.integer("transA", 0)), bool(node.integer("transB", 0)))
    a, b = node.input(0), node.input(1)
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    if alpha != 1.0 and node.constant(1) is not None:
        b, alpha = _scaled(node, b, alpha), 1.0
    (result,) = op.infer([node.type(0), node.type_of(b)])
    addend = _scaled(node, node.input(2), beta) if node.has(2) and beta != 0.0 else None
    if addend is not None and broadcast(result.shape, node.type_of(addend).shape) != result.shape:
        raise ShapeError(f"C {list(node.type(2).shape)} does not broadcast to {list(result.shape)}")
    if addend is not None and alpha == 1.0 and node.type_of(addend).shape in ((result.shape[1],), (1, result.shape[1])):
        if node.type_of(addend).rank == 2:
            addend = node.emit(Reshape((result.shape[1],)), [addend])
        if node.type(0).dtype in _WITH_KERNELS:
            return node.emit(op, [a, b, addend], output)
        return node.emit(Binary("add"), [multiplied(node, op, a, b), addend], output)
    if addend is None and alpha == 1.0:
        return multiplied(node, op, a, b, output)
    product = multiplied(node, op, a, b)
    if alpha != 1.0:
        product = _scaled(node, product, alpha, output if addend is None else None)
    return product if addend is None else node.emit(Binary("add"), [product, addend], output)


def _scaled(node: NodeImport, name: str, factor: float, output: int | None = None) -> str:
    if factor == 1.0:
        return name
    return node.emit(Binary("mul"), [name, node.scalar_like(factor, name)], output)


IMPORTERS = (
    Importer("MatMul", (1, 9, 13), import_matmul, example=Example((Data((2, 8)), Weights((8, 4))))),
    Importer("Gemm", (7, 9, 11, 13), import_gemm, example=Example((Data((2, 8)), Weights((8, 4)), Weights((4,))))),
)
