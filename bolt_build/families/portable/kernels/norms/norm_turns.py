"""How a GPU normalises rows in turns: a block has one in registers while the next one is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK, LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_loops import loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norms.norm_nest import element_bytes, seconds_of
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

THREADS = (8, 16, WARP, 64, 128, 256, 512, 1024)
"""Threads of a row."""
_LOADS = 8
"""Loads of `LANES` elements that a thread holds of a row at most."""
_RESIDENT = (1, 2, 3, 4, 6, 8)
"""Blocks a multiprocessor that are tried."""
_KEEPS = {"registers": "registers", "shared": "shared", "cache": "cache", "together": "together"}
_TOGETHER = 1024
"""Threads of a block that has all rows of a multiprocessor together."""


@dataclass(frozen=True)
class _Rows:
    """`many` rows of `extent` elements of `element` bytes, and how many `operands` they have: scale and bias."""

    many: int
    extent: int
    element: int
    operands: int


@dataclass(frozen=True)
class TurnTile:
    """A row has so many `threads`. Scale and bias wait in `registers` of a thread, in `shared` memory, in the L1
    `cache`, or in shared memory of one block a multiprocessor, which has rows `together`. So many `blocks` take rows in
    turns, each as many at once as it has threads for."""

    threads: int
    keeps: str
    blocks: int

    @property
    def parameters(self) -> Named:
        return ("threads", self.threads), ("keeps", self.keeps)

    @property
    def settings(self) -> Named:
        return (("blocks", self.blocks),)

    @staticmethod
    def read(reader: Reader) -> TurnTile:
        return TurnTile(reader.number("threads"), reader.word("keeps", _KEEPS), reader.number("blocks"))

    @property
    def block(self) -> int:
        """Threads of a block."""
        if self.keeps == "together":
            return _TOGETHER
        return BLOCK if self.threads <= WARP else self.threads

    @property
    def together(self) -> int:
        """Rows that a block has at once."""
        return self.block // self.threads

    def loads(self, rows: _Rows) -> int:
        """Loads of a thread."""
        return ceil(rows.extent / (self.threads * LANES))

    def shared(self, rows: _Rows) -> int:
        """Bytes of shared memory of a block."""
        return 8 * rows.extent if self.keeps in ("shared", "together") else 0

    def registers(self, rows: _Rows) -> int:
        """An estimate: two rows' elements, or one's, scale and bias, and what all else takes."""
        operands = LANES * (self.loads(rows) * rows.operands if self.keeps == "registers" else 1)
        held = 1 if self.keeps == "together" else 2
        return _OTHERS + self.loads(rows) * held * LANES * rows.element // 4 + operands


_OTHERS = 24
"""Registers of a thread for addresses, sums and the elements that it computes."""


def _rows(problem: KernelProblem) -> _Rows:
    loops = loops_of(problem)
    many = prod(loop.extent for loop in loops.kept)
    return _Rows(many, loops.neighbours, element_bytes(problem), len(op_operands(problem)) - 1)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    return None if loops_of(problem).shares_operands else "rows have scales or biases of their own"


def tiles(rows: _Rows, gpu: Gpu) -> Iterator[TurnTile]:
    """Of as many threads as leave each a load, and no more than it can hold; in as many blocks as run at once, or in
    fewer."""
    for threads in THREADS:
        bare = TurnTile(threads, "registers", 1)
        if bare.loads(rows) > _LOADS or threads * LANES >= 2 * rows.extent:
            continue
        for keeps in _KEEPS if rows.operands else ("registers",):
            tile = TurnTile(threads, keeps, 1)
            if tile.shared(rows) > gpu.shared_memory:
                yield tile
                continue
            most = occupancy(tile.block, tile.registers(rows), tile.shared(rows), gpu)
            for resident in (each for each in _RESIDENT if each <= most):
                yield TurnTile(threads, keeps, resident * gpu.sms)


def refuse_tile(tile: TurnTile, rows: _Rows, gpu: Gpu) -> str | None:
    """Why no kernel normalises rows so on this GPU, None where one does."""
    if tile.threads not in THREADS:
        return "there are kernels of 8, 16, 32, 64, 128, 256, 512 or 1024 threads a row"
    if (loads := tile.loads(rows)) > _LOADS:
        what = "{} elements are {} loads of each of {} threads, which hold {} at most"
        return Reason(what, rows.extent, loads, tile.threads, _LOADS)
    if (needed := tile.registers(rows)) > (most := min(255, gpu.registers // tile.block)):
        return Reason("takes about {} registers of a thread, of which {} threads have {}", needed, tile.block, most)
    if tile.blocks * tile.together >= rows.many:
        what = "of {} rows {} are normalised at once, so no block has a second one"
        return Reason(what, rows.many, tile.blocks * tile.together)
    return refuse_shared(tile.shared(rows), gpu)


_REACHED = 0.74
"""The part of a GPU's bandwidth that is reached where enough is under way, wherever scale and bias are kept. Fitted, as
the next two are, to times of 23 problems of an H200, off by 17%, and by 18% over 12 others."""
_WARPS = 1130
"""Threads of a multiprocessor below which the sums of one row wait for those of no other."""
_UNDER_WAY = 14 << 10
"""Bytes that a multiprocessor must have asked for."""
_BARRIERS = 0.68
"""What is left of the bandwidth where all threads of a block meet twice a row, for its mean and for its deviation: rows
of 768 to 2048 elements took so much longer on an H200 than those of warps."""


def _seconds(problem: KernelProblem, tile: TurnTile, target: Target) -> float:
    gpu, rows = target.gpu, _rows(problem)
    assert gpu is not None, "turns are for GPUs"
    at_once = tile.blocks * tile.together
    turns = rows.many / at_once
    under_way = tile.blocks / gpu.sms * tile.together * rows.extent * rows.element
    used = rows.extent / (tile.threads * LANES * tile.loads(rows))
    filled = min(1.0, under_way / _UNDER_WAY)
    reached = _REACHED * turns / ceil(turns) * (0.3 + 0.7 * filled) * (0.5 + 0.5 * used)
    resident = min(tile.blocks / gpu.sms, occupancy(tile.block, tile.registers(rows), tile.shared(rows), gpu))
    reached *= min(1.0, resident * tile.block / _WARPS) ** 0.2
    assert isinstance(problem.op, Norm)
    few = 2 * WARP if tile.keeps == "together" else WARP
    if tile.threads > few and problem.op.statistic in ("variance", "deviation"):
        reached *= _BARRIERS
    return seconds_of(problem, target, float(reached))


def _emit(problem: KernelProblem, tile: TurnTile, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Norm)
    loops = loops_of(problem)
    early = all(problem.inputs[index].constant for index in op_operands(problem)[1:])
    how = f"{tile.loads(_rows(problem))}, {tile.threads}, bolt::portable::NormKeeps::{tile.keeps}, {boolean(early)}"
    call = (
        f"bolt::portable::norm_in_turns<{how}, {types_text(problem)}>(r, "
        f"{norm_text(loops.kept, loops.reduced, op.epsilon)}, {tile.blocks}, {pointers_text(problem, at)}, "
        f"{chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM: Form[TurnTile] = Form(
    "turns",
    lambda problem: isinstance(problem.op, Norm) and loops_of(problem).neighbours > 0,
    _refuse,
    lambda problem, gpu: tiles(_rows(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, _rows(problem), gpu),
    _seconds,
    TurnTile.read,
    _emit,
)
