"""Whether a target has tensor cores for a problem."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.targets import Target


def refuse_target(problem: KernelProblem, target: Target) -> str | None:
    """Why no tensor core of the target computes what the problem stores; None where one does."""
    if target.gpu is None or target.gpu.instruction("fp16") is None:
        return f"target '{target.name}' has no tensor cores"
    if problem.outputs[0].format.dtype is DType.BF16 and target.gpu.instruction("bf16") is None:
        return f"tensor cores of target '{target.name}' have no bf16"
    if not all(operand.type.elements for operand in (*problem.inputs, *problem.outputs)):
        return "has a tensor without elements"
    return None
