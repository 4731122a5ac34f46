"""A kernel problem in one line, in the words of the graph's text form."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, Operand
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.text import format_op, format_type


def describe_problem(problem: KernelProblem) -> str:
    """For example `conv(f16[8,64,56,56] channels_last, f16[64,64,3,3]) strides=[1,1] | relu -> f16[8,64,56,56] ...`."""
    word, attributes = format_op(problem.op)
    inputs = ", ".join(_operand(operand) for operand in problem.inputs)
    stages = "".join(f" | {_stage(stage)}" for stage in problem.epilogue)
    outputs = ", ".join(_operand(operand) for operand in problem.outputs)
    return f"{word}({inputs}){attributes}{stages} -> {outputs}"


def _operand(operand: Operand) -> str:
    # Row-major goes without saying: constants are never anything else.
    order = "" if operand.format.layout is Layout.ROW else f" {operand.format.layout.value}"
    return f"{format_type(operand.type)}{order}"


def _stage(stage: EpilogueOp) -> str:
    word, attributes = format_op(stage.op)
    operand = "" if stage.operand is None else f"(@{stage.operand})"
    return f"{word}{operand}{attributes}{' swapped' if stage.swapped else ''}"
