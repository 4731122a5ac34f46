"""Matrix products, plainly."""

from __future__ import annotations

from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import bias, chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.kernels.products import few_row_products, half_products, narrow_products
from bolt_build.families.portable.kernels.products.product_loops import batch_loops, matmul_parameters
from bolt_build.families.portable.rule import Rule, computed_only, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.matmul import MatMul


def _refuse(problem: KernelProblem) -> str | None:
    reason = computed_only(problem) or refuse_stages(problem, axis=len(problem.outputs[0].shape) - 1)
    if reason is not None:
        return reason
    count = len(batch_loops(problem))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


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
"""Rows and columns from which a GPU computes products in tiles (`least_tiled` of `tiles.h`), and parts of the peak rate
of fp32 that are expected of tiles, and where a thread computes each result by itself. Guesses, not measured."""


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
    Rule(
        MatMul,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        gpu_single=_single,
        layouts=row_major,
        forms=(half_products.FORM, narrow_products.FORM, few_row_products.FORM),
    ),
)
