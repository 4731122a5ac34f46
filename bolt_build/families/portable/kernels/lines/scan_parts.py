"""How a GPU finds running sums and products across few neighbours of few long slabs: each part of a slab has a block of
its own, and a first launch leaves what parts come to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines import scan_slabs
from bolt_build.families.portable.kernels.lines.scan_slabs import REGISTERS, THREADS, ScanSlabTile, slabs_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_PARTS, _MOST, _TOTAL = (8 << 10, 16 << 10, 32 << 10, 64 << 10), 2048, 8
"""Bytes of a part that are tried, parts of a slab at most, and bytes of what one comes to for a column."""


@dataclass(frozen=True)
class ScanPartsTile(NumberTile):
    """A block has `rows` of a slab."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("rows",)

    rows: int


def _of_block(tile: ScanPartsTile) -> ScanSlabTile:
    return ScanSlabTile(1, tile.rows)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ScanPartsTile]:
    _, extent, inner = slabs_of(problem)
    found = (part // (inner * problem.inputs[0].format.dtype.nbytes) // 8 * 8 for part in _PARTS)
    yield from (ScanPartsTile(rows) for rows in dict.fromkeys(found) if 0 < rows < extent)


def _refuse_tile(problem: KernelProblem, tile: ScanPartsTile, gpu: Gpu) -> str | None:
    _, extent, inner = slabs_of(problem)
    if tile.rows >= extent:
        return Reason("{} rows are all of a slab's {}", tile.rows, extent)
    if (cuts := ceil(extent / tile.rows)) > _MOST:
        return Reason("{} parts of a slab are more than the {} that a block adds up", cuts, _MOST)
    return scan_slabs.refuse_shared_of(problem, _of_block(tile), gpu, inner)


_REACHED, _LAUNCH, _BLOCK, _ASKED, _AT_ONCE = 0.75, 1.2e-6, 2.2e-6, 0.6e-6, 8
"""Guesses: the part of the bandwidth; seconds in which a launch begins and ends; those of a block's accesses and
barriers; and those of a round of totals, of which a thread asks for so many at once."""


def _seconds(problem: KernelProblem, tile: ScanPartsTile, target: Target) -> float:
    gpu, (slabs, extent, inner) = target.gpu, slabs_of(problem)
    assert gpu is not None, "forms are for GPUs"
    cuts = ceil(extent / tile.rows)
    blocks, there = slabs * cuts, occupancy(THREADS, REGISTERS, scan_slabs.shared_of(problem, _of_block(tile)), gpu)
    rounds = ceil(cuts / (THREADS // inner) / _AT_ONCE)
    # What the first launch has read is in L2 for the second one, where it has room there.
    again = problem.inputs[0].nbytes * (0.5 if problem.inputs[0].nbytes < gpu.l2 else 1.0)
    memory = moved(problem.nbytes + int(again), target) / _REACHED
    added = 1.5 * slabs * extent * inner / scan_slabs.ELEMENTS / min(gpu.sms, blocks)
    waits = ceil(blocks / (gpu.sms * there)) * (2 * _BLOCK + rounds * _ASKED)
    return float(max(memory, added, waits) + 2 * (_LAUNCH + OVERLAPPED * target.launch_seconds))


def _emit(problem: KernelProblem, tile: ScanPartsTile, at: StepExpressions) -> StepCode:
    slabs, extent, inner = slabs_of(problem)
    code = scan_slabs.call_of(problem, _of_block(tile), ", 0", at)
    scratch = slabs * ceil(extent / tile.rows) * inner * _TOTAL
    return StepCode(code.includes, "bolt::portable::SharedTotals", str(scratch), code.call)


FORM: Form[ScanPartsTile] = Form(
    "slab_parts",
    lambda problem: slabs_of(problem)[2] > 1,
    scan_slabs.refuse_slabs,
    _tiles,
    _refuse_tile,
    _seconds,
    ScanPartsTile.read,
    _emit,
)
