"""Which epilogues the kernels take, and their C++ types and values."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.functors import activation, activation_type, binary
from bolt_build.families.common.stages import Reach, spreads
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary

_SPACE = "bolt::cutlass_kernels"


def refuse_epilogue(problem: KernelProblem) -> str | None:
    """A reason why the stages behind the bias cannot be part of the kernel."""
    residuals = 0
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if isinstance(stage.op, Activation):
            continue
        if not isinstance(stage.op, Binary) or stage.operand is None:
            return f"an epilogue stage is an activation or a binary function, not {stage.op.kind}"
        operand = problem.inputs[stage.operand]
        if how is None or how.reach is not Reach.SAME or operand.constant:
            return f"an epilogue operand {list(operand.shape)} is no tensor like {list(problem.outputs[0].shape)}"
        if operand.format.dtype is not problem.outputs[0].format.dtype:
            return f"a residual is stored as {problem.outputs[0].format.dtype.value}, not {operand.format.dtype.value}"
        residuals += 1
    return Reason("reads one residual, not {}", residuals) if residuals > 1 else None


def residual(problem: KernelProblem) -> int | None:
    """Index of the input that is combined with the product, None where there is none."""
    return next((stage.operand for stage in problem.epilogue if stage.operand is not None), None)


def epilogue_type(problem: KernelProblem) -> str:
    """`bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Relu>>`"""
    return stages_type(problem.epilogue)


def stages_type(stages: Sequence[EpilogueOp]) -> str:
    """The same of some stages."""
    return f"{_SPACE}::Epilogue<{', '.join(_stage_type(stage) for stage in stages)}>"


def epilogue_value(problem: KernelProblem) -> str:
    """`bolt::cutlass_kernels::epilogue(bolt::cutlass_kernels::map(bolt::portable::Relu{}))`"""
    return stages_value(problem.epilogue)


def stages_value(stages: Sequence[EpilogueOp]) -> str:
    """The same of some stages."""
    return f"{_SPACE}::epilogue({', '.join(_stage_value(stage) for stage in stages)})"


def stage_words(problem: KernelProblem) -> str:
    """` | add | relu`, for people."""
    return "".join(f" | {name}" for name in words_of(problem.epilogue))


def words_of(stages: Sequence[EpilogueOp]) -> tuple[str, ...]:
    """The functions of some stages, by name."""
    return tuple(stage.op.function for stage in stages if isinstance(stage.op, Activation | Binary))


def _join(stage: EpilogueOp) -> str:
    assert isinstance(stage.op, Binary)
    return f"<{binary(stage.op)}, {'true' if stage.swapped else 'false'}>"


def _stage_type(stage: EpilogueOp) -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::Map<{activation_type(stage.op)}>"
    return f"{_SPACE}::Join{_join(stage)}"


def _stage_value(stage: EpilogueOp) -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::map({activation(stage.op)})"
    return f"{_SPACE}::join{_join(stage)}()"
