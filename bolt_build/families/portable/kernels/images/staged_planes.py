"""Functions of windows of planes whose rows go through shared memory: a block reads the rows of its results once, in
whole accesses wherever they begin, its threads go down them there, and the results are stored in whole accesses too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS = 16
"""Bytes of an access."""
_PIXELS, _STRIPS, _PLANES = (1, 2, 3, 4, 6, 8), (1, 2, 4, 8), (2, 4, 8, 16, 32)
"""Pixels of a row that a thread may have, strips of a block, and planes beside each other that are tried."""
_DOWNS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Results of a thread below each other that are tried."""
_LEAST, _USUAL, _MOST = 64, 256, 512
"""Threads of a block, and those of one that is tried."""
_FEW = 32 << 10
"""Bytes of the results of several planes of a block that are tried."""
_ROOM, _OTHERS = 128, 28
"""Registers that tables of columns and rows may take of a thread's 255, and those for all else."""
_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Planes:
    """`many` planes of `rows` rows of `row` elements, that become `rows_made` of `row_made`. A row of results is made
    of neighbours in `height` rows, of which `joined` are joined, a result of `width` in each. From a row of results to
    the next they go on by `step` rows, at times by so many more in all (`slack`). A block knows `floats` numbers of
    each row of results, and a thread `known` registers of each neighbour. Elements are `read` and `stored` in so many
    bytes."""

    many: int
    rows: int
    rows_made: int
    row: int
    row_made: int
    height: int
    joined: int
    width: int
    step: float
    slack: int
    floats: int
    known: int
    read: int
    stored: int

    @property
    def skips(self) -> bool:
        """True where rows of the input are left out."""
        return self.step >= self.height + 1

    def rows_of(self, results: int) -> int:
        """Rows that so many rows of results below each other are made of, at most."""
        return min(ceil((results - 1) * self.step) + self.height + self.slack, self.rows)


@dataclass(frozen=True)
class StagedPlanesTile(NumberTile):
    """A thread has `pixels` elements, which lie apart, of each of `down` rows below each other. A block has `strips` of
    these, of `planes` planes beside each other: of several planes all rows."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("down",)

    pixels: int
    planes: int
    strips: int
    down: int

    @property
    def results(self) -> int:
        """Rows of a block, at most."""
        return self.strips * self.down

    def across(self, of: Planes) -> int:
        """Threads of a strip: whole warps."""
        return WARP * ceil(self.planes * of.row_made / (WARP * self.pixels))

    def block(self, of: Planes) -> int:
        """Threads of a block."""
        return self.strips * self.across(of)

    def blocks(self, of: Planes) -> int:
        return ceil(of.many / self.planes) * ceil(of.rows_made / self.results)

    def registers(self, of: Planes) -> int:
        """Places and what is known of columns, the rows that a result is made of, and where a thread stores."""
        return self.pixels * ((1 + of.known) * of.width + of.height + (self.planes > 1))

    def given(self, of: Planes) -> int:
        """Elements of the input for which a block has room."""
        need = of.rows if self.planes > 1 else of.rows_of(min(self.results, of.rows_made))
        return ((self.planes - 1) * of.rows + need) * of.row

    def made(self, of: Planes) -> int:
        """Elements of a block's results."""
        return (self.planes * of.rows_made if self.planes > 1 else self.results) * of.row_made

    def shared(self, of: Planes) -> int:
        """Bytes of shared memory of a block (`PlanesTile`)."""
        tables = 4 * of.floats * self.results, 4 * (self.results + 1)
        runs = self.given(of) * of.read + _ACCESS - 1, self.made(of) * of.stored + _ACCESS - 1
        return sum(_ACCESS * ceil(nbytes / _ACCESS) for nbytes in (*tables, *runs))

    def text(self, of: Planes) -> str:
        """A `PlanesTile`."""
        numbers = (
            of.rows, of.rows_made, of.row, of.row_made, of.height, of.width, self.planes, self.pixels, self.strips,
        )  # fmt: skip
        return f"bolt::portable::PlanesTile<{', '.join(map(str, numbers))}>"


def _refuse_rows(of: Planes) -> str | None:
    """Why blocks do not read all rows between those that they need, None where they do."""
    if of.skips:
        what = "{} rows become {}, each of which is made of {}: those between them are not to be read"
        return Reason(what, of.rows, of.rows_made, of.height)
    return None


def refuse_planes(of: Planes) -> str | None:
    """Why no kernel has such planes, None where some may."""
    if (nbytes := max(of.rows * of.row * of.read, of.rows_made * of.row_made * of.stored)) > _LONGEST:
        return Reason("planes of {} bytes are too large to be counted in 32 bits", nbytes)
    return None


def tiles(of: Planes) -> Iterator[StagedPlanesTile]:
    """Of as many results each as blocks have about the same. In blocks of few threads, but for long rows; and of
    several planes where these have few results."""
    made = of.rows_made
    for pixels in _PIXELS:
        for strips in (each for each in _STRIPS if each <= made):
            for down in sorted({ceil(made / (strips * ceil(made / (strips * wanted)))) for wanted in _DOWNS}):
                tile = StagedPlanesTile(pixels, 1, strips, down)
                if strips == 1 or tile.block(of) <= _USUAL:
                    yield tile
            for planes in (each for each in _PLANES if each < 2 * of.many):
                tile = StagedPlanesTile(pixels, planes, strips, ceil(made / strips))
                if tile.made(of) * of.stored <= _FEW and tile.block(of) <= _USUAL:
                    yield tile


