"""How a GPU pools by windows that slide: a thread goes down the rows of its columns, reads each once, and has parts of
all windows that are open there in registers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.geometry import three
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.pool_windows import (
    channels_last,
    pool_header,
    pool_parameters,
    pool_types,
)
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.targets import Gpu, Target

THREADS = 128
"""Threads of a block."""
_LOAD_BYTES = 16
"""Of a load at most."""
WIDTHS, ACROSS, AHEAD = (LANES, 4, 2, 1), (1, 2, 4, 8), (1, 2)
"""Channels of a load, windows beside each other that a thread may have, and rows that it has asked for."""
RESIDENT = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
"""Blocks of a multiprocessor that a kernel is compiled for."""
_SHORT = 5
"""Windows that are open at once up to which there may be two rows ahead: their code is as many times as long."""
_TOGETHER = (8, 16, 32)
"""Loads of neighbouring channels that a block's threads make beside each other."""
_ROWS = (1, 2, 4, 8, 16, 32)
"""Rows that are images by themselves, of which a thread may have several."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Parts of an image's height that are tried."""


@dataclass(frozen=True)
class Windows:
    """Along height and width: cells of a window, from one to the next, and from one of its cells to the next."""

    cells: tuple[int, int]
    step: tuple[int, int]
    gap: tuple[int, int]

    @property
    def height(self) -> int:
        """Rows from a window's first to its last."""
        return (self.cells[0] - 1) * self.gap[0] + 1

    @property
    def width(self) -> int:
        """Columns from a window's first to its last."""
        return (self.cells[1] - 1) * self.gap[1] + 1

    @property
    def live(self) -> int:
        """Windows below each other that are open at once, at most."""
        return ceil(self.height / self.step[0])

    def columns(self, across: int) -> int:
        """Columns that `across` windows beside each other have cells in."""
        starts = (window * self.step[1] for window in range(across))
        return len({start + cell * self.gap[1] for start in starts for cell in range(self.cells[1])})

    def rows(self, down: int) -> int:
        """The same of rows."""
        starts = (window * self.step[0] for window in range(down))
        return len({start + cell * self.gap[0] for start in starts for cell in range(self.cells[0])})


@dataclass(frozen=True)
class Images:
    """What slides: `many` images of `channels`, of which each is `out` windows high and wide. A part of a window takes
    so many `registers` a channel, elements are `given` bytes, results `stored`. Images `in_planes` have one channel
    each: threads beside each other have neighbouring windows only if a thread's own lie apart."""

    windows: Windows
    many: int
    channels: int
    out: tuple[int, int]
    registers: float
    given: int
    stored: int
    in_planes: bool
    rows_alone: bool = False
    """True where windows and images are one row high, and nothing behind says which channel a row is of."""

    def seen_by(self, tile: SlidingTile) -> Images:
        """As the kernel goes through them: threads whose windows lie apart go down rows that are images by
        themselves."""
        if not (tile.apart and self.rows_alone):
            return self
        return replace(self, many=1, out=(self.many, self.out[1]))


@dataclass(frozen=True)
class SlidingTile:
    """A thread has `lanes` channels of `across` windows beside each other and of `down` below each other, and asks for
    rows so far `ahead`. It has as many registers as leave room for `resident` blocks. Beside it, `together` threads
    have neighbouring channels. Where they are `apart`, a thread's windows lie apart, and neighbouring threads have
    neighbouring windows."""

    lanes: int
    across: int
    ahead: int
    resident: int
    down: int
    together: int
    apart: bool = False

    @property
    def parameters(self) -> Named:
        found = tuple((name, getattr(self, name)) for name in ("lanes", "across", "ahead", "resident"))
        return (*found, ("apart", 1)) if self.apart else found

    @property
    def settings(self) -> Named:
        return ("down", self.down), ("together", self.together)

    @staticmethod
    def read(reader: Reader) -> SlidingTile:
        apart = reader.has("apart") and reader.number("apart") == 1
        names = ("lanes", "across", "ahead", "resident", "down", "together")
        lanes, across, ahead, resident, down, together = (reader.number(name) for name in names)
        return SlidingTile(lanes, across, ahead, resident, down, together, apart)

    def columns(self, images: Images) -> int:
        """Columns of a thread's windows: those that lie apart share none."""
        return self.across * images.windows.cells[1] if self.apart else images.windows.columns(self.across)

    def row(self, images: Images) -> int:
        """Registers of a row; single elements have one each."""
        words = self.lanes * images.given / 4
        return ceil(self.columns(images) * (max(words, 1.0) if self.apart else words))

    def registers(self, images: Images) -> int:
        """An estimate: the rows ahead and one, what it gives, the windows that are open, and what all else takes."""
        part = self.across * self.lanes * images.registers
        others = _OTHERS + self.columns(images) + (_BITS if self.apart else 0)
        return others + (1 + self.ahead) * self.row(images) + ceil(part * (1 + images.windows.live))

    def threads(self, images: Images) -> int:
        """Threads that have work, and those beside the last channels."""
        chunks = ceil(images.channels / (self.lanes * self.together))
        high, wide = images.out
        return images.many * ceil(high / self.down) * chunks * ceil(wide / self.across) * self.together


