"""Matrix products of factors that are read where they lie, and stored where they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.rearrange import axes_of
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails

Move = tuple[tuple[int, ...], ...]
"""Shape of a reshape, order of a transpose of that, shape of a reshape of that."""


@dataclass(frozen=True)
class PlacedMatMul(Op):
    """c = a b for every matrix of a batch: `left` makes a [..., M, K] of input 0, `right` b [..., K, N] of input 1, and
    `made` the output of c [..., M, N], to which input 2 [N] is added where there is one.

    Each is a reshape, a transpose and a reshape: heads that lie side by side in a row, or pixels of an image, become
    matrices without being moved. No model has the operator; a pass makes it of products and what moves their factors.
    """

    kind = "placed_matmul"
    factors = 2
    shaped = True
    left: Move
    right: Move
    made: Move

    @property
    def product(self) -> tuple[int, ...]:
        """The shape of c. Raises ShapeError."""
        a, b = self.left[2], self.right[2]
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            raise ShapeError(f"factors {list(a)} and {list(b)} cannot be multiplied")
        return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2, 3)
        expect_same_dtype(inputs)
        if len(inputs) == 3 and inputs[2].shape != self.product[-1:]:
            raise ShapeError(f"bias {list(inputs[2].shape)} must be [{self.product[-1]}], one a column")
        for t, move in zip(inputs, (self.left, self.right), strict=False):
            _check(t.shape, move)
        _check(self.product, self.made)
        return (TensorType(inputs[0].dtype, self.made[2]),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (_moved(widened(x), move) for x, move in zip(inputs, (self.left, self.right), strict=False))
        c = a @ b + (widened(inputs[2]) if len(inputs) == 3 else 0)
        return (narrowed(np.ascontiguousarray(_moved(c, self.made)), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * self.left[2][-1]

    def tails(self, node: Node, at: Padded) -> Tails:
        """Of the outermost axis alone, where that stays what it is."""
        shape = at.shape(node.outputs[0])
        found = {}
        for name, move in zip(node.inputs, (self.left, self.right), strict=False):
            for step in at.tails(name):
                outer = at.shape(name)[0]
                kept = all(each[1][0] == 0 and each[0][0] == each[2][0] == outer for each in (move, self.made))
                if at.axis(name, step) or not kept:
                    raise PaddingReaches("multiplies matrices that lie along it")
                found[at.moved(name, step, shape, 0)] = ANYTHING
        if any(at.tails(name) for name in node.inputs[2:]):
            raise PaddingReaches("adds it to a product that lies elsewhere")
        return found


def _check(shape: tuple[int, ...], move: Move) -> None:
    """Raises ShapeError where the move is none of a tensor of this shape, or cuts through its axes otherwise than in
    whole parts."""
    split, perm, whole = move
    if sorted(perm) != list(range(len(split))) or prod(split) != prod(shape) or prod(whole) != prod(shape):
        raise ShapeError(f"{list(shape)} cannot become {list(split)} in the order {list(perm)} and {list(whole)}")
    if axes_of(shape, split) is None or axes_of(whole, tuple(split[axis] for axis in perm)) is None:
        raise ShapeError(f"{list(split)} neither cuts axes of {list(shape)} nor makes {list(whole)}")


def _moved(x: Array, move: Move) -> Array:
    split, perm, whole = move
    return x.reshape(split).transpose(perm).reshape(whole)


@dataclass(frozen=True)
class Walk:
    """A loop of a product with the steps that each tensor takes in it, 0 where it stays: `sides` of a, b and c."""

    extent: int
    sides: tuple[int, int, int]


@dataclass(frozen=True)
class Walks:
    """How a product walks through memory: loops over its matrices, over rows, columns and depth of each."""

    batch: tuple[Walk, ...]
    rows: Walk
    columns: Walk
    depth: Walk

    @property
    def turned(self) -> Walks:
        """The same with both factors exchanged, whose products are the transposed ones."""
        batch = tuple(map(_turned, self.batch))
        return Walks(batch, _turned(self.columns), _turned(self.rows), _turned(self.depth))

    @property
    def neighbours(self) -> bool:
        """Whether elements are neighbours along rows or columns of the product, and along one of a factor's two."""
        a, b = ((lines, self.depth) for lines in (self.rows, self.columns))
        pairs = ((0, *a), (1, *b), (2, self.rows, self.columns))
        return all(any(walk.extent == 1 or walk.sides[side] == 1 for walk in both) for side, *both in pairs)


