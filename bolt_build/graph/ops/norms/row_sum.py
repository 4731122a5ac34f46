"""Sums of rows, as embeddings and tokens are made of, and their normalisation: one kernel of several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from itertools import accumulate

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, TensorType
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.operands import broadcast, expect_count
from bolt_build.graph.ops.products.chain import Chain


class Rows(Enum):
    """Where the rows of a term come from: a tensor that broadcasts to the sum; rows of a table that indices name; or
    tensors that stand behind each other."""

    TENSOR = "tensor"
    TABLE = "table"
    JOINED = "joined"


@dataclass(frozen=True)
class Term:
    """One term of a sum, over the next `operands` inputs: 1 of a tensor, a table and its indices, or the tensors that
    are joined along `axis`, counted in their own shape."""

    rows: Rows
    operands: int = 1
    axis: int = 0

    def __str__(self) -> str:
        return f"joined{self.operands}" if self.rows is Rows.JOINED else self.rows.value

    @property
    def op(self) -> Op | None:
        """The operator that makes the term of its operands; None where it is the operand itself."""
        if self.rows is Rows.TENSOR:
            return None
        return Gather(0) if self.rows is Rows.TABLE else Concat(self.axis)

    def shape(self, inputs: Sequence[TensorType]) -> tuple[int, ...]:
        """Raises ShapeError where tensors cannot be joined."""
        if self.rows is Rows.TABLE:
            table, indices = inputs
            return (*indices.shape, *table.shape[1:])
        if self.rows is Rows.JOINED:
            return Concat(self.axis).infer(inputs)[0].shape
        return inputs[0].shape


@dataclass(frozen=True)
class RowSum(Op):
    """The sum of terms of which each broadcasts to it. Inputs are the operands of the first term, then those of the
    next, and so on; the sum has the element type of input 0, which may be finer or coarser than that of others.

    It stands in kernel problems; graphs hold gathers, concatenations and sums apart.
    """

    kind = "row_sum"
    in_graphs = False
    terms: tuple[Term, ...]

    @property
    def operands(self) -> int:
        """How many inputs it has."""
        return sum(term.operands for term in self.terms)

    @property
    def tables(self) -> tuple[int, ...]:
        """Which inputs are tables; the next of each has its indices."""
        begins = accumulate((term.operands for term in self.terms), initial=0)
        return tuple(begin for begin, term in zip(begins, self.terms, strict=False) if term.rows is Rows.TABLE)

    def each(self, inputs: Sequence[TensorType]) -> Iterator[tuple[Term, Sequence[TensorType]]]:
        """The terms, each with its own inputs."""
        begin = 0
        for term in self.terms:
            yield term, inputs[begin : begin + term.operands]
            begin += term.operands

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, self.operands)
        shapes = [term.shape(own) for term, own in self.each(inputs)]
        return (TensorType(inputs[0].dtype, reduce(broadcast, shapes)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        found, begin = [], 0
        for term in self.terms:
            own = inputs[begin : begin + term.operands]
            made = own[0] if term.op is None else term.op.evaluate(own)[0]
            found.append(widened(made))
            begin += term.operands
        return (narrowed(reduce(lambda a, b: a + b, found), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (len(self.terms) - 1) * outputs[0].elements

    def unread(self, inputs: Sequence[TensorType]) -> int:
        """Rows that no index can name, of all tables, which have one element type."""
        return sum(Gather(0).unread(own) for term, own in self.each(inputs) if term.rows is Rows.TABLE)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {table + 1: inputs[table].shape[0] for table in self.tables}


@dataclass(frozen=True)
class NormedRows(Chain):
    """A `RowSum` and the normalisation of its rows, of the sum that is not rounded yet."""

    kind = "normed_rows"

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        wide = [widened(array) for array in inputs]
        inner = self._left(wide)
        (normed,) = self.second.evaluate([inner, *wide[self.operands :]])
        found = (inner, normed) if self.keeps else (normed,)
        return tuple(narrowed(array, inputs[0].dtype) for array in found)


@dataclass(frozen=True)
class KeptRows(NormedRows):
    """The same where the sum is stored as well: two outputs."""

    kind = "kept_rows"
    keeps = True
