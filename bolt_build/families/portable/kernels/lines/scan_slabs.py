"""How a GPU finds running sums and products across few neighbours: all lines side by side are one run of memory, which
comes to shared memory in whole accesses, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.reductions.folds import COUNTED
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.targets import Gpu, Target

THREADS, _ACCESS, REGISTERS = 512, 16, 48
"""Threads of a block, bytes of an access, and registers of a thread."""
_PARTS = (16 << 10, 32 << 10, 48 << 10)
"""Bytes of a part that are tried."""


@dataclass(frozen=True)
class ScanSlabTile(NumberTile):
    """`rows` of a slab come at once: all of them, or parts, of which two are in shared memory (`stages`)."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("rows",)

    stages: int
    rows: int


@dataclass(frozen=True)
class ScanClusterTile(NumberTile):
    """The `cluster` blocks of a slab have as many of its rows each."""

    cluster: int


def slabs_of(problem: KernelProblem) -> tuple[int, int, int]:
    """Slabs, rows of each, and lines side by side."""
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    return prod(x.shape[: op.axis]), x.shape[op.axis], prod(x.shape[op.axis + 1 :])


def shared_of(problem: KernelProblem, tile: ScanSlabTile) -> int:
    """Bytes of shared memory of a block (`ScanSlabs`)."""
    row = slabs_of(problem)[2] * problem.inputs[0].format.dtype.nbytes
    return tile.stages * (ceil(tile.rows * row / _ACCESS) * _ACCESS + 2 * _ACCESS)


