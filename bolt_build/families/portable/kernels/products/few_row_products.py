"""How a GPU multiplies few rows of few elements by a matrix of many columns in half precision: filters that each image
mixes of a few experts' (CondConv, dynamic convolutions). Such a product reads the matrix, and tiles of tensor cores
would have most of their rows empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod, sqrt

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Gpu, Target

MOST_ROWS, MOST_DEPTH = 64, 16
_EACH, _LANES = (1, 2, 4, 8), (8, 4, 2)
_HELD = 96
"""Numbers of the matrix and of results that a thread holds at most."""
_BLOCK = 256
"""Threads of a block (`block_threads` of cuda/launch.h)."""
_REACHED, _LOADS, _ROWS, _BLOCKS = 0.65, {8: 1.0, 4: 1.0, 2: 1.1}, 0.05, 5
"""The part of the bandwidth that is reached; how many times as long loads and stores of so many numbers take; and what
each row of a thread adds to one; blocks of a multiprocessor that keep memory busy. Fitted to 12 kernels on an H200, off
by a fifth at most."""
_RATE = 0.4
"""The part of the peak rate of fp32 that is expected: factors come from shared memory, one for every run of columns."""


@dataclass(frozen=True)
class FewRowsTile(NumberTile):
    """A thread has `lanes` columns of `each` rows."""

    each: int
    lanes: int


def _sizes(problem: KernelProblem) -> tuple[int, int, int]:
    """Rows, depth and columns."""
    a, (*leading, columns) = problem.inputs[op_operands(problem)[0]], problem.outputs[0].shape
    return prod(leading), a.shape[-1], columns


def _serves(problem: KernelProblem) -> bool:
    """Products with one matrix of whole rows on the right."""
    if not isinstance(problem.op, MatMul) or problem.op.transpose_a or problem.op.transpose_b:
        return False
    rows, depth, columns = _sizes(problem)
    b = problem.inputs[op_operands(problem)[1]]
    return rows <= MOST_ROWS and depth <= MOST_DEPTH < columns and prod(b.shape[:-2]) == 1


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    a, b = (problem.inputs[index].format.dtype for index in op_operands(problem)[:2])
    return None if a is b and a in HALVES else "multiplies factors that are both in f16, or both in bf16"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FewRowsTile]:
    rows, _, _ = _sizes(problem)
    for each in _EACH:
        if each == 1 or each < 2 * rows:
            yield from (FewRowsTile(each, lanes) for lanes in _LANES)


def _refuse_tile(problem: KernelProblem, tile: FewRowsTile, gpu: Gpu) -> str | None:
    if tile.each not in _EACH or tile.lanes not in _LANES:
        return "a thread has 1, 2, 4 or 8 rows, and 2, 4 or 8 columns"
    _, depth, columns = _sizes(problem)
    if columns % tile.lanes:
        return Reason("loads {} columns at once, {} is no multiple", tile.lanes, columns)
    held = tile.lanes * (tile.each + ceil(depth / 2))
    return Reason("a thread would hold {} numbers, at most {} stay in registers", held, _HELD) if held > _HELD else None


def _seconds(problem: KernelProblem, tile: FewRowsTile, target: Target) -> float:
    rows, depth, columns = _sizes(problem)
    matrix = problem.inputs[op_operands(problem)[1]].nbytes
    again = (ceil(rows / tile.each) - 1) * matrix
    # What is read again comes from L2.
    memory = (moved(problem.nbytes, target) + again / (3 * target.bandwidth)) / _REACHED * _LOADS[tile.lanes]
    memory *= 1 + _ROWS * tile.each
    arithmetic = 2 * rows * depth * columns / (_RATE * target.rate("fp32"))
    blocks = ceil(columns / tile.lanes / _BLOCK) * ceil(rows / tile.each)
    assert target.gpu is not None, "a form of GPUs"
    busy = min(1.0, blocks / (_BLOCKS * target.gpu.sms))
    return max(memory, arithmetic) / sqrt(busy) + OVERLAPPED * target.launch_seconds


def _emit(problem: KernelProblem, tile: FewRowsTile, at: StepExpressions) -> StepCode:
    own, (rows, depth, columns) = op_operands(problem), _sizes(problem)
    types = f"{COMPUTED[problem.inputs[own[0]].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"
    before = tuple(bias(problem, at, index) for index in own[2:])
    call = (
        f"bolt::portable::few_rows_matmul<{depth}, {tile.each}, {tile.lanes}, {types}>(r, {rows}, {columns}, "
        f"{at.inputs[own[0]]}, {at.inputs[own[1]]}, {at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/cuda/products/few_rows.h",), None, "", call)


FORM: Form[FewRowsTile] = Form("few_rows", _serves, _refuse, _tiles, _refuse_tile, _seconds, FewRowsTile.read, _emit)