_OTHERS, _BITS = 24, 8
"""Registers of a thread for addresses and for what it stores, beside one a column; and what windows apart take more."""
_WORD = 32
"""Columns of windows that lie apart, of which a thread has a bit each."""


def _room(resident: int, gpu: Gpu) -> int:
    """Registers of a thread where a multiprocessor has so many blocks."""
    return min(255, gpu.registers // (THREADS * resident) // 8 * 8)


def _windows(op: Pool | LpPool) -> Windows:
    def last(values: tuple[int, ...]) -> tuple[int, int]:
        _, high, wide = three(values, 1)
        return high, wide

    return Windows(last(op.kernel), last(op.strides), last(op.dilations))


@functools.lru_cache(maxsize=256)
def images_of(problem: KernelProblem) -> Images:
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    batch, channels, *spatial = output.shape
    depth, high, wide = three(tuple(spatial), 1)
    planes = 1 if channels_last(problem) else channels
    given = source.format.dtype.nbytes
    windows = _windows(op)
    flat = (high, prod(source.shape[2:-1]) // depth, windows.cells[0], windows.step[0]) == (1, 1, 1, 1)
    alone = flat and not (goes_over_depths(op) or channels_last(problem) or problem.epilogue)
    exact = isinstance(op, Pool) and op.mode == "max" and given == 2 and planes == 1
    return Images(
        windows, batch * depth * planes, channels // planes, (high, wide), 0.5 if exact else 1.0, given,
        output.format.dtype.nbytes, not channels_last(problem), alone,
    )  # fmt: skip


def goes_over_depths(op: Pool | LpPool) -> bool:
    """Whether a plane of results is made of several, or not of the one of its number."""
    return len(op.kernel) == 3 and (op.kernel[0], op.strides[0], op.pads_begin[0], op.pads_end[0]) != (1, 1, 0, 0)


def refuse_windows_that_slide(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = problem.op
    if isinstance(op, PoolPlaces):
        return "joins values of rows, and indices go with none"
    assert isinstance(op, Pool | LpPool)
    if goes_over_depths(op):
        return "windows go over depths too, and slide over rows and columns alone"
    return None


def _resident(bare: SlidingTile, images: Images, gpu: Gpu) -> int:
    """As many blocks as have the registers that their threads need; 1 where not even these have."""
    return max((each for each in RESIDENT if bare.registers(images) <= _room(each, gpu)), default=1)


def _lanes(images: Images, gpu: Gpu) -> int:
    """The widest loads that channels are a multiple of; narrower ones where windows would take too many registers."""
    widths = [lanes for lanes in WIDTHS if images.channels % lanes == 0 and lanes * images.given <= _LOAD_BYTES]
    fit = (lanes for lanes in widths if SlidingTile(lanes, 1, 1, 1, 1, 1).registers(images) <= _room(1, gpu))
    return next(fit, widths[-1])


def tiles(images: Images, gpu: Gpu) -> Iterator[SlidingTile]:
    """In blocks of whole runs of channels, if there are such."""
    lanes, (high, wide) = _lanes(images, gpu), images.out
    groups = images.channels // lanes
    whole = [each for each in range(_TOGETHER[0], _TOGETHER[-1] + 1) if groups % each == 0]
    close = {min(whole, key=lambda each: abs(each - wanted)) for wanted in _TOGETHER if whole}
    togethers = sorted(close or {min(each, groups) for each in _TOGETHER})
    downs = tuple(dict.fromkeys(ceil(high / parts) for parts in _PARTS if parts <= high))
    for across in (each for each in ACROSS if each < 2 * wide):
        for ahead in AHEAD[: 2 if images.windows.live <= _SHORT else 1]:
            for apart in (False, True) if images.in_planes and across > 1 else (False,):
                bare = SlidingTile(lanes, across, ahead, 1, 1, 1, apart)
                resident = _resident(bare, images, gpu)
                below = downs if images.seen_by(bare) is images else [each for each in _ROWS if each <= images.many]
                for together, down in product(togethers, below):
                    yield SlidingTile(lanes, across, ahead, resident, down, together, apart)


def refuse_tile(tile: SlidingTile, images: Images, gpu: Gpu) -> str | None:
    """Why no kernel pools so on this GPU, None where one does."""
    images = images.seen_by(tile)
    if tile.lanes not in WIDTHS or tile.across not in ACROSS:
        return "there are kernels of 1, 2, 4 or 8 channels a load, and of 1, 2, 4 or 8 windows beside each other"
    if tile.apart and tile.across == 1:
        return "windows lie apart, with apart=1, where a thread has several beside each other"
    if tile.apart and not images.in_planes:
        return "windows of planes alone lie apart: channels are neighbours anyway"
    if tile.apart and (columns := tile.across * images.windows.width) > _WORD:
        return Reason("{} columns of windows that lie apart are more than {}", columns, _WORD)
    if tile.ahead not in AHEAD:
        return "a thread asks for 1 or 2 rows ahead"
    if tile.ahead > 1 and images.windows.live > _SHORT:
        what = "{} windows below each other are open at once, of kernels with 2 rows ahead {} at most"
        return Reason(what, images.windows.live, _SHORT)
    if images.channels % tile.lanes:
        return Reason("{} channels are no multiple of the {} that a thread loads at once", images.channels, tile.lanes)
    if tile.down > images.out[0]:
        what = "a thread has {} windows below each other, an image {}"
        return Reason(what, tile.down, images.out[0])
    if tile.together > (groups := images.channels // tile.lanes):
        return Reason("{} threads are more than the {} loads of a cell's channels", tile.together, groups)
    if tile.resident not in RESIDENT:
        return "there are kernels for 1 to 8, 10 or 12 blocks of a multiprocessor"
    if (needed := tile.registers(images)) > (most := _room(tile.resident, gpu)):
        what = "takes about {} registers of a thread, which has {} at resident={}"
        return Reason(what, needed, most, tile.resident)
    return None


_REACHED = 0.93
"""The part of a GPU's bandwidth at which bytes move. What threads compute and wait for comes on top: these constants
are fitted so to all 727 times of `pool_windows.py` on an H100 with channels last, none held out, which they meet to
13%. Those in planes were not fitted: their predictions are 0.76 of 32 times in the mean, and miss them by half."""
_BEGIN, _LOAD, _LEAVE = 90, 4, 12
"""Instructions of a thread for its place, of a load beside its elements, and of a result beside its channels."""
_ISSUED, _SINGLE = 0.6, 6.0
"""What an instruction takes of the rate of multiply-adds, and what one takes where loads are of single elements, whose
lines are read several times."""
_APART, _LINE = 4.0, 8
"""The same in planes, where threads beside each other have windows so many bytes apart, and more where these are more
or where a thread's own windows lie side by side. Of three poolings on an H200 two took as long as that, and
one of windows of 8 by 8 twice as long."""
_WAIT, _AHEAD = 0.28e-6, 0.23
"""Seconds of a row that a thread waits for, and how much less they are with more rows ahead: a power."""
_TAIL = 0.18
"""The part of a wave for which its last blocks leave others without work."""
_BEHIND = 0.45e-6
"""Seconds of a window whose epilogue reads a tensor: it is asked for when the window is done, and no other of the
thread's windows before its result is stored. Of three shapes on an H200 this is what they took longer, to 6%."""
_APPLIED = 4
"""Instructions of a channel for what its epilogue reads: elements are loaded one by one."""


def _instructions(tile: SlidingTile, images: Images) -> tuple[float, float]:
    """Of a thread for a row of the input, and for a row of results."""
    windows, words = images.windows, tile.lanes * images.given / 4
    begin = words + (tile.lanes if images.registers == 1 else 0)
    row = tile.columns(images) * (_LOAD + begin)
    joined = tile.lanes * tile.across
    row += joined * (windows.cells[1] - 1 + windows.cells[0] / windows.step[0])
    return row, tile.across * (_LEAVE + 2 * tile.lanes)


def _lines(tile: SlidingTile, images: Images) -> float:
    """What accesses make of an instruction: those of neighbouring threads that lie apart are so many more lines."""
    if tile.lanes * images.given >= 4 and not images.in_planes:
        return 1.0
    if not images.in_planes:
        return _SINGLE
    beside = 1 if tile.apart else max(tile.across, 2)
    return _APART * beside * max(1.0, images.windows.step[1] * images.given / _LINE)


def _read_behind(problem: KernelProblem) -> int:
    """Operands of the epilogue that have an element for each result."""
    results = prod(problem.outputs[0].shape)
    operands = (problem.inputs[stage.operand] for stage in problem.epilogue if stage.operand is not None)
    return sum(prod(operand.shape) == results for operand in operands)


def _seconds(problem: KernelProblem, tile: SlidingTile, target: Target) -> float:
    """What the bytes take; and what threads take who go down their rows beside each other, each row as long as the
    instructions of all of them, or as one thread waits for it."""
    gpu, images = target.gpu, images_of(problem).seen_by(tile)
    assert gpu is not None, "windows slide on GPUs"
    rows, (of_row, of_leave) = images.windows.rows(tile.down), _instructions(tile, images)
    leaves = images.out[0] / ceil(images.out[0] / tile.down)
    issued, behind = _ISSUED * _lines(tile, images), _read_behind(problem)
    of_leave += _APPLIED * behind * tile.lanes * tile.across
    work = issued * ((_BEGIN + leaves * of_leave) / rows + of_row) / (target.rate("fp32") / 2 / gpu.sms)
    blocks = tile.threads(images) / THREADS / gpu.sms
    of_a_row = max(_WAIT / tile.ahead**_AHEAD, min(ceil(blocks), tile.resident) * THREADS * work)
    waits = _BEHIND * leaves * tile.across if behind else 0.0
    threads = max(1.0, blocks / tile.resident + _TAIL) * (of_a_row * (rows + tile.ahead) + waits)
    return float(threads + moved(problem.nbytes, target) / _REACHED + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: SlidingTile, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Pool | LpPool)
    windows = _windows(op)
    sizes = ", ".join(map(str, (*windows.cells, *windows.step, *windows.gap)))
    kind = "PoolWindowsApart" if tile.apart else "PoolWindows"
    how = f"{tile.lanes}, {tile.across}, {tile.ahead}, {tile.resident}, bolt::portable::{kind}<{sizes}>"
    images = images_of(problem)
    rows = images.many if images.seen_by(tile) is not images else 0
    cut = f"bolt::portable::PoolCut{{.together = {tile.together}, .down = {tile.down}}}"
    parameters = pool_parameters(problem, op, at.pitch(0), at.input_pitch(0), rows)
    call = (
        f"bolt::portable::pool_sliding<{how}, {pool_types(problem)}>(r, {parameters}, {cut}, {at.inputs[0]}, "
        f"{at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode((pool_header(problem),), None, "", call)


FORM: Form[SlidingTile] = Form(
    "sliding",
    lambda problem: prod(problem.outputs[0].shape) > 0,
    refuse_windows_that_slide,
    lambda problem, gpu: tiles(images_of(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, images_of(problem), gpu),
    _seconds,
    SlidingTile.read,
    _emit,
)
