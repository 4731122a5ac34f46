"""Matrix products, plainly."""

from __future__ import annotations

from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import bias, chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.rule import Rule, computed_only, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.matmul import MatMul


def batch_loops(problem: KernelProblem) -> tuple[Loop, ...]:
    """Loops over the matrices of a product, with the steps of both factors; 0 where one is broadcast."""
    shape = problem.outputs[0].shape
    sides = []
    for index in op_operands(problem)[:2]:
        operand = problem.inputs[index]
        extents = aligned(operand.shape, len(shape))
        steps = (0,) * (len(shape) - len(operand.shape)) + strides(operand)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(extents, steps, strict=True)))
    return merged((Loop(extent, (sides[0][i], sides[1][i])) for i, extent in enumerate(shape[:-2])), 2)


def _refuse(problem: KernelProblem) -> str | None:
    reason = computed_only(problem) or refuse_stages(problem, axis=len(problem.outputs[0].shape) - 1)
    if reason is not None:
        return reason
    count = len(batch_loops(problem))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def matmul_parameters(problem: KernelProblem, op: MatMul) -> str:
    """C++ for the extents and steps of a product, whose factors are its op's first two inputs."""
    own = op_operands(problem)
    m, n = problem.outputs[0].shape[-2:]
    k = problem.inputs[own[0]].shape[-2 if op.transpose_a else -1]
    loops = batch_loops(problem)
    return struct(
        "bolt::portable::MatMul",
        batch_rank=len(loops),
        batch=braces(loop.extent for loop in loops),
        a_batch=braces(loop.steps[0] for loop in loops),
        b_batch=braces(loop.steps[1] for loop in loops),
        m=m,
        n=n,
        k=k,
        a_row=1 if op.transpose_a else k,
        a_column=m if op.transpose_a else 1,
        b_row=1 if op.transpose_b else n,
        b_column=k if op.transpose_b else 1,
    )


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, MatMul)
    own = op_operands(problem)
    operands = (problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0])
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in operands)
    before = tuple(bias(problem, at, index) for index in own[2:])
    call = (
        f"bolt::portable::matmul<{types}>(r, {matmul_parameters(problem, op)}, {at.inputs[own[0]]}, "
        f"{at.inputs[own[1]]}, {at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/matmul.h",), None, "", call)


LEAST_TILED, TILED, SCALAR = 16, 0.4, 0.005
"""Rows and columns from which a GPU computes products in tiles (`least_tiled` of cuda/tiles.h), and parts of the peak
rate of fp32 that are expected of tiles, and where a thread computes each result by itself. Guesses, not measured."""


def single_efficiency(rows: int, columns: int) -> float:
    """The part of a GPU's peak rate of fp32 that a product of so many rows and columns is expected to reach."""
    if min(rows, columns) < LEAST_TILED:
        return SCALAR
    whole = rows / (64 * ceil(rows / 64)) * columns / (64 * ceil(columns / 64))
    return TILED * whole


def _single(problem: KernelProblem) -> float:
    rows, columns = problem.outputs[0].shape[-2:]
    return single_efficiency(rows, columns)


RULES = (
    Rule(MatMul, _refuse, _emit, lambda problem: 0.02, gpu_efficiency=0.0003, gpu_single=_single, layouts=row_major),
)
