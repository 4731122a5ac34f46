"""Planes that are pooled along columns and then along rows, by threads that have a run of one in registers: large
windows take no more functions than small ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.pool_sliding import refuse_windows_that_slide
from bolt_build.families.portable.kernels.images.pool_staged import refuse_whole_windows
from bolt_build.families.portable.kernels.images.pool_windows import (
    channels_last,
    pool_header,
    pool_parameters,
    pool_types,
)
from bolt_build.families.portable.kernels.lines.rows import BLOCK
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.targets import Gpu, Target

_LEAST = 5
"""Cells of a window along an axis: an H200 took smaller ones faster in other kernels."""
_WORD_CHANNELS, _SLICES = 8, (8, 16, 24, 32, 40, 48, 64, 96)
"""Channels that are whole words in any type, and parts of channels that are tried."""
_SPAN = 44
"""Elements of a run that a thread has in registers at most."""
_SHARED = 72 << 10
"""Bytes of shared memory of a block: three are on a multiprocessor."""
_PLANES, _STRIPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (8, 12, 16, 24, 32)
"""Whole planes of a block, and rows of results of one plane, that are tried."""
_REGISTERS, _COUNTED = 84, 2**31 - 64
"""Of a thread, and elements that 32 bits count."""


@dataclass(frozen=True)
class Axis:
    """Of `given` elements so many results are `made`: windows of `cells`, `step` apart, the first `pad` outside."""

    given: int
    made: int
    cells: int
    step: int
    pad: int

    def span(self, run: int) -> int:
        """Elements that `run` results are of."""
        return (run - 1) * self.step + self.cells

    def joins(self, run: int) -> int:
        """Functions of two elements that these take."""
        return run * (self.cells - 1) if self.cells - 1 <= 3 * self.step else 2 * self.span(run) + run

    def text(self, run: int) -> str:
        return f"bolt::portable::RunAxis<{self.given}, {self.made}, {self.cells}, {self.step}, {self.pad}, {run}>"


@dataclass(frozen=True)
class PlanesToSeparate:
    """`many` planes of elements of `given` bytes, whose results have `stored`; whether results are averages; and
    channels that lie last, 1 of planes of one."""

    many: int
    high: Axis
    wide: Axis
    given: int
    stored: int
    averages: bool
    channels: int


@dataclass(frozen=True)
class SeparatedTile(NumberTile):
    """A block has `planes` whole planes, or `strip` rows of results of one, and of channels that lie last `slice`; a
    thread `tall` results of a column, and `long` ones of a row."""

    planes: int
    strip: int
    tall: int
    long: int
    slice: int

    def rows_given(self, of: PlanesToSeparate) -> int:
        return of.high.given if self.strip >= of.high.made else of.high.span(self.strip)

    def rows_made(self, of: PlanesToSeparate) -> int:
        return min(self.strip, of.high.made)

    def words(self, of: PlanesToSeparate) -> int:
        """Of the input or of results, whichever are more."""
        given = self.planes * self.rows_given(of) * of.wide.given * self.slice * of.given
        made = self.planes * self.rows_made(of) * of.wide.made * self.slice * of.stored
        return ceil(max(given, made) / 16) + 2

    def shared(self, of: PlanesToSeparate) -> int:
        return 16 * self.words(of) + 4 * self.planes * self.rows_made(of) * (of.wide.given * self.slice | 1)

    def blocks(self, of: PlanesToSeparate) -> int:
        return ceil(of.many / self.planes) * ceil(of.high.made / self.rows_made(of)) * (of.channels // self.slice)


@functools.lru_cache(maxsize=256)
def planes_of(problem: KernelProblem) -> PlanesToSeparate:
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    axes = zip(source.shape[2:], output.shape[2:], op.kernel, op.strides, op.pads_begin, strict=True)
    high, wide = [Axis(*each) for each in axes][-2:]
    averages = isinstance(op, Pool) and op.mode == "average"
    batch, channels, *extents = output.shape
    last = channels_last(problem)
    many, channels = batch * prod(extents[:-2]) * (1 if last else channels), channels if last else 1
    return PlanesToSeparate(
        many, high, wide, source.format.dtype.nbytes, output.format.dtype.nbytes, averages, channels
    )


def _serves(problem: KernelProblem) -> bool:
    """Windows of some size."""
    op = problem.op
    return isinstance(op, Pool | LpPool) and max(op.kernel) >= _LEAST and problem.outputs[0].type.elements > 0


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = problem.op
    assert isinstance(op, Pool | LpPool)
    if len(op.kernel) < 2:
        return "pools rows and columns, and signals have no columns"
    if (reason := refuse_windows_that_slide(problem, gpu)) is not None:
        return reason
    if any(gap != 1 for gap in op.dilations[-2:]):
        return "windows have gaps"
    if (reason := refuse_whole_windows(problem, gpu)) is not None:
        return reason
    of = planes_of(problem)
    if of.channels > 1 and of.channels % _WORD_CHANNELS:
        return Reason("{} channels are no multiple of {}", of.channels, _WORD_CHANNELS)
    if (most := max(of.high.cells, of.wide.cells)) > _SPAN:
        return Reason("windows of {} elements are longer than the {} that a thread holds", most, _SPAN)
    if of.many * of.channels * max(of.high.given * of.wide.given, of.high.made * of.wide.made) > _COUNTED:
        return "elements are counted in 32 bits"
    return None


def _runs(axis: Axis, made: int) -> list[int]:
    """Results of a thread that are tried of `made` ones: few parts that are alike."""
    found = [ceil(made / parts) for parts in range(1, 17)]
    return list(dict.fromkeys(run for run in found if axis.span(run) <= _SPAN))[:3]


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[SeparatedTile]:
    of = planes_of(problem)
    slices = [each for each in _SLICES if of.channels % each == 0] if of.channels > 1 else [1]
    cuts = [(planes, of.high.made) for planes in _PLANES if planes <= of.many and (planes == 1 or of.channels == 1)]
    cuts += [(1, strip) for strip in _STRIPS if strip < of.high.made]
    for planes, strip in cuts:
        for tall in _runs(of.high, strip):
            for long in _runs(of.wide, of.wide.made):
                for each in slices:
                    tile = SeparatedTile(planes, strip, tall, long, each)
                    if tile.shared(of) <= _SHARED and tile.words(of) >= BLOCK // 2:
                        yield tile


def _refuse_tile(problem: KernelProblem, tile: SeparatedTile, gpu: Gpu) -> str | None:
    of = planes_of(problem)
    if tile.planes > 1 and (tile.strip < of.high.made or of.channels > 1):
        return "a block has whole planes, or rows of one"
    if of.channels % tile.slice or (of.channels > 1 and tile.slice % _WORD_CHANNELS):
        return Reason("parts of {} channels are no whole words of {}", tile.slice, of.channels)
    if (most := max(of.high.span(tile.tall), of.wide.span(tile.long))) > _SPAN:
        return Reason("runs of {} elements are longer than the {} that a thread holds", most, _SPAN)
    if (nbytes := tile.shared(of)) > min(_SHARED, gpu.shared_memory):
        return Reason("planes of {} bytes are more than the {} of a block", nbytes, min(_SHARED, gpu.shared_memory))
    return None


_WORD, _LOADED, _CELL, _STORED, _AVERAGED, _ITEM = 6, 2.2, 1.2, 2.5, 4, 24
"""Instructions of a word, of an element that a thread takes of a column and of a row, of a result, of an average's
part, and of a thread's run: counted by hand."""
_ISSUED = 128 * 1.6e9 * 0.6
"""Instructions of threads that a multiprocessor begins in a second."""
_BYTES, _ISSUE, _WAVE, _HIDDEN = 3.0, 0.6, 0.43e-6, 3.4e-6
"""How many times as long as memory takes for its bytes a kernel takes for them, the part of its instructions that adds
to that, seconds of a wave of blocks, and seconds that are hidden: fitted to 32 times of an H200, to a fifth of most."""


