"""A kernel problem in one line, in the words of the graph's text form."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, Operand
from bolt_build.graph.ir import EpilogueOp, Layout, Op
from bolt_build.graph.text import format_op, format_type


def describe_problem(problem: KernelProblem) -> str:
    """For example `conv(f16[8,64,56,56] channels_last, f16[64,64,3,3]) strides=[1,1] | relu -> f16[8,64,56,56] ...`.

    Products in one kernel stand behind each other, `matmul(f16[8,64], f16[64,32]) | relu | matmul(_, f16[32,16])`: `_`
    is what the first leaves, and operands of stages are counted over the inputs of all. At the end stands `unpadded` or
    `padded to 8` where the recipe says so.
    """
    calls: list[str] = []
    for call in problem.calls:
        own = [_operand(problem.inputs[index]) for index in call.inputs]
        calls.append(_call(call.op, ["_", *own] if calls else own, call.stages))
    return f"{' | '.join(calls)} -> {', '.join(map(_operand, problem.outputs))}{_padding(problem.padding)}"


def _padding(padding: int | None) -> str:
    if padding is None:
        return ""
    return f" padded to {padding}" if padding else " unpadded"


def _call(op: Op, operands: list[str], epilogue: tuple[EpilogueOp, ...]) -> str:
    word, attributes = format_op(op)
    stages = "".join(f" | {_stage(stage)}" for stage in epilogue)
    return f"{word}({', '.join(operands)}){attributes}{stages}"


def _operand(operand: Operand) -> str:
    # Row-major goes without saying: constants are never anything else.
    order = "" if operand.format.layout is Layout.ROW else f" {operand.format.layout.value}"
    return f"{format_type(operand.type)}{order}"


def _stage(stage: EpilogueOp) -> str:
    word, attributes = format_op(stage.op)
    operand = "" if stage.operand is None else f"(@{stage.operand})"
    return f"{word}{operand}{attributes}{' swapped' if stage.swapped else ''}"
