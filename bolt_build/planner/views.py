"""Tensors as strided views: what reshapes, transposes, slices and expansions make of the tensor that they begin with.

An axis of a view is a list of digits, the outermost first. Each counts along one axis of the source, in steps. So
`reshape` of [2,5,12] to [2,5,3,4] cuts the digit of 12 in two, and whatever moves elements only moves digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Identity, Pad, Reshape, Slice, Transpose
from bolt_build.planner.rewrite import GraphEditor

REPEATED = -1
"""The axis of a digit that repeats what is there."""


@dataclass(frozen=True)
class Digit:
    """Counts from 0 to `extent`, each time `step` further along `axis` of the source. No extent is 1."""

    extent: int
    axis: int
    step: int


Axis = tuple[Digit, ...]


@dataclass(frozen=True, eq=False)
class View:
    """A tensor whose axes are `axes`, and whose first element stands at `begin` of the value `source`."""

    source: str
    begin: tuple[int, ...]
    axes: tuple[Axis, ...]

    def __eq__(self, other: object) -> bool:
        """Whether the elements are the same, however their axes are cut."""
        if not isinstance(other, View):
            return NotImplemented
        own, others = ((view.source, view.begin, tuple(map(uncut, view.axes))) for view in (self, other))
        return own == others

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent(axis) for axis in self.axes)

    def moved(self, op: Op, shape: tuple[int, ...]) -> View | None:
        """What `op` makes of the view, of this shape; None where that is no view or `op` does more than move."""
        match op:
            case Identity():
                return self
            case Transpose(perm):
                return replace(self, axes=tuple(self.axes[axis] for axis in perm))
            case Reshape():
                axes = grouped((digit for axis in self.axes for digit in axis), shape)
                return None if axes is None else replace(self, axes=axes)
            case Expand():
                return replace(self, axes=_expanded(self.axes, shape))
            case Pad() if repeats(op, self.shape):
                times = (size // extent(axis) for axis, size in zip(self.axes, shape, strict=True))
                return replace(self, axes=tuple((*_again(n), *axis) for n, axis in zip(times, self.axes, strict=True)))
            case Slice():
                return self._sliced(op)
        return None

    def _sliced(self, op: Slice) -> View | None:
        begin, axes = list(self.begin), []
        for axis, first, count, step in zip(self.axes, op.begin, op.count, op.step, strict=True):
            if (first, count, step) == (0, extent(axis), 1):
                axes.append(axis)
            elif count == 1:
                for digit in reversed(axis):
                    _advance(begin, digit, first % digit.extent)
                    first //= digit.extent
                axes.append(())
            elif len(axis) == 1 and count:
                _advance(begin, axis[0], first)
                axes.append((Digit(count, axis[0].axis, axis[0].step * step),))
            else:
                return None
        return View(self.source, tuple(begin), tuple(axes))


def extent(axis: Iterable[Digit]) -> int:
    return prod(digit.extent for digit in axis)


def whole(editor: GraphEditor, value: str) -> View:
    """The value itself."""
    shape = editor.type(value).shape
    axes = tuple((Digit(size, axis, 1),) if size != 1 else () for axis, size in enumerate(shape))
    return View(value, (0,) * len(shape), axes)


def grouped(digits: Iterable[Digit], shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """The digits as axes of these extents, cut where an extent ends inside of one; None where two would have to become
    one, and where there is nothing to count."""
    waiting, axes = list(digits)[::-1], []
    for size in shape:
        axis: list[Digit] = []
        while size != 1:
            if not waiting:
                return None
            digit = waiting.pop()
            if not size or not digit.extent:
                return None
            if size % digit.extent == 0:
                axis.append(digit)
                size //= digit.extent
            elif digit.extent % size == 0:
                rest = digit.extent // size
                axis.append(Digit(size, digit.axis, digit.step * rest))
                waiting.append(Digit(rest, digit.axis, digit.step))
                size = 1
            else:
                return None
        axes.append(tuple(axis))
    return None if waiting else tuple(axes)


def step_back(editor: GraphEditor, node: Node) -> Op | None:
    """What the node does to its first input if it only moves elements: a slice in the place of a gather whose only
    index is a number."""
    if node.epilogue:
        return None
    if isinstance(node.op, Reshape | Transpose | Slice | Expand | Identity):
        return node.op
    if isinstance(node.op, Pad) and repeats(node.op, editor.type(node.inputs[0]).shape):
        return node.op
    if isinstance(node.op, Gather):
        index, shape = editor.constant(node.inputs[1]), editor.type(node.inputs[0]).shape
        if index is None or index.size != 1:
            return None
        at = int(index.reshape(-1)[0]) % shape[node.op.axis]
        count = tuple(1 if axis == node.op.axis else size for axis, size in enumerate(shape))
        return Slice(tuple(at if axis == node.op.axis else 0 for axis in range(len(shape))), count, (1,) * len(shape))
    return None


def repeats(op: Pad, shape: tuple[int, ...]) -> bool:
    """Whether the padding repeats a tensor of this shape as a whole, once or several times along each axis."""
    whole_times = all(size and more % size == 0 for size, more in zip(shape, op.end, strict=True))
    return op.mode == "wrap" and not any(op.begin) and min(op.end, default=0) >= 0 and whole_times


def made_of(sizes: tuple[int, ...], view: View, groups: Sequence[Sequence[Digit]]) -> tuple[Op, ...] | None:
    """Operators, one behind the other, that make of the view's source, of shape `sizes`, a tensor with these groups of
    digits as axes; None where digits repeat, or are no parts of each axis of the source, or of runs that it is cut in.
    """
    digits = [digit for group in groups for digit in group]
    if any(digit.axis == REPEATED for digit in digits):
        return None
    kept: list[Digit] = []
    cuts: list[_Cut] = []
    for axis, size in enumerate(sizes):
        own = sorted((digit for digit in digits if digit.axis == axis), key=lambda digit: -digit.step)
        found = _cut(size, view.begin[axis], own)
        if found is None:
            return None
        cuts += found
        kept += own
    ops: list[Op] = []
    begin, count, cut = zip(*cuts, strict=True) if cuts else ((), (), ())
    if cut != sizes:
        ops.append(Reshape(cut))
    if count != cut:
        ops.append(Slice(begin, count, (1,) * len(cut)))
    blocks = _blocks(kept, digits)
    shape = tuple(extent(block) for block in blocks)
    places = sorted(range(len(blocks)), key=lambda index: digits.index(blocks[index][0]))
    if places != list(range(len(blocks))):
        if shape != count:
            ops.append(Reshape(shape))
        ops.append(Transpose(tuple(places)))
        shape = tuple(shape[place] for place in places)
    else:
        shape = count
    wanted = tuple(extent(group) for group in groups)
    if wanted != shape:
        ops.append(Reshape(wanted))
    return tuple(ops)


_Cut = tuple[int, int, int]
"""Of an axis: where a slice of it begins, how long that is, and the axis."""


def _cut(size: int, begin: int, digits: Sequence[Digit]) -> list[_Cut] | None:
    """The axis whole, or cut in runs of one length of which the digits, the outermost first, take a part each: for
    example the queries of every head, where those of a head lie beside its keys. None where they are no such parts."""
    inner, step, run = 1, 1, size
    for digit in reversed(digits):
        if digit.step != step:
            if run != size or digit.step % step or size % digit.step:
                return None
            inner, step, run = step, digit.step, digit.step
        step *= digit.extent
    if run == size:
        return [(begin, step, size)] if begin + step <= size else None
    outer, count = begin // run, step // run
    if begin % run + inner > run or outer + count > size // run:
        return None
    return [(outer, count, size // run), (begin % run, inner, run)]


def _blocks(stored: Sequence[Digit], wanted: Sequence[Digit]) -> list[list[Digit]]:
    """The digits in the order in which they are stored, those together that stay neighbours."""
    follows = {wanted[index]: wanted[index + 1] for index in range(len(wanted) - 1)}
    blocks: list[list[Digit]] = []
    for digit in stored:
        if blocks and follows.get(blocks[-1][-1]) == digit:
            blocks[-1].append(digit)
        else:
            blocks.append([digit])
    return blocks


def uncut(axis: Axis) -> Axis:
    """The axis with as few digits as count the same elements."""
    digits: list[Digit] = []
    for digit in axis:
        outer = digits[-1] if digits else None
        if outer is not None and outer.axis == digit.axis and outer.step == digit.step * digit.extent:
            digits[-1] = Digit(outer.extent * digit.extent, digit.axis, digit.step)
        else:
            digits.append(digit)
    return tuple(digits)


def _expanded(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> tuple[Axis, ...]:
    old: tuple[Axis, ...] = ((),) * (len(shape) - len(axes)) + axes
    return tuple(axis or _again(size) for axis, size in zip(old, shape, strict=True))


def _again(times: int) -> Axis:
    return (Digit(times, REPEATED, 0),) if times != 1 else ()


def _advance(begin: list[int], digit: Digit, count: int) -> None:
    if digit.axis != REPEATED:
        begin[digit.axis] += digit.step * count
