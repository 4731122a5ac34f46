"""How a GPU normalises several long rows at once: threads hold the same columns of all of them, and read scale and bias
once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_held import CLUSTERS, resident
from bolt_build.families.portable.kernels.norms.norm_loops import Loops, loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes, serves
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

ROWS, MOST_THREADS = (4, 8, 16), 512
"""Rows of a block, and threads of one at most."""


@dataclass(frozen=True)
class BatchTile(NumberTile):
    """The `cluster` blocks of so many `threads` have so many `rows` at once, and a thread `LANES` columns of each."""

    rows: int
    threads: int
    cluster: int


def _threads(extent: int, cluster: int) -> int:
    """Of a block: as few whole warps as have all columns."""
    return ceil(extent / (LANES * cluster * WARP)) * WARP


def _many(loops: Loops) -> int:
    return prod(loop.extent for loop in loops.kept)


def tiles(extent: int) -> Iterator[BatchTile]:
    for cluster in CLUSTERS:
        threads = _threads(extent, cluster)
        if WARP < threads <= MOST_THREADS:
            yield from (BatchTile(rows, threads, cluster) for rows in ROWS)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    return None if loops_of(problem).shares_operands else "rows have scales or biases of their own"


def refuse_tile(tile: BatchTile, loops: Loops, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises rows so on this GPU, None where one does."""
    if tile.rows not in ROWS or tile.cluster not in CLUSTERS:
        return "there are kernels of 4, 8 or 16 rows, and of 1, 2, 4 or 8 blocks"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.threads != (threads := _threads(loops.neighbours, tile.cluster)) or threads > MOST_THREADS:
        what = "{} columns are those of {} threads in each of {} blocks, which have {} at most"
        return Reason(what, loops.neighbours, threads, tile.cluster, MOST_THREADS)
    if tile.rows > (many := _many(loops)):
        return Reason("{} rows are fewer than the {} of a block", many, tile.rows)
    if not resident(tile.threads, tile.rows, element, gpu):
        return Reason("{} rows of each of {} threads are more than a multiprocessor holds", tile.rows, tile.threads)
    return None


_FIXED, _MEMORY, _EMPTY, _FULL, _SPREAD = 4.0e-6, 1.05, 0.57, 768, 0.35
"""Seconds in which loads, sums and stores wait for each other, and what memory takes; what is added where a
multiprocessor has no threads at all, and below how many it is; and how much less few blocks take than their part of the
multiprocessors. Fitted to seven kernels on an H100."""
_OPERANDS = 0.8
"""A guess at what scale and bias of one row add, which L2 reads for all rows of a block."""


def _seconds(problem: KernelProblem, tile: BatchTile, target: Target) -> float:
    loops, gpu = loops_of(problem), target.gpu
    assert gpu is not None, "batches are for GPUs"
    blocks = ceil(_many(loops) / tile.rows) * tile.cluster
    threads = resident(tile.threads, tile.rows, element_bytes(problem), gpu) * tile.threads
    memory = moved(bytes_of(problem), target) / min(1.0, blocks / gpu.sms) ** _SPREAD
    empty = _EMPTY * max(0.0, 1 - threads / _FULL)
    return float(_FIXED + memory * (_MEMORY + _OPERANDS / tile.rows + empty))


def _emit(problem: KernelProblem, tile: BatchTile, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Norm)
    loops = loops_of(problem)
    early = all(problem.inputs[index].constant for index in op_operands(problem)[1:])
    shape = f"{tile.rows}, {tile.threads}, {tile.cluster}, {loops.neighbours}, {len(loops.kept)}"
    call = (
        f"bolt::portable::norm_in_batches<bolt::portable::BatchShape<{shape}>, {boolean(early)}, "
        f"{types_text(problem)}>(r, {norm_text(loops.kept, loops.reduced, op.epsilon)}, {pointers_text(problem, at)}, "
        f"{chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM: Form[BatchTile] = Form(
    "batches",
    lambda problem: serves(problem) and loops_of(problem).neighbours > 0,
    _refuse,
    lambda problem, gpu: tiles(loops_of(problem).neighbours),
    lambda problem, tile, gpu: refuse_tile(tile, loops_of(problem), element_bytes(problem), gpu),
    _seconds,
    BatchTile.read,
    _emit,
)
