"""Images made larger and smaller in one step. On GPUs a thread slides down an image: it interpolates each row of the
input along its columns once, and has as many such rows in registers as a result is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.banded_planes import FORM as BANDED
from bolt_build.families.portable.kernels.images.half_planes import FORM as HALF_PLANES
from bolt_build.families.portable.kernels.images.pool_windows import channels_last
from bolt_build.families.portable.kernels.images.resample_images import (
    Images,
    are_pixels,
    arguments,
    images_of,
    stores_wider,
)
from bolt_build.families.portable.kernels.images.resample_rows import FORM as ROWS
from bolt_build.families.portable.kernels.images.resample_staged import FORM as STAGED
from bolt_build.families.portable.kernels.images.resample_staged import JOINED, STREAMED
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.targets import Gpu, Target

_HEADER = ("bolt_portable/resample.h",)
_WIDTHS = (LANES, 4, 2, 1)
_LOAD_BYTES = 16
"""Of an access at most."""
_ROOM = 128
"""Registers that rows, what is on its way, and the tables of columns may take of a thread's 255."""
_PIXELS, _NEAR = (1, 2, 4), 24
"""Pixels of a row that a thread may have, and accesses beside each other that are to be neighbours at least."""
_DOWNS = (1, 2, 4, 8, 12, 16, 24, 32, 64)
"""Results below each other that a thread may have."""


def _refuse(problem: KernelProblem) -> str | None:
    op, (data, *tables) = problem.op, problem.inputs
    assert isinstance(op, Resample)
    if not all(table.constant for table in tables):
        return "resamples with tables that are known when the engine is built"
    made = problem.outputs[0].format
    if data.format != made and not (stores_wider(problem) and data.format.layout is made.layout):
        return "resamples only within one element type and layout, or planes of half precision to fp32"
    if channels_last(problem):
        order = memory_axes(len(data.shape), data.format.layout)
        if any(order.index(one) + 1 != order.index(other) for one, other in pairwise(op.axes)):
            return "resamples axes whose elements lie beside each other"
        if 1 in op.axes:
            return "resamples channels row-major"
    alone = KernelProblem(op, (data,), problem.outputs, problem.epilogue, problem.accumulate, problem.target)
    return no_epilogue(problem) or computed_only(alone)


