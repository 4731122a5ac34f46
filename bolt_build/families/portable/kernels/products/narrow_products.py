"""How a GPU multiplies rows of few elements by a small matrix in half precision: heads that talk to each other. Tiles
of tensor cores would be zeros for the most part, so threads have whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Gpu, Target

MOST = 16
"""Elements of a row of either side."""
_EACH = (4, 2, 1)
_HELD = 96
"""Numbers of its rows and of their results that a thread holds at most."""
_REACHED = 0.57
"""The part of the bandwidth that is reached: what 8 products took on an H100."""


@dataclass(frozen=True)
class NarrowTile(NumberTile):
    """A thread has so many rows."""

    each: int


def _sizes(problem: KernelProblem) -> tuple[int, int]:
    """The depth, and the columns."""
    a = problem.inputs[op_operands(problem)[0]]
    return a.shape[-1], problem.outputs[0].shape[-1]


def _serves(problem: KernelProblem) -> bool:
    """Products with one small matrix on the right."""
    if not isinstance(problem.op, MatMul) or problem.op.transpose_a:
        return False
    b = problem.inputs[op_operands(problem)[1]]
    return max(_sizes(problem)) <= MOST and prod(b.shape[:-2]) == 1


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    a, b = (problem.inputs[index].format.dtype for index in op_operands(problem)[:2])
    return None if a is b and a in HALVES else "multiplies factors that are both in f16, or both in bf16"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[NarrowTile]:
    yield from map(NarrowTile, _EACH)


def _refuse_tile(problem: KernelProblem, tile: NarrowTile, gpu: Gpu) -> str | None:
    if tile.each not in _EACH:
        return "a thread has 1, 2 or 4 rows"
    held = tile.each * sum(_sizes(problem))
    return Reason("a thread would hold {} numbers, at most {} stay in registers", held, _HELD) if held > _HELD else None


def _seconds(problem: KernelProblem, tile: NarrowTile, target: Target) -> float:
    # Of few rows more threads have fewer.
    short = 0.05e-6 * tile.each if prod(problem.outputs[0].shape[:-1]) < 1 << 18 else 0.0
    waits = 0.3e-6 / tile.each + short
    return moved(problem.nbytes, target) / _REACHED + OVERLAPPED * target.launch_seconds + waits


def _emit(problem: KernelProblem, tile: NarrowTile, at: StepExpressions) -> StepCode:
    op, own, (depth, columns) = problem.op, op_operands(problem), _sizes(problem)
    assert isinstance(op, MatMul)
    types = f"{COMPUTED[problem.inputs[own[0]].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"
    how = f"{depth}, {columns}, {tile.each}, {boolean(op.transpose_b)}, {types}"
    rows, before = prod(problem.outputs[0].shape[:-1]), tuple(bias(problem, at, index) for index in own[2:])
    call = (
        f"bolt::portable::narrow_matmul<{how}>(r, {rows}, {at.inputs[own[0]]}, {at.inputs[own[1]]}, "
        f"{at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/cuda/products/narrow_matmul.h",), None, "", call)


FORM: Form[NarrowTile] = Form(
    "narrow", _serves, _refuse, _tiles, _refuse_tile, _seconds, NarrowTile.read, _emit
)  # fmt: skip
