"""Functions of windows of planes as in `staged_planes`, by blocks that take one part after another: while threads go
down the rows of a part, those of the next one are on their way. Tables of rows and columns serve all parts of a
block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.staged_planes import Planes, StagedPlanesTile, refuse_planes
from bolt_build.families.portable.kernels.images.staged_planes import refuse_tile as refuse_staged
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS, _WORD = 16, 4
"""Bytes of an access, and of a store that goes to the result at once, at least."""
_PIXELS, _STRIPS, _PLANES, _NEAR = (1, 2, 3, 4, 6, 8), (1, 2, 4, 8), (4, 8, 16), (1, 2, 4)
"""Pixels of a row that a thread may have, strips of a block, planes beside each other, and pixels that a thread stores
at once."""
_DOWNS = (8, 16, 20, 32, 64, 128)
"""Results of a thread below each other that are tried."""
_USUAL, _FEW = 256, 16 << 10
"""Threads of a block that is tried, and bytes of the results of several planes of one."""
_SHARES = (1, 2)
"""Waves of blocks that are tried: of one wave, blocks have as many parts as there are to take."""
_OTHERS = 36
"""Registers of a thread for all but tables of columns and rows."""


@dataclass(frozen=True)
class StreamedPlanesTile(StagedPlanesTile):
    """A `StagedPlanesTile` whose blocks have `turns` parts one after the other. `near` neighbouring pixels of a thread
    are stored at once: where these are less than four bytes, results go through shared memory."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("down", "turns")

    near: int
    turns: int

    def direct(self, of: Planes) -> bool:
        """Whether results go from registers to where they lie."""
        return self.near * of.stored >= _WORD

    def parts(self, of: Planes) -> int:
        return super().blocks(of)

    def given(self, of: Planes) -> int:
        """Where rows are left out, each of a result's rows has room of its own, wherever it begins in an access."""
        if not of.skips:
            return super().given(of)
        pitch = (of.row * of.read + 2 * (_ACCESS - 1)) // _ACCESS * _ACCESS
        return min(self.results, of.rows_made) * of.height * pitch // of.read

    def blocks(self, of: Planes) -> int:
        return ceil(self.parts(of) / self.turns)

    def shared(self, of: Planes) -> int:
        """Bytes of shared memory of a block (`StreamedPlanes`)."""
        tables = 4 * of.floats * of.rows_made, 4 * (of.rows_made + 1)
        runs = [self.given(of) * of.read + _ACCESS - 1] * 2
        if not self.direct(of):
            runs.append(self.made(of) * of.stored + _ACCESS - 1)
        return sum(_ACCESS * ceil(nbytes / _ACCESS) for nbytes in (*tables, *runs))

    def resident(self, of: Planes, gpu: Gpu) -> int:
        """Blocks of a multiprocessor."""
        return occupancy(self.block(of), self.registers(of) + _OTHERS, self.shared(of), gpu)


def tiles(of: Planes, gpu: Gpu) -> Iterator[StreamedPlanesTile]:
    """Of blocks that are there at once, or in a few waves."""
    for pixels in _PIXELS:
        for near in (
            each for each in _NEAR if pixels % each == of.row_made % each == 0 and each * of.stored <= 2 * _WORD
        ):
            for strips in (each for each in _STRIPS if each <= of.rows_made):
                for planes, down in _cuts(of, strips):
                    tile = StreamedPlanesTile(pixels, planes, strips, down, near, 1)
                    few = planes == 1 or tile.made(of) * of.stored <= _FEW
                    if few and (strips == 1 or tile.block(of) <= _USUAL):
                        yield from _turned(tile, of, gpu)


def _cuts(of: Planes, strips: int) -> Iterator[tuple[int, int]]:
    """Planes of a block, and results of a thread below each other."""
    for down in sorted({ceil(of.rows_made / (strips * ceil(of.rows_made / (strips * wanted)))) for wanted in _DOWNS}):
        yield 1, down
    for planes in (each for each in _PLANES if each < 2 * of.many):
        yield planes, ceil(of.rows_made / strips)


def _turned(tile: StreamedPlanesTile, of: Planes, gpu: Gpu) -> Iterator[StreamedPlanesTile]:
    parts, there = tile.parts(of), tile.resident(of, gpu) * gpu.sms
    for turns in sorted({ceil(parts / (there * shares)) for shares in _SHARES}):
        yield StreamedPlanesTile(tile.pixels, tile.planes, tile.strips, tile.down, tile.near, turns)


def kernel(of: Planes) -> str:
    """Which of the kernels such planes have."""
    return f"bolt::portable::{'Picked' if of.skips else 'Streamed'}Planes"


def refuse_tile(tile: StreamedPlanesTile, of: Planes, gpu: Gpu) -> str | None:
    """Why no kernel has the planes so on this GPU, None where one does."""
    if tile.planes > 1 and of.skips:
        return Reason("a block has rows of one plane where others are left out, not of {}", tile.planes)
    if tile.near not in _NEAR or tile.near * of.stored > 2 * _WORD:
        return Reason("stores 1, 2 or 4 pixels at once, of {} bytes at most", 2 * _WORD)
    if tile.pixels % tile.near or of.row_made % tile.near:
        what = "{} pixels of a thread and rows of {} elements are not whole stores of {}"
        return Reason(what, tile.pixels, of.row_made, tile.near)
    if tile.near > 1 and not tile.direct(of):
        return Reason("{} pixels are no store of {} bytes", tile.near, _WORD)
    if tile.turns > tile.parts(of):
        return Reason("a block has {} parts one after the other, of {} in all", tile.turns, tile.parts(of))
    return refuse_staged(tile, of, gpu)


