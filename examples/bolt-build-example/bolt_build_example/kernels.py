"""A kernel family that joins the targets `host` and `h200`, and our own: kernels of our operator, and another Softmax.

A family of rules has one kernel an operator, as C++ templates under `include/`. Any object with the methods of
`bolt_build.families.base.Family`, and `joins`, can be a family.
"""

from __future__ import annotations

from pathlib import Path

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.family import RuleFamily
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build_example.distances import Distances


def _types(problem: KernelProblem) -> str:
    """`float, float, bolt::portable::f16`: the C++ types of a problem's tensors."""
    return ", ".join(COMPUTED[operand.format.dtype] for operand in (*problem.inputs, *problem.outputs))


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit_distances(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Distances)
    (rows, length), (others, _) = (operand.shape for operand in problem.inputs)
    parameters = struct(
        "bolt_nearest::Distances", rows=rows, others=others, length=length, squared=boolean(op.squared),
        negated=boolean(op.negated),
    )  # fmt: skip
    call = f"bolt_nearest::distances<{_types(problem)}>(r, {parameters}, {', '.join((*at.inputs, *at.outputs))});"
    return StepCode(("bolt_nearest/distances.h",), None, "", call)


def _refuse_softmax(problem: KernelProblem) -> str | None:
    assert isinstance(problem.op, Softmax)
    (source,) = problem.inputs
    if len(source.shape) != 2 or problem.op.axis != 1:
        return "takes the last axis of two"
    return _refuse(problem)


def _emit_softmax(problem: KernelProblem, at: StepExpressions) -> StepCode:
    lines, count = problem.inputs[0].shape
    parameters = struct("bolt_nearest::Softmax", lines=lines, count=count)
    call = f"bolt_nearest::softmax<{_types(problem)}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_nearest/softmax.h",), None, "", call)


# What part of the peak they reach decides whether the planner takes them: on GPUs the measurements of `tune` do. These
# two are not measured; two passes over a line instead of three are taken to be worth something.
RULES = (
    Rule(Distances, _refuse, _emit_distances, lambda problem: 0.02, gpu_efficiency=0.0003),
    Rule(Softmax, _refuse_softmax, _emit_softmax, lambda problem: 0.003, in_place=(0,)),
)

FAMILY = RuleFamily(
    "nearest", {rule.op: rule for rule in RULES}, Path(__file__).parent / "include", joins=("host", "h200", "toy")
)
