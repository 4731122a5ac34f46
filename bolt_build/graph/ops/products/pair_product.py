"""Products of rows with rows of weights that every pair of a row and a column picks for itself: relative positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.moves.rearrange import axes_of
from bolt_build.graph.ops.operands import broadcast, expect_float, expect_indices
from bolt_build.graph.ops.products.placed_matmul import Move

LINES, PLACES = 16, 64
"""Of a group, whose indices are counted from the least of them."""
TERMS = 2
"""Of a sum, at most."""


@dataclass(frozen=True)
class PairFactors:
    """One term: which inputs are its rows, the weights, the least index of each group, and what is added to that; how
    its rows lie. Lines are rows of the result, columns where it is `turned`."""

    rows: int
    weights: int
    least: int
    more: int
    move: Move
    turned: bool
    factor: float


@dataclass(frozen=True)
class PairProduct(Op):
    """y[..., i, j] = sum over terms of factor * x[..., i, :] . w[..., p, :], or of x[..., j, :] . w[..., p, :] for one
    that is turned, where p = least[line // 16, place // 64] + more[i, j].

    Inputs are of each term rows, of which `lying` makes x [..., lines, depth], and weights w [..., positions, depth],
    which broadcast to the axes in front; then of each the least indices and, in bytes, what is more. There are two
    terms at most. No model has the operator; a pass makes it of products of which constant indices pick.
    """

    kind = "pair_product"
    factors = 2 * TERMS
    shaped = True
    shape: tuple[int, ...]
    lying: tuple[Move, ...]
    turned: tuple[bool, ...]
    multipliers: tuple[float, ...]

    @property
    def terms(self) -> Iterator[PairFactors]:
        for number, (move, turned, factor) in enumerate(zip(self.lying, self.turned, self.multipliers, strict=True)):
            first, picks = 2 * number, 2 * (len(self.lying) + number)
            yield PairFactors(first, first + 1, picks, picks + 1, move, turned, factor)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(self.shape) < 2 or not TERMS >= len(self.lying) == len(self.turned) == len(self.multipliers) > 0:
            raise ShapeError(f"terms of {list(self.shape)} are said in part")
        if len(inputs) != 4 * len(self.lying):
            raise ShapeError(f"{len(self.lying)} terms do not have {len(inputs)} inputs")
        for term in self.terms:
            self._check(term, inputs)
        return (TensorType(inputs[0].dtype, self.shape),)

    def _check(self, term: PairFactors, inputs: Sequence[TensorType]) -> None:
        rows, weights, least, more = (inputs[index] for index in (term.rows, term.weights, term.least, term.more))
        *front, lines, places = self.lines(term)
        split, perm, whole = term.move
        for each in (rows, weights):
            expect_float(each)
        expect_indices(least)
        if more.dtype is not DType.U8:
            raise ShapeError(f"what indices are more is bytes, not {more.dtype.value}")
        ordered = sorted(perm) == list(range(len(split))) and prod(rows.shape) == prod(split) == prod(whole)
        joined = axes_of(whole, tuple(split[axis] for axis in perm)) if ordered else None
        if joined is None or axes_of(rows.shape, split) is None or whole[:-1] != (*front, lines):
            raise ShapeError(f"{list(rows.shape)} are no rows of {list(self.shape)}")
        if weights.rank < 2 or weights.shape[-1] != whole[-1]:
            raise ShapeError(f"weights {list(weights.shape)} are not as deep as {list(whole)}")
        if broadcast(weights.shape[:-2], tuple(front)) != tuple(front):
            raise ShapeError(f"weights {list(weights.shape)} do not broadcast to {front}")
        if least.shape != groups(lines, places) or more.shape != self.shape[-2:]:
            raise ShapeError(f"indices {list(least.shape)} and {list(more.shape)} are not those of {list(self.shape)}")

    def lines(self, term: PairFactors) -> tuple[int, ...]:
        """The shape of the result as the term's lines have it."""
        *front, rows, columns = self.shape
        return (*front, columns, rows) if term.turned else self.shape

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        total = np.zeros(self.shape, widened(inputs[0]).dtype)
        for term in self.terms:
            split, perm, whole = term.move
            x = widened(inputs[term.rows]).reshape(split).transpose(perm).reshape(whole)
            products = x @ np.swapaxes(widened(inputs[term.weights]), -1, -2)
            lines, places = self.lines(term)[-2:]
            least = inputs[term.least].repeat(LINES, 0)[:lines].repeat(PLACES, 1)[:, :places]
            more = inputs[term.more].astype(np.int64)
            picks = within(least + (more.T if term.turned else more), products.shape[-1])
            found = np.take_along_axis(products, np.broadcast_to(picks, (*products.shape[:-2], *picks.shape)), -1)
            total = total + np.float32(term.factor) * (np.swapaxes(found, -1, -2) if term.turned else found)
        return (narrowed(np.ascontiguousarray(total), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Of each row with the weights that its pairs name, once."""
        found = 0
        for term in self.terms:
            *front, lines, places = self.lines(term)
            *_, positions, depth = inputs[term.weights].shape
            found += 2 * prod(front) * lines * depth * min(positions, places)
        return found


def groups(lines: int, places: int) -> tuple[int, int]:
    """How many groups of lines and of places there are."""
    return -(-lines // LINES), -(-places // PLACES)
