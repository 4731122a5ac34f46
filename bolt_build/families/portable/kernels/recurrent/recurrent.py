"""The steps of recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.recurrent import half_recurrent
from bolt_build.families.portable.kernels.recurrent.recurrent_tensors import arguments
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.recurrent.recurrent import Recurrent
from bolt_build.targets import Gpu, Target

_THREADS, _PARTS = 512, 8
"""Of the CUDA driver: threads of a block, and parts of the depth that threads of their own multiply."""
_ACCESS = 16
"""Bytes that one of its threads reads at once, where neighbours are there."""
_ROWS, _LANES = (1, 2, 4), (8, 4, 2, 1)
"""Rows of the batch that a block may have, and neighbouring weights that a thread may read at once."""


@dataclass(frozen=True)
class RowsTile(NumberTile):
    """A block has so many `rows` of the batch; its threads read `lanes` neighbouring weights at once."""

    rows: int
    lanes: int

    def shared(self, hidden: int, columns: int) -> int:
        """Bytes of shared memory of a block: states, cells, what resets leave, and partial sums of gates."""
        parts = 1
        while parts < _PARTS and 2 * parts * (columns // self.lanes) <= _THREADS:
            parts *= 2
        return 4 * self.rows * (3 * hidden + parts * columns)


def _plain(problem: KernelProblem) -> RowsTile:
    """A row a block, whose weights are read as many at once as an instruction can: the other tiles are stated."""
    weights = problem.inputs[1]
    return RowsTile(1, next(n for n in _LANES if _reads(n, weights)))


def _reads(lanes: int, weights: Operand) -> bool:
    return lanes * weights.format.dtype.nbytes <= _ACCESS and weights.shape[1] % lanes == 0


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[RowsTile]:
    """All but the plain one."""
    yield from (
        tile for tile in (RowsTile(rows, lanes) for rows in _ROWS for lanes in _LANES) if tile != _plain(problem)
    )


def _refuse_shared(problem: KernelProblem, tile: RowsTile, gpu: Gpu) -> str | None:
    _, hidden, columns = problem.inputs[1].shape
    if (needed := tile.shared(hidden, columns)) <= gpu.shared_memory:
        return None
    what = "{} hidden units need {} bytes of shared memory, of which a block has {}"
    if tile.rows == 1:
        return Reason(what, hidden, needed, gpu.shared_memory)
    return Reason("{} rows of " + what, tile.rows, hidden, needed, gpu.shared_memory)


def _refuse_tile(problem: KernelProblem, tile: RowsTile, gpu: Gpu) -> str | None:
    weights, batch = problem.inputs[1], problem.outputs[0].shape[1]
    if tile == _plain(problem) or tile.rows not in _ROWS or tile.lanes not in _LANES:
        return "there are kernels of 1, 2 or 4 rows that read 1, 2, 4 or 8 weights at once, beside the plain one"
    if not _reads(tile.lanes, weights):
        what = "{} hidden units have no aligned loads of {} weights of {} bytes"
        return Reason(what, weights.shape[1], tile.lanes, weights.format.dtype.nbytes)
    if tile.rows > batch:
        return Reason("a batch of {} has no {} rows for a block", batch, tile.rows)
    return _refuse_shared(problem, tile, gpu)


def _refuse(problem: KernelProblem) -> str | None:
    assert isinstance(problem.op, Recurrent)
    if (reason := no_epilogue(problem)) is not None:
        return reason
    for index, operand in enumerate((*problem.inputs, *problem.outputs)):
        is_lengths = "lengths" in problem.op.given and index == len(problem.inputs) - 1
        if not is_lengths and operand.format.dtype not in COMPUTED:
            names = ", ".join(dtype.value for dtype in COMPUTED)
            return f"computes with {names}, not with {operand.format.dtype.value}"
    return None


def _refuse_gpu(problem: KernelProblem, gpu: Gpu) -> str | None:
    return _refuse_shared(problem, _plain(problem), gpu)


def _emit(problem: KernelProblem, tile: RowsTile, at: StepExpressions) -> StepCode:
    layer, cell, tensors = arguments(problem, at)
    call = f"bolt::portable::recurrent<{tile.rows}, {tile.lanes}>(r, {layer}, {cell}, {tensors});"
    return StepCode(("bolt_portable/recurrent.h",), None, "", call)


_WAIT = 2e-6
"""Seconds of a step in which the threads of a block wait for each other and for L2's first weights."""
_L2 = 2.0
"""Bandwidth of the L2 cache, in that of the memory."""
_BLOCK = {16: 4.5e10, 8: 2.5e10, 4: 1.3e10, 2: 1.2e10}
"""Bytes/s that one multiprocessor reads from L2 at most, by how many a thread reads at once: of 16 and 2 what kernels
for six layers reached on an H100, between them guesses."""
_ARITHMETIC = 0.5
"""The part of a GPU's peak rate in single precision that products of a few rows reach: a guess, as the wait is and the
cache's bandwidth."""


def _seconds(problem: KernelProblem, tile: RowsTile, target: Target) -> float:
    """Every block reads all weights of its direction at every step, from L2, and multiplies them with its rows."""
    gpu, weights = target.gpu, problem.inputs[1]
    assert gpu is not None, "tiles are of GPUs"
    steps, batch, _ = problem.inputs[0].shape
    directions, hidden, columns = weights.shape
    blocks = directions * ceil(batch / tile.rows)
    busy = min(blocks, gpu.sms)
    rate = _BLOCK[tile.lanes * weights.format.dtype.nbytes]
    read = hidden * columns * weights.format.dtype.nbytes / min(rate, _L2 * target.bandwidth / busy)
    multiply = 2 * tile.rows * hidden * columns / (target.rate("fp32") / gpu.sms * _ARITHMETIC)
    a_step = ceil(blocks / gpu.sms) * (_WAIT + max(read, multiply))
    return max(steps * a_step, problem.nbytes / target.bandwidth) + target.launch_seconds


FORM: Form[RowsTile] = Form(
    "rows", lambda problem: isinstance(problem.op, Recurrent), lambda problem, gpu: None, _tiles, _refuse_tile,
    _seconds, RowsTile.read, _emit,
)  # fmt: skip
RULES = (
    Rule(
        Recurrent, _refuse, lambda problem, at: _emit(problem, _plain(problem), at), lambda problem: 0.1,
        gpu_seconds=lambda problem, target: _seconds(problem, _plain(problem), target), layouts=row_major,
        refuse_gpu=_refuse_gpu, forms=(FORM, half_recurrent.FORM),
    ),
)  # fmt: skip
