"""Quantisation of elements: functions of numbers with their scales and zero points, in one loop nest."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.rule import Rule
from bolt_build.families.portable.typed import ctype, emit_pointwise, refuse_pointwise
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.quantize import (
    Dequantize,
    FakeQuantize,
    Quantize,
    RangeQuantize,
    RangeScale,
    RangeZero,
    Requantize,
    ScaleSums,
)

_FUNCTIONS: dict[type[Op], str] = {
    Quantize: "Quantize", Dequantize: "Dequantize", Requantize: "Requantize", ScaleSums: "ScaleSums",
    RangeScale: "RangeScale", RangeZero: "RangeZero", RangeQuantize: "RangeQuantize", FakeQuantize: "FakeQuantize",
}  # fmt: skip
_TYPED = (Quantize, FakeQuantize, Requantize)
"""Operators whose function names the type that is rounded to."""


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    name = f"bolt::portable::{_FUNCTIONS[type(problem.op)]}"
    if isinstance(problem.op, _TYPED):
        name += f"<{ctype(problem.op.to)}>"
    code = emit_pointwise(problem, at, f"{name}{{}}")
    return replace(code, includes=("bolt_portable/quantize.h",))


def _fast(problem: KernelProblem) -> float:
    return 0.1


RULES = tuple(Rule(op, refuse_pointwise, _emit, _fast) for op in _FUNCTIONS)
