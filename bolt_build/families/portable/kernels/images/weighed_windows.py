"""Windows of images times filters that are data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.geometry import strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Layouts, Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.images.weighed_windows import WeighedWindows
from bolt_build.targets import Target, target_named

_LANES, _EACH = (8, 4, 3, 2, 1), (4, 1)
_PLANES = 4
"""Channels of an image in planes that a thread has at most, where they share a filter."""
_ITEM, _TAP, _FACTOR, _PIXEL, _LANE = 120, 13, 20, 2, 8
"""What an item, each tap, each factor that is loaded, each pixel and each of its lanes take of a multiprocessor, in
instructions of a lane at the rate below: factors that lie apart take it longest."""
_WAITS, _FACTOR_WAITS, _PIXEL_WAITS = 0.063e-6, 0.047e-6, 0.113e-6
"""Seconds that a thread waits for each tap, and for each factor and pixel of it. All of these are fitted to 17 kernels
on an H200 that counted in 64 bits."""
_RATE, _THREADS = 2.0e13, 132 * 1024
"""Instructions of lanes in a second, and threads at once, of an H200, whose best tile is offered everywhere."""


@dataclass(frozen=True)
class WindowTile(NumberTile):
    """A thread has `lanes` channels of `each` neighbours of a row."""

    lanes: int
    each: int


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or refuse_stages(problem, axis=1)


def _layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images and filters row-major or channels-last; what stages read lies as the image does."""
    found = []
    for layout, filters in product(Layout, Layout):
        others = (layout if each.rank == output.rank else Layout.ROW for each in inputs[2:])
        found.append(((layout, filters, *others), layout))
    return tuple(found)


def _own(problem: KernelProblem) -> tuple[Operand, Operand]:
    """The image and the filters."""
    image, filters = (problem.inputs[index] for index in op_operands(problem))
    return image, filters


def _usual(problem: KernelProblem) -> WindowTile:
    """The tile that is predicted fastest."""
    tiles = (WindowTile(lanes, each) for lanes, each in product(_LANES, _EACH))
    legal = (tile for tile in tiles if _refuse_tile(problem, tile) is None)
    return min(legal, key=lambda tile: _computing(problem, tile))


def _of_images(filters: Operand) -> bool:
    """Whether all pixels of an image have the same filters."""
    return filters.shape[2:] == (1, 1)


def _refuse_tile(problem: KernelProblem, tile: WindowTile) -> str | None:
    x, filters = _own(problem)
    if tile.lanes not in _LANES or tile.each not in _EACH:
        return "a thread has 1, 2, 3, 4 or 8 channels, of one pixel or of 4"
    if tile.each > 1 and not _of_images(filters):
        return "neighbours have filters of their own"
    if tile.lanes > 1 and not _are_neighbours(problem):
        planes = tile.lanes == x.shape[1] <= _PLANES and _has_one(problem, tile.lanes)
        return None if planes else "words are of images whose channels lie last, or of all planes that share a filter"
    if tile.lanes == 3:
        return "a word has 2, 4 or 8 channels"
    return Reason("{} channels are no multiple of {}", x.shape[1], tile.lanes) if x.shape[1] % tile.lanes else None


def _are_neighbours(problem: KernelProblem) -> bool:
    """Whether channels lie side by side."""
    x, output = _own(problem)[0], problem.outputs[0]
    return x.format.layout is output.format.layout is Layout.CHANNELS_LAST


def _has_one(problem: KernelProblem, lanes: int) -> bool:
    """Whether the channels of a word have the same filter."""
    op, filters = problem.op, _own(problem)[1]
    assert isinstance(op, WeighedWindows)
    return op.shared % lanes == 0 or filters.shape[1] == op.taps