_REACHED = 0.92
"""The part of a GPU's bandwidth at which bytes move. This and the following are counted in the kernel's code, or fitted
to 130 kernels of 25 problems on an H200 (`staged_planes`)."""
_BEGIN, _COLUMN, _PLACE, _TABLE = 26, 25.5, 7.2, 2.3
"""Instructions of a thread for its place, for each of its pixels, for each of their neighbours, and of a warp for each
row of a plane's results: once a block, whose threads share these rows."""
_FIRST = 256
"""Rows that take as long as if a warp had them all, for its threads wait for each. A guess."""
_PART, _COPY = 112, 11.4
"""The same for each part, and for a whole access of the block."""
_ROW, _NEIGHBOUR, _RESULT, _STORE = 17.8, 1.7, 12.4, 1.28
"""The same of a row of the input, for each neighbour in it, of a result, and for each of its pixels beside its
weights."""
_SHARED = 5.95
"""Instructions of which an access to shared memory takes the place."""
_ISSUED, _THREADS, _BESIDE = 0.95, 700, 0.364
"""What an instruction takes of the rate of multiply-adds, threads of a multiprocessor below which they wait for each
other, and the part of what takes less time that is not hidden."""
_LAST, _WAITS = 0.195, 3.9e-6
"""The part of a wave that a last one takes which is not full; and seconds until the first rows have come, and while the
last results are stored."""


def _conflicts(tile: StreamedPlanesTile, of: Planes) -> float:
    """Turns that an access of a warp to rows in shared memory takes: its threads are as far apart as their pixels."""
    return max(1.0, tile.near * of.row / of.row_made * of.read / _WORD)


def _issued(tile: StreamedPlanesTile, of: Planes) -> float:
    """Instructions of a block's threads, all parts together, or the places of as many that accesses to shared memory
    take."""
    down, pixels = of.rows_made / ceil(of.rows_made / tile.down), tile.pixels
    given, direct = (down * of.height if of.skips else (down - 1) * of.step + of.height), tile.direct(of)
    copied = tile.given(of) * of.read + (0 if direct else tile.made(of) * of.stored)
    copies = copied / _ACCESS / tile.block(of)
    begin = (
        _BEGIN
        + pixels * (_COLUMN + _PLACE * of.width)
        + _TABLE * max(min(of.rows_made, _FIRST), of.rows_made * WARP / tile.block(of))
    )
    store = _STORE / tile.near if direct else _STORE + 0.5
    own = _PART + copies * _COPY + given * (_ROW + _NEIGHBOUR * of.width * pixels)
    own += down * (_RESULT + (store + of.joined) * pixels)
    # A warp's store has as many lines as there are planes of its pixels.
    lines = 1 + WARP * tile.near / of.row_made if direct and tile.planes > 1 else 1
    shared = given * of.width * pixels * _conflicts(tile, of) + down * (2 + lines * pixels / tile.near) + copies
    return tile.block(of) * (begin + tile.turns * max(own, _SHARED * shared))


def _read(tile: StreamedPlanesTile, of: Planes) -> float:
    """How many times the input is read: a part of it, or rows between blocks more than once."""
    if of.skips:
        return min(of.height * of.rows_made / of.rows, 1.0)
    return max(1.0, tile.parts(of) * tile.given(of) / (of.many * of.rows * of.row))


def seconds(problem: KernelProblem, tile: StreamedPlanesTile, target: Target, of: Planes) -> float:
    """What takes longest of the bytes and the instructions, where each multiprocessor has as much of both."""
    gpu = target.gpu
    assert gpu is not None, "rows are staged on GPUs"
    blocks, resident = tile.blocks(of), tile.resident(of, gpu)
    there = min(float(resident), blocks / gpu.sms)
    issued = _ISSUED * blocks * _issued(tile, of) / (target.rate("fp32") / 2)
    issued /= min(1.0, there * tile.block(of) / _THREADS)
    given = problem.inputs[0].nbytes * _read(tile, of)
    memory = moved(problem.nbytes - problem.inputs[0].nbytes + given, target) / _REACHED
    most = ceil(blocks / gpu.sms) * gpu.sms / blocks
    together = (max(memory, issued) + _BESIDE * min(memory, issued)) * min(most, 2.0)
    waves = blocks / (resident * gpu.sms)
    together *= 1 + _LAST * (ceil(waves) / max(waves, 1.0) - 1)
    # Rows of the first parts come before anything is computed.
    first = moved(given, target) / _REACHED / tile.turns / ceil(waves)
    return float(together + first + _WAITS + OVERLAPPED * target.launch_seconds)


def streamed_planes(
    serves: Callable[[KernelProblem], bool],
    planes: Callable[[KernelProblem], Planes],
    refuse: Callable[[KernelProblem, Gpu], str | None],
    emit: Callable[[KernelProblem, StreamedPlanesTile, StepExpressions], StepCode],
) -> Form[StreamedPlanesTile]:
    """The form of an operator that is a function of windows of planes."""
    return Form(
        "streamed",
        serves,
        lambda problem, gpu: refuse(problem, gpu) or refuse_planes(planes(problem)),
        lambda problem, gpu: tiles(planes(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(tile, planes(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, planes(problem)),
        StreamedPlanesTile.read,
        emit,
    )