def refuse_tile(tile: StagedPlanesTile, of: Planes, gpu: Gpu) -> str | None:
    """Why no kernel has the planes so on this GPU, None where one does."""
    if not 1 <= tile.down <= of.rows_made:
        return Reason("a thread has {} results below each other, a plane {}", tile.down, of.rows_made)
    if tile.planes > 1 and tile.results < of.rows_made:
        what = "a block that has {} rows of each of several planes has not all {}"
        return Reason(what, tile.results, of.rows_made)
    if not _LEAST <= (block := tile.block(of)) <= _MOST:
        return Reason("blocks have {} to {} threads, not {}", _LEAST, _MOST, block)
    if (needed := tile.registers(of)) > _ROOM:
        return Reason("takes {} registers of a thread for rows and tables, which has {} for these", needed, _ROOM)
    return refuse_shared(tile.shared(of), gpu)


_ENDS, _TAIL = 4.8e-6, 0.17
"""Seconds until the first rows of as many blocks as a GPU holds have come, and while their last results are stored, and
the part of a round of blocks that the last ones take alone. These and the following are counted in the kernel's code,
or fitted to 180 kernels of 25 problems on an H200, with those of parts after each other: they take 12% more or less
than that, and what is predicted to be fastest takes 3% longer than the fastest in the mean."""
_BEGIN, _COLUMN, _PLACE = 103, 35, 5
"""Instructions of a thread for its place and its block's tables, for each of its pixels, and for each of their
neighbours."""
_ROW, _NEIGHBOUR, _RESULT, _STORE, _COPY = 10.7, 2.3, 11, 3.2, 4.9
"""The same of a row of the input, for each neighbour in it, of a result, for each of its pixels beside its weights, and
of a whole access of the block."""
_SHARED, _BANK = 2.9, 4
"""Instructions of which an access to shared memory takes the place, and bytes of a bank."""
_ISSUED, _THREADS, _BESIDE = 1.03, 1650, 0.126
"""What an instruction takes of the rate of multiply-adds, threads of a multiprocessor below which they wait for each
other, and the part of what takes less time that is not hidden."""
_SMALLER = 0.055
"""How much longer images take that become smaller, for each of up to four rows that are joined, as eight kernels did on
an H200 in the mean."""
_WAITS, _DOWN = 0.52e-6, 0.022e-6
"""Seconds of a block in which it moves nothing: until its rows have come, and for each row that threads go down."""


def _issued(tile: StagedPlanesTile, of: Planes) -> float:
    """Instructions of all threads, or the places of as many that accesses to shared memory take."""
    down, pixels = of.rows_made / ceil(of.rows_made / tile.down), tile.pixels
    strips = ceil(of.rows_made / tile.down) * ceil(of.many / tile.planes)
    given = (down - 1) * of.step + of.height
    copies = (tile.given(of) * of.read + tile.made(of) * of.stored) / _ACCESS / tile.block(of)
    begin = _BEGIN + pixels * (_COLUMN + _PLACE * of.width) + copies * _COPY
    own = begin + given * (_ROW + _NEIGHBOUR * of.width * pixels) + down * (_RESULT + (_STORE + of.joined) * pixels)
    # Threads beside each other read as far apart as their pixels: so many of a warp meet in a bank.
    banks = max(1.0, min(of.row / of.row_made * of.read / _BANK, WARP))
    shared = given * of.width * pixels * banks + down * (2 + pixels) + copies * _SHARED
    return strips * tile.across(of) * max(own, _SHARED * shared)


def seconds(problem: KernelProblem, tile: StagedPlanesTile, target: Target, of: Planes) -> float:
    """What takes longest of the bytes and the instructions. Bytes of a block move while others wait or compute: the
    fewer these are, the less is hidden."""
    gpu = target.gpu
    assert gpu is not None, "rows are staged on GPUs"
    blocks, block = tile.blocks(of), tile.block(of)
    resident = occupancy(block, tile.registers(of) + _OTHERS, tile.shared(of), gpu)
    rounds, there = blocks / (resident * gpu.sms), min(float(resident), blocks / gpu.sms)
    # Rows that two blocks need are read twice.
    again = max(blocks * tile.given(of) - of.many * of.rows * of.row, 0) * of.read
    memory = moved(problem.nbytes + again, target) + (_WAITS + _DOWN * tile.down) * max(rounds, 1.0)
    issued = _ISSUED * _issued(tile, of) / (target.rate("fp32") / 2) / min(1.0, there * block / _THREADS) ** 0.5
    together = max(memory, issued) + min(memory, issued) * max(_BESIDE, 1 / max(there, 1.0))
    if of.slack and of.step > 1:
        together *= 1 + _SMALLER * min(of.joined, 4)
    ends = _ENDS * min(rounds, 1.0) + OVERLAPPED * target.launch_seconds
    return float(together * (1 + _TAIL / max(rounds, 1.0)) + ends)


def staged_planes(
    serves: Callable[[KernelProblem], bool],
    planes: Callable[[KernelProblem], Planes],
    refuse: Callable[[KernelProblem, Gpu], str | None],
    emit: Callable[[KernelProblem, StagedPlanesTile, StepExpressions], StepCode],
) -> Form[StagedPlanesTile]:
    """The form of an operator that is a function of windows of planes."""
    return Form(
        "staged",
        serves,
        lambda problem, gpu: refuse(problem, gpu) or _refuse_rows(planes(problem)) or refuse_planes(planes(problem)),
        lambda problem, gpu: tiles(planes(problem)),
        lambda problem, tile, gpu: refuse_tile(tile, planes(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, planes(problem)),
        StagedPlanesTile.read,
        emit,
    )