def _has_words(problem: KernelProblem, lanes: int) -> bool:
    """Whether a tap's elements of the channels of a word lie side by side."""
    op, filters = problem.op, _own(problem)[1]
    assert isinstance(op, WeighedWindows)
    sets = filters.shape[1] // op.taps
    alone = op.turned and op.shared == 1 and sets % lanes == 0 and not _has_one(problem, lanes)
    return alone and strides(filters)[1] == 1 and _are_neighbours(problem)


def _emit(problem: KernelProblem, tile: WindowTile | None, at: StepExpressions) -> StepCode:
    op, (x, filters), output = problem.op, _own(problem), problem.outputs[0]
    assert isinstance(op, WeighedWindows)
    tile = tile or _usual(problem)
    apart = [step if extent > 1 else 0 for step, extent in zip(strides(filters), filters.shape, strict=True)]
    sets = filters.shape[1] // op.taps
    of_set, of_tap = (apart[1], sets * apart[1]) if op.turned else (op.taps * apart[1], apart[1])
    names = ("image", "channel", "row", "column")
    parameters = struct(
        "bolt::portable::WeighedWindows",
        **dict(zip(("images", "channels", "rows", "columns"), output.shape, strict=True)),
        height=x.shape[2], width=x.shape[3],
        kernel_rows=op.kernel[0], kernel_columns=op.kernel[1], down=op.strides[0], across=op.strides[1],
        apart_rows=op.dilations[0], apart_columns=op.dilations[1], top=op.pads_begin[0], left=op.pads_begin[1],
        shared=op.shared, sets=sets,
        **{f"in_{name}": step for name, step in zip(names, strides(x), strict=True)},
        filter_image=apart[0], filter_set=of_set, filter_tap=of_tap, filter_row=apart[2], filter_column=apart[3],
        **{f"out_{name}": step for name, step in zip(names, strides(output), strict=True)},
    )  # fmt: skip
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in (x, filters, output))
    neighbours = tile.lanes == 1 or _are_neighbours(problem)
    flags = (_has_one(problem, tile.lanes), neighbours, _has_words(problem, tile.lanes))
    how = f"{tile.lanes}, {tile.each}, {', '.join(map(boolean, flags))}, {types}"
    given = ", ".join(at.inputs[index] for index in op_operands(problem))
    call = f"bolt::portable::weighed_windows<{how}>(r, {parameters}, {given}, {at.outputs[0]}, {chain(problem, at)});"
    return StepCode(("bolt_portable/weighed_windows.h",), None, "", call)


def _computing(problem: KernelProblem, tile: WindowTile) -> float:
    """Seconds of an H200: what its threads issue, or wait for."""
    op, (images, channels, rows, columns) = problem.op, problem.outputs[0].shape
    assert isinstance(op, WeighedWindows)
    factors = 1 if _has_one(problem, tile.lanes) or _has_words(problem, tile.lanes) else tile.lanes
    items = images * rows * ceil(columns / tile.each) * (channels // tile.lanes)
    tap = _TAP + _FACTOR * factors + tile.each * (_PIXEL + _LANE * tile.lanes)
    waits = op.taps * (_WAITS + _FACTOR_WAITS * factors + _PIXEL_WAITS * tile.each)
    return max(items * (_ITEM + op.taps * tap) / _RATE, waits * ceil(items / _THREADS))


def _seconds(problem: KernelProblem, target: Target) -> float:
    """What threads issue or wait for, or what memory moves."""
    slower = target_named("h200").rate("fp32") / target.rate("fp32")
    computing = _computing(problem, _usual(problem)) * max(slower, 1.0)
    return max(computing, moved(problem.nbytes, target)) + OVERLAPPED * target.launch_seconds


_PLAIN = Plain(_usual, WindowTile.read, _refuse_tile, _emit)
RULES = (
    Rule(
        WeighedWindows, _refuse, _PLAIN.emit_usual, lambda problem: 0.02, gpu_seconds=_seconds, layouts=_layouts,
        plain=_PLAIN,
    ),
)  # fmt: skip
