"""Functions of windows of planes whose rows are joined first: a block joins the rows that results are made of in
accesses of neighbouring elements, leaves the sums in shared memory, and makes results of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.staged_planes import Planes, refuse_planes
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS, _FLOAT = 16, 4
"""Bytes of an access, and of a sum."""
_PLANES, _DOWNS, _TOGETHER, _BLOCKS = (2, 4, 8, 16, 32), (1, 2, 4, 8, 12, 16, 24, 32), (1, 2, 4), (128, 256, 512)
_NEAR, _HOPS, _TURNS = (1, 2, 4), (1, 2), (1, 2)
"""Planes of a block, results of one below each other, those that a thread joins together, threads that are tried,
neighbours that a thread makes, hops of a row, and parts of a block one after the other."""
_SUMS, _TRIED, _FEW, _ROOM = 32, 16, 64 << 10, 100 << 10
"""Sums of a thread at once, and those that are tried, which take less code; and bytes of joined rows and of all shared
memory of a block that is tried."""
_CELLS = 32
"""Cells of a window along an axis, whose code stands one behind the other."""


@dataclass(frozen=True)
class JoinedRows:
    """`of` planes whose windows begin `left` elements outside of a row at most and end `right` behind it, of `inner`
    elements a pixel. Windows of neighbouring pixels begin about `step` pixels apart and go over `width` of them; where
    that is `exact`, results below each other may be joined together. A plane of results is made of `depths` planes,
    0 where it is of the one of its number."""

    of: Planes
    left: int
    right: int
    inner: int
    step: float
    width: int
    exact: bool
    depths: int = 0

    @property
    def lanes(self) -> int:
        """Neighbours of an access: the most that rows are a multiple of. Two of halves in odd rows, which are shifted
        together."""
        widest = _ACCESS // self.of.read
        return max(next(each for each in (8, 4, 2, 1) if each <= widest and self.of.row % each == 0), 4 // self.of.read)

    @property
    def across(self) -> float:
        """Elements from the window of a result to that of the next."""
        return self.step if self.inner == 1 else 1.0

    @property
    def before(self) -> int:
        """Places in front of a joined row."""
        return (self.left + 7) // 8 * 8

    def phases(self, near: int) -> int:
        """Parts of a joined row, such that windows `near` results apart read neighbours."""
        across = self.across * near
        if self.exact:
            return next(each for each in (8, 4, 2, 1) if across % each == 0)
        return next(each for each in (4, 2, 1) if each <= across or each == 1)


@dataclass(frozen=True)
class JoinedTile(NumberTile):
    """A block of `block` threads has `down` rows of results of `planes` planes, of several planes all rows. A thread
    joins rows of `together` results below each other, and makes `near` neighbours of each; side by side a block has
    `wide` such neighbours. Rows reach a thread in so many `hops`: one from memory, or two through shared memory. There
    blocks have `turns` parts one after the other."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("turns",)

    planes: int
    down: int
    together: int
    near: int
    wide: int
    hops: int
    block: int
    turns: int

    def pieces(self, of: Planes) -> int:
        """Blocks beside each other that a row of results has."""
        return ceil(of.row_made / (self.near * self.wide))

    def parts(self, of: Planes) -> int:
        return ceil(of.many / self.planes) * ceil(of.rows_made / self.down) * self.pieces(of)

    def groups(self, rows: JoinedRows) -> int:
        """Accesses beside each other that a joined row is made of, at most."""
        of, lanes, results = rows.of, rows.lanes, self.near * self.wide
        if self.pieces(of) == 1:
            return ceil(of.row / lanes)
        if rows.exact:
            return ceil((rows.before - rows.left + (results - 1) * rows.step + rows.width) / lanes)
        pixels = (results + rows.inner - 2) // rows.inner + 1
        elements = (ceil((pixels - 1) * rows.step) + rows.width + 1) * rows.inner
        return min(ceil((elements + lanes - 1) / lanes), ceil(of.row / lanes))

    def pitch(self, rows: JoinedRows) -> int:
        """Floats of a joined row (`JoinedTile`)."""
        lanes, phases = rows.lanes, rows.phases(self.near)
        need = ceil((rows.before + self.groups(rows) * lanes + rows.right) / phases)
        every, rest = (32 // lanes, 32 // phases) if phases > lanes else (4, 0)
        return phases * (ceil((need - rest) / every) * every + rest)

    def given(self, rows: JoinedRows) -> int:
        """Elements of the input for which a block has room, where they go through shared memory."""
        of = rows.of
        whole = ceil(min(self.down, of.rows_made) / self.together) * self.together
        need = of.rows if self.planes > 1 else of.rows_of(whole)
        return ((self.planes - 1) * of.rows + need) * of.row

    def shared(self, rows: JoinedRows) -> int:
        """Bytes of shared memory of a block (`JoinedPlanes`)."""
        of = rows.of
        known = _FLOAT * of.floats * (of.rows_made if self.turns > 1 else self.down)
        joined = _FLOAT * self.planes * self.down * self.pitch(rows)
        run = (self.given(rows) * of.read + 46) // _ACCESS * _ACCESS if self.hops > 1 else 0
        return (known + 15) // _ACCESS * _ACCESS + joined + run * (2 if self.turns > 1 else 1)

    def text(self, rows: JoinedRows) -> str:
        """A `JoinedTile`."""
        of = rows.of
        numbers = (
            of.rows, of.rows_made, of.row, of.row_made, self.planes, self.down, self.wide, rows.lanes,
            self.groups(rows), self.together, self.near, rows.before, rows.right, rows.phases(self.near),
            str(self.hops > 1).lower(), self.block,
        )  # fmt: skip
        return f"bolt::portable::JoinedTile<{', '.join(map(str, numbers))}>"


def refuse_rows(rows: JoinedRows) -> str | None:
    """Why no kernel joins such rows, None where some may."""
    of = rows.of
    if (cells := max(of.joined, of.width)) > _CELLS:
        return Reason("{} cells of a window along an axis are more than {}", cells, _CELLS)
    return refuse_planes(of)


def tiles(rows: JoinedRows, gpu: Gpu) -> Iterator[JoinedTile]:
    """Of whole rows, and of parts of long ones."""
    of = rows.of
    made = of.rows_made
    cuts = [(1, down) for down in sorted({ceil(made / ceil(made / wanted)) for wanted in _DOWNS})]
    cuts += [(planes, made) for planes in _PLANES if planes < 2 * of.many]
    most = 4 if rows.inner > 1 else 2
    near_by = (each for each in _NEAR if each <= most and of.row_made % each == 0 and each * of.stored <= 8)
    for near, (planes, down), block in product(near_by, cuts, _BLOCKS):
        for wide, hops in product(_wides(rows, near, block), _HOPS):
            for together in _TOGETHER if rows.exact else (1,):
                tile = JoinedTile(planes, down, together, near, wide, hops, block, 1)
                alone = together > 1 and of.height <= of.step and rows.lanes > 2
                copied = tile.pieces(of) == 1 and not (rows.depths or of.skips)
                if alone or (copied and hops == 1 and rows.lanes * of.read <= _FLOAT) or (hops > 1 and not copied):
                    continue
                if together * rows.lanes > _TRIED or (together > 1 and rows.depths):
                    continue
                if _FLOAT * planes * down * tile.pitch(rows) > _FEW or tile.shared(rows) > _ROOM:
                    continue
                for turns in _TURNS if hops > 1 and rows.exact else (1,):
                    if turns <= tile.parts(of):
                        yield replace(tile, turns=turns)


def _wides(rows: JoinedRows, near: int, block: int) -> Iterator[int]:
    """Neighbours of a block: all of a row, or such parts of rows that are longer than a block that these are alike."""
    every = rows.of.row_made // near
    yield every
    for most in (block, block // 2):
        wide = ceil(every / ceil(every / most))
        wide += -wide % (_ACCESS // 2)
        if wide < every and wide <= block:
            yield wide


def refuse_tile(tile: JoinedTile, rows: JoinedRows, gpu: Gpu) -> str | None:
    """Why no kernel has the planes so on this GPU, None where one does."""
    of = rows.of
    if tile.block not in _BLOCKS:
        return "there are blocks of 128, 256 or 512 threads"
    if tile.down > of.rows_made:
        return Reason("a block has {} results below each other, a plane {}", tile.down, of.rows_made)
    if tile.planes > 1 and rows.depths:
        return Reason("a plane of results is made of {}, and a block has several", rows.depths)
    if tile.planes > 1 and tile.down < of.rows_made:
        what = "a block that has {} rows of each of several planes has not all {}"
        return Reason(what, tile.down, of.rows_made)
    if tile.hops not in _HOPS:
        return "rows come from memory in one hop, or in two through shared memory"
    if tile.hops > 1 and (rows.depths or tile.pieces(of) > 1):
        return "whole rows of single planes go through shared memory"
    if tile.hops > 1 and of.skips:
        what = "{} rows become {}, each of which is made of {}: those between them are not to be copied"
        return Reason(what, of.rows, of.rows_made, of.height)
    if tile.together > 1 and not rows.exact:
        return "rows of resizings are joined for each result by itself"
    if tile.wide > of.row_made // tile.near:
        return Reason("a block has {} neighbours beside each other, a row {}", tile.wide, of.row_made // tile.near)
    if (pieces := tile.pieces(of)) > 1 and (tile.planes > 1 or tile.wide > tile.block):
        return Reason("a row has {} blocks, of single planes and of no more neighbours than threads", pieces)
    if pieces > 1 and rows.exact and rows.inner > 1:
        return "a block has whole rows of pixels whose channels are no whole accesses"
    if pieces > 1 and rows.exact and (between := int(tile.wide * tile.near * rows.step)) % 8:
        what = "windows of a block begin {} elements behind those of another: no accesses begin there"
        return Reason(what, between)
    if tile.turns > 1 and tile.hops == 1:
        return "blocks have one part where rows do not go through shared memory"
    if tile.near not in _NEAR or of.row_made % tile.near or tile.near * of.stored > 8:
        return Reason("makes {} neighbours at once, of rows of {} elements", tile.near, of.row_made)
    if tile.together > of.rows_made:
        return Reason("joins {} results together, of {}", tile.together, of.rows_made)
    if (sums := tile.together * rows.lanes) > _SUMS:
        return Reason("{} sums of a thread are more than {}", sums, _SUMS)
    if tile.turns > tile.parts(of):
        return Reason("a block has {} parts one after the other, of {} in all", tile.turns, tile.parts(of))
    return refuse_shared(tile.shared(rows), gpu)


_REACHED = 0.88
"""The part of a GPU's bandwidth at which bytes move."""
_BEGIN, _COLUMN, _GROUP, _LINE = 102, 30, 72, 10.9
"""Instructions of a thread for its place and tables, for each of its columns, of a group of neighbours that it joins,
and of results that it makes at once, beside what they are made of."""
_ISSUED, _SHARED, _THREADS = 1.02, 1.51, 1334
"""What an instruction and a turn of shared memory take of their rates, and threads of a multiprocessor below which
they wait for each other."""
_AGAIN = 0.45
"""What bytes take that come again from caches, of what they would take from memory: between what most kernels of
resizings take, and what the fastest do."""
_WAITS = 0.58e-6
"""Seconds until the first rows have come, and while the last results are stored. This and the others follow 133 kernels
of 35 problems on an H200, which take 20% more or less than that."""
_PART = 0.44e-6
"""Seconds of a part in which a block moves nothing, but for its first."""
_BESIDE = 0.37
"""The part of what takes less time that is not hidden."""
_SINGLE = 1.12
"""How much longer several planes take whose threads make single results: they have fewer loads on their way."""
_COPY = 8
"""Instructions of an access that is copied to shared memory."""


@dataclass(frozen=True)
class _Work:
    """Instructions of all threads, turns of shared memory of all warps, and bytes that are loaded again."""

    instructions: float
    turns: float
    again: float


def _work(tile: JoinedTile, rows: JoinedRows) -> _Work:
    of, lanes, deep = rows.of, rows.lanes, max(rows.depths, 1)
    groups = of.many * ceil(of.rows_made / tile.together) * tile.groups(rows) * tile.pieces(of)
    given = deep * ((tile.together - 1) * of.step + of.joined) if of.joined else 1.0
    cells = deep * tile.together * max(of.joined, 1)
    loads = given * (3 if of.row % lanes else 1)
    join = _GROUP + loads + lanes * (given + cells) + tile.together * max(rows.phases(tile.near), lanes / 4)
    results = of.many * of.rows_made * of.row_made
    columns = ceil(tile.wide / tile.block) * tile.near * (_COLUMN + 6 * of.width)
    begin = ceil(tile.parts(of) / tile.turns) * tile.block * (_BEGIN + columns)
    loaded, own = groups * given * lanes * of.read, of.many * of.rows * of.row * of.read
    copied = own if tile.hops > 1 else 0.0
    make = _LINE / tile.near + 2 * of.width + 0.5
    turns = groups * tile.together * lanes / 32 + (2 * loaded if copied else 0.0) / 128 + copied / 128
    turns += results * of.width / 32 * max(1.0, rows.across * tile.near / rows.phases(tile.near))
    instructions = groups * join + results * make + begin + _COPY * copied / _ACCESS
    return _Work(instructions, turns, 0.0 if copied else max(loaded - own, 0.0))


def seconds(problem: KernelProblem, tile: JoinedTile, target: Target, rows: JoinedRows) -> float:
    """What takes longest of the bytes, the instructions and shared memory, and a part of the others."""
    gpu = target.gpu
    assert gpu is not None, "rows are joined on GPUs"
    of, work = rows.of, _work(tile, rows)
    blocks = ceil(tile.parts(of) / tile.turns)
    resident = occupancy(tile.block, 40 + tile.together * rows.lanes, tile.shared(rows), gpu)
    waves, there = blocks / (resident * gpu.sms), min(float(resident), blocks / gpu.sms)
    rate, busy = target.rate("fp32") / 2, min(1.0, there * tile.block / _THREADS) ** 0.5
    memory = moved(problem.nbytes, target) / _REACHED + _AGAIN * work.again / target.bandwidth
    parts = memory, _ISSUED * work.instructions / rate / busy, _SHARED * work.turns * 128 / rate / busy
    together = max(parts) + _BESIDE * (sum(parts) - max(parts)) + _PART * (max(waves, 1.0) * tile.turns - 1)
    together *= _SINGLE if rows.depths and tile.near == 1 else 1.0
    return float(together * (1 + 0.3 / max(waves, 1.0)) + _WAITS + OVERLAPPED * target.launch_seconds)


def joined_planes(
    serves: Callable[[KernelProblem], bool],
    rows: Callable[[KernelProblem], JoinedRows],
    refuse: Callable[[KernelProblem, Gpu], str | None],
    emit: Callable[[KernelProblem, JoinedTile, StepExpressions], StepCode],
) -> Form[JoinedTile]:
    """The form of an operator that is a function of windows of planes."""
    return Form(
        "joined",
        serves,
        lambda problem, gpu: refuse(problem, gpu) or refuse_rows(rows(problem)),
        lambda problem, gpu: tiles(rows(problem), gpu),
        lambda problem, tile, gpu: refuse_tile(tile, rows(problem), gpu),
        lambda problem, tile, target: seconds(problem, tile, target, rows(problem)),
        JoinedTile.read,
        emit,
    )
