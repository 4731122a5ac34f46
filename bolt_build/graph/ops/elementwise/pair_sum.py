"""Sums of terms that every pair of a row and a column has, as scores of attention are biased by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.operands import broadcast, expect_float, expect_indices


@dataclass(frozen=True)
class PairTerm:
    """One term: which input has its data, and which the indices that pick of each of its lines (None: it is taken as it
    is). Lines are rows of the result, columns where it is `turned`."""

    data: int
    indices: int | None
    turned: bool
    factor: float


@dataclass(frozen=True)
class PairSum(Op):
    """y[..., i, j] = sum over terms of factor * x[..., i, p[i, j]], or of x[..., j, p[j, i]] for one that is turned.

    Inputs are the data of each term, with its indices p behind them where it is `picked`: these are of two axes, shared
    by all that stands in front. Data broadcast to `shape` but for the axis along which is picked. No model has the
    operator; a pass makes it of gathers, transposes, scales and sums.
    """

    kind = "pair_sum"
    shaped = True
    shape: tuple[int, ...]
    picked: tuple[bool, ...]
    turned: tuple[bool, ...]
    multipliers: tuple[float, ...]

    @property
    def terms(self) -> Iterator[PairTerm]:
        at = 0
        for picked, turned, factor in zip(self.picked, self.turned, self.multipliers, strict=True):
            yield PairTerm(at, at + 1 if picked else None, turned, factor)
            at += 1 + picked

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(self.shape) < 2 or not len(self.picked) == len(self.turned) == len(self.multipliers) > 0:
            raise ShapeError(f"terms of {list(self.shape)} are said in part")
        if len(inputs) != len(self.picked) + sum(self.picked):
            terms = f"{len(self.picked)} terms, {sum(self.picked)} of them picked"
            raise ShapeError(f"{terms}, do not have {len(inputs)} inputs")
        for term in self.terms:
            data = inputs[term.data]
            expect_float(data)
            wanted, shape = self.lines(term), data.shape
            if term.indices is not None:
                indices = inputs[term.indices]
                expect_indices(indices)
                if indices.shape != wanted[-2:] or not shape:
                    raise ShapeError(f"indices {list(indices.shape)} pick no {list(wanted[-2:])} of {list(shape)}")
                shape = (*shape[:-1], wanted[-1])
            if broadcast(shape, wanted) != wanted:
                raise ShapeError(f"{list(data.shape)} is no term of {list(self.shape)}")
        return (TensorType(inputs[0].dtype, self.shape),)

    def lines(self, term: PairTerm) -> tuple[int, ...]:
        """The shape of the result as the term's lines have it."""
        *front, rows, columns = self.shape
        return (*front, columns, rows) if term.turned else self.shape

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        total = np.zeros(self.shape, widened(inputs[0]).dtype)
        for term in self.terms:
            x = widened(inputs[term.data])
            if term.indices is not None:
                picks = within(inputs[term.indices], x.shape[-1])
                x = np.take_along_axis(x, np.broadcast_to(picks, (*x.shape[:-2], *picks.shape)), -1)
            lines = np.broadcast_to(x, self.lines(term))
            total = total + np.float32(term.factor) * (np.swapaxes(lines, -1, -2) if term.turned else lines)
        return (narrowed(np.ascontiguousarray(total), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * len(self.picked) * outputs[0].elements
