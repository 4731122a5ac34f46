"""The walk of rows down decision trees."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.graph.ops.learned.trees import TreeLeaves

_STEP = 0.45e-6
"""Seconds of one step on a GPU, as measured on an H100: a node, and behind it the number that it asks about."""


def _refuse(problem: KernelProblem) -> str | None:
    x, thresholds = (operand.format.dtype for operand in problem.inputs[:2])
    if x not in COMPUTED or thresholds is not DType.F32:
        return f"compares numbers of {', '.join(each.value for each in COMPUTED)} with thresholds of f32"
    return no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (x, thresholds, _, roots) = problem.op, problem.inputs
    assert isinstance(op, TreeLeaves)
    parameters = struct(
        "bolt::portable::TreeLeaves",
        rows=x.shape[0],
        columns=x.shape[1],
        nodes=thresholds.shape[0],
        trees=roots.shape[0],
        depth=op.depth,
    )
    arguments = ", ".join((parameters, *at.inputs, at.outputs[0]))
    call = f"bolt::portable::tree_leaves<{COMPUTED[x.format.dtype]}>(r, {arguments});"
    return StepCode(("bolt_portable/trees.h",), None, "", call)


def _depth(problem: KernelProblem) -> int:
    assert isinstance(problem.op, TreeLeaves)
    return problem.op.depth


RULES = (
    Rule(
        TreeLeaves, _refuse, _emit, lambda problem: 0.01, gpu_efficiency=0.006, gpu_bandwidth=lambda problem: 0.6,
        gpu_latency=lambda problem: _STEP * _depth(problem), layouts=row_major,
    ),
)  # fmt: skip
