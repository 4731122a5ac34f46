"""Comparisons, functions of booleans and of bits, and the choice between two tensors: element by element."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.form import AnyForm
from bolt_build.families.portable.kernels.elementwise.crossed import crossed_form
from bolt_build.families.portable.kernels.elementwise.flat import flat_form
from bolt_build.families.portable.kernels.elementwise.tiled import Points, points_of, tiled_form
from bolt_build.families.portable.rule import Rule
from bolt_build.families.portable.typed import (
    emit_pointwise,
    in_whole_points,
    pointwise_bandwidth,
    refuse_pointwise,
)
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.logic import Ask, Bitwise, Compare, Logic, Where

_COMPARISONS = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}  # fmt: skip
_QUESTIONS = {
    "nan": "IsNan", "inf": "IsInf<true, true>", "positive_inf": "IsInf<true, false>",
    "negative_inf": "IsInf<false, true>", "not": "Not",
}  # fmt: skip


def asked_type(op: Op) -> str:
    """`bolt::portable::typed::Greater`"""
    match op:
        case Compare(question):
            name = _COMPARISONS[question]
        case Logic(function):
            name = function.capitalize()
        case Bitwise(function):
            name = f"Bit{function.title().replace('_', '')}"
        case Ask(question):
            name = _QUESTIONS[question]
        case _:
            name = "Where"
    return f"bolt::portable::typed::{name}"


def _function(op: Op) -> str:
    return f"{asked_type(op)}{{}}"


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    return emit_pointwise(problem, at, _function(problem.op))


def _fast(problem: KernelProblem) -> float:
    return 0.1


def _points(problem: KernelProblem, at: StepExpressions | None) -> Points:
    return points_of(problem, _function(problem.op))


_FORMS = (flat_form(_points, lambda problem: pointwise_bandwidth(problem) == 1.0), tiled_form(_points, in_whole_points))


_CROSSED = crossed_form(_points, lambda op: _COMPARISONS[op.question])


def _rule(op: type[Op], inputs: int, *forms: AnyForm) -> Rule:
    """Each of the inputs may have the output's memory."""
    in_place = tuple(range(inputs))
    return Rule(
        op,
        refuse_pointwise,
        _emit,
        _fast,
        gpu_bandwidth=pointwise_bandwidth,
        in_place=in_place,
        forms=(*_FORMS, *forms),
    )


RULES = (_rule(Compare, 2, _CROSSED), _rule(Logic, 2), _rule(Bitwise, 2), _rule(Ask, 1), _rule(Where, 3))