def refuse_slabs(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no block has slabs of the problem, None where one may."""
    elements, inner = problem.inputs[0].type.elements, slabs_of(problem)[2]
    if not gpu.async_copies:
        return "copies to shared memory run beside a block's work from sm_80 on"
    if elements == 0:
        return "there are no elements"
    if elements > COUNTED:
        return Reason("{} elements are more than the {} that it counts", elements, COUNTED)
    return Reason("{} lines are more than the {} threads of a block", inner, THREADS) if inner > THREADS else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ScanSlabTile]:
    _, extent, inner = slabs_of(problem)
    yield ScanSlabTile(1, extent)
    found = (part // (inner * problem.inputs[0].format.dtype.nbytes) // 8 * 8 for part in _PARTS)
    yield from (ScanSlabTile(2, rows) for rows in dict.fromkeys(found) if 0 < rows < extent)


def _refuse_tile(problem: KernelProblem, tile: ScanSlabTile, gpu: Gpu) -> str | None:
    extent = slabs_of(problem)[1]
    if tile.stages not in (1, 2):
        return Reason("one part or two are in shared memory, not {}", tile.stages)
    if tile.rows > extent or (tile.stages == 1) != (tile.rows == extent):
        return Reason("of {} rows {} do not come in {} parts at once", extent, tile.rows, tile.stages)
    return refuse_shared(shared_of(problem, tile) + THREADS * 8, gpu)


def refuse_shared_of(problem: KernelProblem, tile: ScanSlabTile, gpu: Gpu, more: int) -> str | None:
    """The same of shared memory, with `more` totals beside those of a block's threads."""
    return refuse_shared(shared_of(problem, tile) + (THREADS + more) * 8, gpu)


_REACHED, _BEGIN, _PART, ELEMENTS, _JOINED = 0.75, 2.0e-6, 0.3e-6, 6.3e9, 300
"""The part of the bandwidth; seconds of a slab's first and last accesses, and of a part's barriers; elements that a
multiprocessor adds up in a second; and parts of a column that take as long as an element's two rows. As an H200 took an
earlier form, which had over three times the instructions."""


def _seconds(problem: KernelProblem, tile: ScanSlabTile, target: Target) -> float:
    gpu, (slabs, extent, inner) = target.gpu, slabs_of(problem)
    assert gpu is not None, "forms are for GPUs"
    there = occupancy(THREADS, REGISTERS, shared_of(problem, tile), gpu)
    of_one = ceil(slabs / gpu.sms) if slabs < 4 * gpu.sms else slabs / gpu.sms
    joined = 1 + THREADS // inner / _JOINED
    added = of_one * extent * inner / ELEMENTS * joined
    waits = ceil(slabs / (gpu.sms * there)) * (_BEGIN + ceil(extent / tile.rows) * _PART)
    # Of one slab a multiprocessor computes or waits for memory, of several one does and another.
    alone = moved(problem.nbytes, target) * 0.5 if there == 1 else 0.0
    memory = moved(problem.nbytes, target) / _REACHED * of_one * gpu.sms / slabs
    return float(max(memory, added) + alone + waits + OVERLAPPED * target.launch_seconds)


def call_of(problem: KernelProblem, tile: ScanSlabTile, more: str, at: StepExpressions) -> StepCode:
    """The call for such parts; `more` is what the kernel is compiled with behind all else."""
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    function, first = ("Add", 0) if isinstance(op, CumSum) else ("Mul", 1)
    sizes = f"{tile.stages}, {slabs_of(problem)[2]}, {boolean(op.exclusive)}, {boolean(op.reverse)}"
    how = f"{sizes}, {ctype(x.format.dtype)}, bolt::portable::typed::{function}{more}"
    given = f"{lines_text(x, op.axis)}, {tile.rows}, {at.inputs[0]}, {at.outputs[0]}, {first}"
    header = ("bolt_portable/cuda/lines/scan_slabs.h",)
    return StepCode(header, None, "", f"bolt::portable::scan_slabs<{how}>(r, {given});")


def _emit(problem: KernelProblem, tile: ScanSlabTile, at: StepExpressions) -> StepCode:
    return call_of(problem, tile, "", at)


_CLUSTERS = (2, 4, 8)
"""Blocks that share a slab."""
_MEETS, _CLUSTER = 1.2e-6, 0.35e-6
"""Guesses at seconds in which blocks of a cluster begin together and tell each other what their parts come to, and for
each step of its size, in powers of two."""


def _of_block(problem: KernelProblem, tile: ScanClusterTile) -> ScanSlabTile:
    """The rows that a block of a cluster has."""
    return ScanSlabTile(1, ceil(slabs_of(problem)[1] / tile.cluster))


def _refuse_clusters(problem: KernelProblem, gpu: Gpu) -> str | None:
    return refuse_slabs(problem, gpu) if gpu.warpgroup_mma else "blocks form clusters from sm_90 on"


def _refuse_cluster(problem: KernelProblem, tile: ScanClusterTile, gpu: Gpu) -> str | None:
    (_, extent, inner), rows = slabs_of(problem), _of_block(problem, tile).rows
    if tile.cluster not in _CLUSTERS:
        return "there are clusters of 2, 4 or 8 blocks"
    if (tile.cluster - 1) * rows >= extent:
        return Reason("{} rows are not the shares of {} blocks", extent, tile.cluster)
    return refuse_shared(shared_of(problem, _of_block(problem, tile)) + (THREADS + inner) * 8, gpu)


def _seconds_of_cluster(problem: KernelProblem, tile: ScanClusterTile, target: Target) -> float:
    gpu, (slabs, _, inner) = target.gpu, slabs_of(problem)
    assert gpu is not None, "forms are for GPUs"
    own, blocks = _of_block(problem, tile), slabs * tile.cluster
    there = occupancy(THREADS, REGISTERS, shared_of(problem, own), gpu)
    of_one = ceil(blocks / gpu.sms) if blocks < 4 * gpu.sms else blocks / gpu.sms
    added = of_one * own.rows * inner / ELEMENTS * (1 + THREADS // inner / _JOINED)
    met = _BEGIN + _MEETS + _CLUSTER * log2(tile.cluster)
    waits = ceil(slabs / clusters_at_once(tile.cluster, there, gpu)) * met
    memory = moved(problem.nbytes, target) / _REACHED * of_one * gpu.sms / blocks
    alone = moved(problem.nbytes, target) * 0.5 if there == 1 or blocks <= gpu.sms else 0.0
    return float(max(memory, added) + alone + waits + OVERLAPPED * target.launch_seconds)


def _emit_cluster(problem: KernelProblem, tile: ScanClusterTile, at: StepExpressions) -> StepCode:
    return call_of(problem, _of_block(problem, tile), f", {tile.cluster}", at)


FORM: Form[ScanSlabTile] = Form(
    "slabs",
    lambda problem: slabs_of(problem)[2] > 1,
    refuse_slabs,
    _tiles,
    _refuse_tile,
    _seconds,
    ScanSlabTile.read,
    _emit,
)
CLUSTERS: Form[ScanClusterTile] = Form(
    "cluster_slabs",
    lambda problem: slabs_of(problem)[2] > 1,
    _refuse_clusters,
    lambda problem, gpu: (
        tile
        for tile in map(ScanClusterTile, _CLUSTERS)
        if (tile.cluster - 1) * _of_block(problem, tile).rows < slabs_of(problem)[1]
    ),
    _refuse_cluster,
    _seconds_of_cluster,
    ScanClusterTile.read,
    _emit_cluster,
)