def walks(op: PlacedMatMul, shapes: Sequence[tuple[int, ...]], steps: Sequence[tuple[int, ...]]) -> Walks | None:
    """For inputs 0 and 1 and the output, of these shapes and steps between neighbours along each axis; None where rows,
    columns or depth of one are no single loop, or matrices of both are counted in other parts."""
    a, b = (
        _axes(shape, own, move) for shape, own, move in zip(shapes[:2], steps[:2], (op.left, op.right), strict=True)
    )
    c = _made_axes(op, shapes[2], steps[2])
    if a is None or b is None or c is None:
        return None
    matrices = len(c) - 2
    batch = list[Walk]()
    for axis in range(matrices):
        of_axis = [side[axis - matrices - 2] if len(side) >= matrices + 2 - axis else [(1, 0)] for side in (a, b, c)]
        found = _together(of_axis)
        if found is None:
            return None
        batch += found
    lines = [_single(axis) for axis in (a[-2], a[-1], b[-2], b[-1], c[-2], c[-1])]
    if any(line is None for line in lines):
        return None
    (m, a_row), (k, a_column), (_, b_row), (n, b_column), (_, c_row), (_, c_column) = (each or (1, 0) for each in lines)
    return Walks(
        _merged(batch), Walk(m, (a_row, 0, c_row)), Walk(n, (0, b_column, c_column)), Walk(k, (a_column, b_row, 0))
    )


def _turned(walk: Walk) -> Walk:
    a, b, c = walk.sides
    return Walk(walk.extent, (b, a, c))


_Axis = list[tuple[int, int]]
"""Extents and steps of the loops that an axis is made of, the outermost first."""


def _parts(shape: tuple[int, ...], steps: tuple[int, ...], split: tuple[int, ...]) -> list[int] | None:
    """The step along each axis of `split`."""
    cut = axes_of(shape, split)
    if cut is None:
        return None
    found = [0] * len(split)
    for step, group in zip(steps, cut, strict=True):
        for part in reversed(group):
            found[part] = step
            step *= split[part]
    return found


def _axes(shape: tuple[int, ...], steps: tuple[int, ...], move: Move) -> list[_Axis] | None:
    """Of each axis that the move makes of a tensor: its loops."""
    split, perm, whole = move
    found = _parts(shape, steps, split)
    joined = axes_of(whole, tuple(split[part] for part in perm))
    if found is None or joined is None:
        return None
    return [[(split[perm[at]], found[perm[at]]) for at in group] for group in joined]


def moved_loops(shape: tuple[int, ...], steps: tuple[int, ...], move: Move) -> list[tuple[int, int]] | None:
    """Extent and step of each axis that the move makes of a tensor of this shape and these steps between neighbours;
    None where one is no single loop."""
    axes = _axes(shape, steps, move)
    found = [] if axes is None else [_single(axis) for axis in axes]
    loops = [loop for loop in found if loop is not None]
    return loops if axes is not None and len(loops) == len(found) else None


def _made_axes(op: PlacedMatMul, shape: tuple[int, ...], steps: tuple[int, ...]) -> list[_Axis] | None:
    """Of each axis of the product: its loops, with steps in the output."""
    split, perm, _ = op.made
    there = _parts(shape, steps, tuple(split[part] for part in perm))
    cut = axes_of(op.product, split)
    if there is None or cut is None:
        return None
    return [[(split[part], there[perm.index(part)]) for part in group] for group in cut]


def _single(axis: _Axis) -> tuple[int, int] | None:
    """The axis as one loop; None where it is none."""
    found = (1, 0)
    for extent, step in axis:
        if extent == 1:
            continue
        if found[0] != 1 and found[1] != extent * step:
            return None
        found = (found[0] * extent, step)
    return found


def _together(sides: Sequence[_Axis]) -> list[Walk] | None:
    """Loops of all tensors over one axis, cut where one of them is; of an extent of 1 one stays where it is."""
    size = max(prod(extent for extent, _ in side) for side in sides)
    bounds = {1, size}
    for side in sides:
        inner = 1
        for extent, _ in reversed(side):
            inner *= extent
            bounds.add(inner)
    ordered = sorted(bounds)
    if any(outer % inner for inner, outer in pairwise(ordered)):
        return None
    found = [
        Walk(outer // inner, tuple(_step(side, inner) for side in sides))  # type: ignore[arg-type]
        for inner, outer in pairwise(ordered)
    ]
    return found[::-1]


def _step(side: _Axis, inner: int) -> int:
    """The step of a tensor for each `inner` elements of an axis."""
    size = 1
    for extent, step in reversed(side):
        if inner < size * extent:
            return step * (inner // size)
        size *= extent
    return 0


def _merged(batch: Sequence[Walk]) -> tuple[Walk, ...]:
    """With as few loops as there can be."""
    kept = list[Walk]()
    for walk in batch:
        if walk.extent == 1:
            continue
        outer = kept[-1] if kept else None
        steps = zip(() if outer is None else outer.sides, walk.sides, strict=False)
        if outer is not None and all(one == walk.extent * other for one, other in steps):
            kept[-1] = Walk(outer.extent * walk.extent, walk.sides)
        else:
            kept.append(walk)
    return tuple(kept)