_ROOMY, _CROWDED = 48 << 10, 1.15
"""Bytes of shared memory from which on few blocks are on a multiprocessor, and how much longer they took there."""


def _seconds(problem: KernelProblem, tile: SeparatedTile, target: Target) -> float:
    gpu, of = target.gpu, planes_of(problem)
    assert gpu is not None, "asked about GPUs alone"
    blocks, rows = tile.blocks(of), tile.rows_made(of)
    columns = ceil(tile.planes * of.wide.given * tile.slice * ceil(rows / tile.tall) / BLOCK)
    lines = ceil(tile.planes * rows * tile.slice * ceil(of.wide.made / tile.long) / BLOCK)
    own: float = 2 * _WORD * ceil(tile.words(of) / BLOCK)
    own += columns * (_ITEM + _LOADED * of.high.span(tile.tall) + of.high.joins(tile.tall) + tile.tall)
    each = tile.long * (_STORED + _AVERAGED * of.averages)
    own += lines * (_ITEM + _CELL * of.wide.span(tile.long) + of.wide.joins(tile.long) + each)
    resident = max(min(occupancy(BLOCK, _REGISTERS, tile.shared(of), gpu), 3), 1)
    issue = blocks * BLOCK * own / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    waves = ceil(ceil(blocks / gpu.sms) / resident)
    again = tile.rows_given(of) * ceil(of.high.made / rows) / of.high.given
    memory = moved(problem.nbytes * (1 + again) / 2, target)
    whole = _BYTES * memory + _ISSUE * issue + _WAVE * waves - _HIDDEN
    crowded = _CROWDED if tile.shared(of) > _ROOMY else 1.0
    return max(whole * crowded, 2 * memory + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: SeparatedTile, at: StepExpressions) -> StepCode:
    op, of = problem.op, planes_of(problem)
    assert isinstance(op, Pool | LpPool)
    axes = f"{of.high.text(tile.tall)}, {of.wide.text(tile.long)}"
    how = f"{axes}, {tile.planes}, {tile.strip}, {of.channels}, {tile.slice}"
    parameters = pool_parameters(problem, op, at.pitch(0), at.input_pitch(0))
    call = (
        f"bolt::portable::pool_separated<{pool_types(problem)}, {how}>(r, {parameters}, "
        f"{at.inputs[0]}, {at.outputs[0]});"
    )
    headers = tuple(dict.fromkeys((pool_header(problem), "bolt_portable/cuda/images/pool_separated.h")))
    return StepCode(headers, None, "", call)


FORM: Form[SeparatedTile] = Form(
    "separated", _serves, _refuse, _tiles, _refuse_tile, _seconds, SeparatedTile.read, _emit
)
