"""Which epilogues the kernels take, and their C++ types and values."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.functors import activation, activation_type, binary
from bolt_build.families.common.stages import Reach, Spread, spreads
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.conv import Conv

_SPACE = "bolt::cutlass_kernels"
_BIAS = "<bolt::portable::Add, false>"


def refuse_epilogue(problem: KernelProblem) -> str | None:
    """A reason why the stages behind the bias cannot be part of the kernel."""
    residuals, axis = 0, _channel_axis(problem)
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if isinstance(stage.op, Activation):
            continue
        if not isinstance(stage.op, Binary) or stage.operand is None:
            return f"an epilogue stage is an activation or a binary function, not {stage.op.kind}"
        operand = problem.inputs[stage.operand]
        if _reads_channel(problem, stage):
            if how is None or how != Spread(Reach.AXIS, axis):
                return f"a constant epilogue operand {list(operand.shape)} is not one number a channel"
            if operand.format.dtype is not DType.F32:
                return f"numbers of channels are stored as f32, not {operand.format.dtype.value}"
            continue
        if how is None or how.reach is not Reach.SAME:
            return f"an epilogue operand {list(operand.shape)} is no tensor like {list(problem.outputs[0].shape)}"
        if operand.format.dtype is not problem.outputs[0].format.dtype:
            return f"a residual is stored as {problem.outputs[0].format.dtype.value}, not {operand.format.dtype.value}"
        residuals += 1
    return Reason("reads one residual, not {}", residuals) if residuals > 1 else None


def residual(problem: KernelProblem) -> int | None:
    """Index of the tensor that is combined with the product, None where there is none."""
    return next((s.operand for s in problem.epilogue if s.operand is not None and not _reads_channel(problem, s)), None)


def channels(problem: KernelProblem) -> tuple[int, ...]:
    """Indices of the constants of channels that stages read, in the order of the stages."""
    return tuple(s.operand for s in problem.epilogue if s.operand is not None and _reads_channel(problem, s))


def refuse_channels(problem: KernelProblem) -> str | None:
    """A reason for kernels that do not say which channel they store."""
    return "stages that read numbers of channels are no part of this kernel" if channels(problem) else None


def _reads_channel(problem: KernelProblem, stage: EpilogueOp) -> bool:
    return stage.operand is not None and problem.inputs[stage.operand].constant


def _channel_axis(problem: KernelProblem) -> int:
    """Of the output: that of a product's columns."""
    return 1 if isinstance(problem.op, Conv) else len(problem.outputs[0].shape) - 1


def epilogue_type(problem: KernelProblem, *, biased: bool = False) -> str:
    """`bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Relu>>`; `biased`: the bias is its
    first stage."""
    stages = [_stage_type(stage, channel=_reads_channel(problem, stage)) for stage in problem.epilogue]
    return f"{_SPACE}::Epilogue<{', '.join([f'{_SPACE}::Channel{_BIAS}'] * biased + stages)}>"


def stages_type(stages: Sequence[EpilogueOp]) -> str:
    """The same of some stages."""
    return f"{_SPACE}::Epilogue<{', '.join(_stage_type(stage, channel=False) for stage in stages)}>"


def epilogue_value(problem: KernelProblem, *, biased: bool = False) -> str:
    """`bolt::cutlass_kernels::epilogue(bolt::cutlass_kernels::map(bolt::portable::Relu{}))`; `biased` as for the
    type."""
    stages = [_stage_value(stage, channel=_reads_channel(problem, stage)) for stage in problem.epilogue]
    return f"{_SPACE}::epilogue({', '.join([f'{_SPACE}::channel{_BIAS}()'] * biased + stages)})"


def stages_value(stages: Sequence[EpilogueOp]) -> str:
    """The same of some stages."""
    return f"{_SPACE}::epilogue({', '.join(_stage_value(stage, channel=False) for stage in stages)})"


def stage_words(problem: KernelProblem) -> str:
    """` | add | relu`, for people."""
    return "".join(f" | {name}" for name in words_of(problem.epilogue))


def words_of(stages: Sequence[EpilogueOp]) -> tuple[str, ...]:
    """The functions of some stages, by name."""
    return tuple(stage.op.function for stage in stages if isinstance(stage.op, Activation | Binary))


def _join(stage: EpilogueOp) -> str:
    assert isinstance(stage.op, Binary)
    return f"<{binary(stage.op)}, {'true' if stage.swapped else 'false'}>"


def _stage_type(stage: EpilogueOp, *, channel: bool) -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::Map<{activation_type(stage.op)}>"
    return f"{_SPACE}::{'Channel' if channel else 'Join'}{_join(stage)}"


def _stage_value(stage: EpilogueOp, *, channel: bool) -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::map({activation(stage.op)})"
    return f"{_SPACE}::{'channel' if channel else 'join'}{_join(stage)}()"
