"""Functions of whole lines along an axis."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue
from bolt_build.graph.ops.line import Line

_FUNCTIONS = {"log_softmax": "LogSoftmax", "hardmax": "Hardmax"}


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Line)
    outer, axis, inner = around(problem.outputs[0], op.axis)
    parameters = struct("bolt::portable::Line", outer=outer, axis=axis, inner=inner)
    types = f"{COMPUTED[problem.inputs[0].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"
    function = f"bolt::portable::{_FUNCTIONS[op.function]}"
    call = f"bolt::portable::line<{function}, {types}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/line.h",), None, "", call)


RULES = (Rule(Line, _refuse, _emit, lambda problem: 0.002, gpu_bandwidth=lambda problem: 0.3, in_place=(0,)),)
