"""Bits that are read as another type: the input's bytes."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.portable.rule import Rule, no_epilogue
from bolt_build.graph.ops.elementwise.bit_cast import BitCast


def _refuse(problem: KernelProblem) -> str | None:
    """Types as the model has them: what is stored in another has other bits."""
    given, made = (operand.format.dtype for operand in (problem.inputs[0], problem.outputs[0]))
    if given.nbytes != made.nbytes:
        return f"bits of {given.value} are none of {made.value}"
    return no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    """A copy of all bytes, for where the planner cannot make it a view."""
    x = problem.inputs[0]
    types = MOVED[x.format.dtype.nbytes]
    call = f"bolt::portable::concat<{types}>(r, 1, {{{{{at.inputs[0]}, {x.type.elements}}}}}, {at.outputs[0]});"
    return StepCode(("bolt_portable/move.h",), None, "", call)


RULES = (Rule(BitCast, _refuse, _emit, lambda problem: 1.0, is_view=lambda problem: True),)