@dataclass(frozen=True)
class ResampleTile(NumberTile):
    """A thread has `lanes` neighbouring elements of `pixels` pixels in each of `down` rows, and asks for up to `step`
    rows of the input at once."""

    SETTINGS = ("down",)

    lanes: int
    pixels: int
    step: int
    down: int

    def loads(self, images: Images) -> int:
        """Of a thread for a row of the input."""
        return max(images.columns.taps, 1) * self.pixels

    def registers(self, images: Images) -> int:
        """Rows that are held, what is on its way, and where and with which weights a row is read."""
        loads, height = self.loads(images), max(images.rows.taps, 1)
        return height * self.lanes * self.pixels + self.step * loads * ceil(self.lanes * images.nbytes / 4) + 2 * loads

    def strips(self, images: Images) -> int:
        return ceil(images.rows.made / self.down)

    def threads(self, images: Images) -> int:
        across = ceil(images.columns.made / self.pixels) * (images.inner // self.lanes)
        return images.outer * self.strips(images) * across


def _tiles(images: Images) -> Iterator[ResampleTile]:
    """Of eight elements at most: more would leave a multiprocessor few threads."""
    widths = (lanes for lanes in _WIDTHS if images.inner % lanes == 0 and lanes * images.nbytes <= _LOAD_BYTES)
    downs = sorted({ceil(images.rows.made / ceil(images.rows.made / down)) for down in _DOWNS})
    for lanes in widths:
        groups = images.inner // lanes
        for pixels in _PIXELS:
            if pixels > 1 and (lanes * pixels > LANES or images.columns.made * groups < _NEAR * pixels):
                continue
            for down in downs:
                yield ResampleTile(lanes, pixels, images.rows.step, down)


def refuse_tile(tile: ResampleTile, images: Images, gpu: Gpu) -> str | None:
    """Why no kernel resamples so on this GPU, None where one does."""
    if tile.lanes not in _WIDTHS or tile.lanes * images.nbytes > _LOAD_BYTES:
        return Reason("there are kernels of 1, 2, 4 or 8 neighbours, of {} bytes at most", _LOAD_BYTES)
    if tile.pixels not in _PIXELS:
        return "there are kernels of 1, 2 or 4 pixels of a row"
    if images.inner % tile.lanes:
        what = "{} neighbours are no multiple of the {} that a thread loads at once"
        return Reason(what, images.inner, tile.lanes)
    if not 1 <= tile.step <= max(images.rows.taps, 1):
        what = "asks for {} rows of the input at once, of which a result has {}"
        return Reason(what, tile.step, max(images.rows.taps, 1))
    if not 1 <= tile.down <= images.rows.made:
        return Reason("a thread has {} results below each other, an image {}", tile.down, images.rows.made)
    if (needed := tile.registers(images)) > _ROOM:
        return Reason("takes {} registers of a thread for rows and tables, which has {} for these", needed, _ROOM)
    return None


_REACHED = 0.97
"""The part of a GPU's bandwidth at which bytes move. This and the following are what kernels on an H200 behave
like."""
_BEGIN, _ROW, _LOAD, _RESULT, _STORE = 190, 7.5, 24, 60, 17
"""Instructions of a thread for its place and its tables (six more for each load), of a row of the input, of a load
beside its elements, of a row of results, and of a store beside its elements."""
_ISSUED = 0.57
"""What an instruction takes of the rate of multiply-adds."""
_WAIT = 0.035e-6
"""Seconds by which a row that is on its way delays all others, in a full wave of threads. Those of a thread's first
result come together."""
_TAIL, _FEWEST = 0.34, 0.1
"""The part of a wave for which the last threads leave others without work, and the waves below which that grows no
more."""
_BESIDE = 0.34
"""The part of what takes less time that is not hidden behind what takes longest."""
_OTHERS, _BLOCK = 28, 256
"""Registers of a thread for all else, and threads of a block."""


def _instructions(tile: ResampleTile, images: Images) -> float:
    """Of a thread."""
    loads, height, elements = tile.loads(images), max(images.rows.taps, 1), tile.lanes * tile.pixels
    results, given = _of_a_strip(tile, images)
    of_row = _ROW + loads * (_LOAD + 2 * tile.lanes) + (height - 1) * elements
    of_result = _RESULT + _STORE * tile.pixels + (images.rows.taps + 1) * elements
    return _BEGIN + 6 * loads + given * of_row + results * of_result


def _of_a_strip(tile: ResampleTile, images: Images) -> tuple[float, float]:
    """Rows of the result that a thread has, and rows of the input that it reads."""
    results = images.rows.made / tile.strips(images)
    return results, max(images.rows.taps, 1) + (results - 1) * images.rows.extent / images.rows.made


def _read(images: Images) -> float:
    """The part of the input's rows that are read."""
    rows = images.rows
    return min(1.0, rows.taps * rows.made / rows.extent) if rows.taps else 1.0


def _moved(problem: KernelProblem, images: Images, target: Target) -> float:
    """Seconds of the result's bytes and of those that are read, at all of the bandwidth."""
    source = problem.inputs[0].nbytes
    return moved(problem.nbytes, target) * (1 - (1 - _read(images)) * source / problem.nbytes)


def _seconds(problem: KernelProblem, tile: ResampleTile, target: Target) -> float:
    """What takes longest of the bytes, the instructions, and the rows for which threads wait one after the other; and
    what is lost where the last threads leave others without work."""
    gpu, images = target.gpu, images_of(problem)
    assert gpu is not None, "rows slide on GPUs"
    threads, (_, given) = tile.threads(images), _of_a_strip(tile, images)
    issued = _ISSUED * threads * _instructions(tile, images) / (target.rate("fp32") / 2)
    blocks = max(gpu.registers // (_BLOCK * (tile.registers(images) + _OTHERS)), 1)
    waves = threads / (gpu.sms * _BLOCK * min(blocks, 8))
    waits = max(1.0, waves) * _WAIT * (2 + (given - max(images.rows.taps, 1)) / tile.step)
    memory = _moved(problem, images, target) / _REACHED
    longest = max(memory, issued, waits)
    together = longest + _BESIDE * (memory + issued + waits - longest)
    return float(together * (1 + _TAIL / max(waves, _FEWEST)) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    parameters, axes = arguments(images_of(problem), at)
    kind = ctype(problem.inputs[0].format.dtype)
    kind += ", float" if stores_wider(problem) else ""
    call = f"bolt::portable::resample<{kind}>(r, {parameters}, {axes}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _emit_sliding(problem: KernelProblem, tile: ResampleTile, at: StepExpressions) -> StepCode:
    images = images_of(problem)
    parameters, axes = arguments(images, at)
    how = f"{tile.lanes}, {tile.pixels}, {images.rows.taps}, {images.columns.taps}, {tile.step}"
    call = (
        f"bolt::portable::resample_sliding<{ctype(problem.inputs[0].format.dtype)}, {how}>(r, {parameters}, {axes}, "
        f"{tile.down}, {at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(_HEADER, None, "", call)


_ELEMENT, _NEIGHBOUR, _FIRST, _NEXT = 200, 20, 0.6e-6, 0.15e-6
"""Instructions of the plain kernel for a result, and for one of its neighbours; and seconds until the first of these
comes, and for each that follows it."""


def _plain_seconds(problem: KernelProblem, target: Target) -> float:
    images = images_of(problem)
    neighbours = max(images.rows.taps, 1) * max(images.columns.taps, 1)
    instructions = problem.outputs[0].type.elements * (_ELEMENT + _NEIGHBOUR * neighbours)
    issued = _ISSUED * instructions / (target.rate("fp32") / 2)
    waits = _FIRST + neighbours * _NEXT
    return float(max(moved(problem.nbytes, target) / _REACHED, issued, waits) + OVERLAPPED * target.launch_seconds)


FORM: Form[ResampleTile] = Form(
    "sliding",
    lambda problem: prod(problem.outputs[0].shape) > 0,
    lambda problem, gpu: "stores elements as they are read" if stores_wider(problem) else None,
    lambda problem, gpu: _tiles(images_of(problem)),
    lambda problem, tile, gpu: refuse_tile(tile, images_of(problem), gpu),
    _seconds,
    ResampleTile.read,
    _emit_sliding,
)

RULES = (
    Rule(
        Resample,
        _refuse,
        _emit,
        lambda problem: 0.01,
        gpu_seconds=_plain_seconds,
        pitched=are_pixels,
        reads_apart=lambda problem: (0,) if are_pixels(problem) else (),
        forms=(FORM, STAGED, STREAMED, JOINED, ROWS, HALF_PLANES, BANDED),
    ),
)
