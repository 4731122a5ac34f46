"""Which epilogues the kernels take, and their C++ types and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.functors import activation, activation_type, binary
from bolt_build.families.common.stages import Reach, Spread, spreads
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.image_numbers import are_of_images

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
    own = (s for s in problem.epilogue if not _reads_channel(problem, s) and not _reads_image(problem, s))
    return next((stage.operand for stage in own if stage.operand is not None), None)


def image_numbers(problem: KernelProblem) -> int | None:
    """Index of the tensor that has one number of each image and channel for a stage, None where there is none."""
    return next((stage.operand for stage in problem.epilogue if _reads_image(problem, stage)), None)


def without_images(problem: KernelProblem) -> KernelProblem:
    """The same without the stages that read such numbers."""
    left = [stage for stage in problem.epilogue if not _reads_image(problem, stage)]
    gone = {stage.operand for stage in problem.epilogue if stage not in left}
    kept = [index for index in range(len(problem.inputs)) if index not in gone]
    epilogue = (stage if stage.operand is None else replace(stage, operand=kept.index(stage.operand)) for stage in left)
    return replace(problem, inputs=tuple(problem.inputs[index] for index in kept), epilogue=tuple(epilogue))


def refuse_images(problem: KernelProblem) -> str | None:
    """A reason why kernels that know of which image they store cannot apply the stages."""
    reading = [stage for stage in problem.epilogue if _reads_image(problem, stage)]
    if len(reading) > 1:
        return Reason("reads one tensor with a number of each image and channel, not {}", len(reading))
    for stage in reading:
        assert stage.operand is not None
        given, dtype = problem.inputs[stage.operand], problem.outputs[0].format.dtype
        if given.format.dtype is not dtype:
            return f"numbers of images are stored as {dtype.value}, not {given.format.dtype.value}"
    return None


def channels(problem: KernelProblem) -> tuple[int, ...]:
    """Indices of the constants of channels that stages read, in the order of the stages."""
    return tuple(s.operand for s in problem.epilogue if s.operand is not None and _reads_channel(problem, s))


def refuse_channels(problem: KernelProblem) -> str | None:
    """A reason for kernels that do not say which channel they store."""
    return "stages that read numbers of channels are no part of this kernel" if channels(problem) else None


def _reads_channel(problem: KernelProblem, stage: EpilogueOp) -> bool:
    return stage.operand is not None and problem.inputs[stage.operand].constant


def _reads_image(problem: KernelProblem, stage: EpilogueOp) -> bool:
    if stage.operand is None or not isinstance(stage.op, Binary):
        return False
    operand, whole = problem.inputs[stage.operand], problem.outputs[0].shape
    return not operand.constant and are_of_images(operand.shape, whole, _channel_axis(problem))


def _channel_axis(problem: KernelProblem) -> int:
    """Of the output: that of a product's columns."""
    return 1 if isinstance(problem.op, Conv) else len(problem.outputs[0].shape) - 1


def epilogue_type(problem: KernelProblem, *, biased: bool = False) -> str:
    """`bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Relu>>`; `biased`: the bias is its
    first stage."""
    stages = [_stage_type(stage, _reads(problem, stage)) for stage in problem.epilogue]
    found = f"{_SPACE}::Epilogue<{', '.join([f'{_SPACE}::Channel{_BIAS}'] * biased + stages)}>"
    return found if image_numbers(problem) is None else f"{_SPACE}::OfImages<{found}>"


@dataclass(frozen=True)
class EpilogueCode:
    """The C++ type and value of an epilogue."""

    type: str
    value: str

    @classmethod
    def of(cls, problem: KernelProblem, *, biased: bool = False) -> EpilogueCode:
        """The stages of a problem; `biased` as for the type."""
        return cls(epilogue_type(problem, biased=biased), epilogue_value(problem, biased=biased))

    def averaged(self, *, keeps: bool) -> EpilogueCode:
        """The same whose results are averaged over images as well. They are stored too if it `keeps` them."""
        how = boolean(keeps)
        return EpilogueCode(f"{_SPACE}::WithMeans<{self.type}, {how}>", f"{_SPACE}::with_means<{how}>({self.value})")

    def with_moments(self) -> EpilogueCode:
        """The same whose results' mean and squares over images are left beside them."""
        return EpilogueCode(f"{_SPACE}::WithMoments<{self.type}>", f"{_SPACE}::with_moments({self.value})")


def stages_type(stages: Sequence[EpilogueOp]) -> str:
    """The same of some stages."""
    return f"{_SPACE}::Epilogue<{', '.join(_stage_type(stage) for stage in stages)}>"


def epilogue_value(problem: KernelProblem, *, biased: bool = False) -> str:
    """`bolt::cutlass_kernels::epilogue(bolt::cutlass_kernels::map(bolt::portable::Relu{}))`; `biased` as for the
    type."""
    stages = [_stage_value(stage, _reads(problem, stage)) for stage in problem.epilogue]
    found = f"{_SPACE}::epilogue({', '.join([f'{_SPACE}::channel{_BIAS}()'] * biased + stages)})"
    if image_numbers(problem) is None:
        return found
    images, channels_of_one = (problem.outputs[0].shape[axis] for axis in (0, _channel_axis(problem)))
    pixels = prod(problem.outputs[0].shape) // (images * channels_of_one)
    return f"{_SPACE}::of_images({found}, {pixels})"


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


def _reads(problem: KernelProblem, stage: EpilogueOp) -> str:
    """What a stage that reads something reads, as its C++ type is called."""
    if _reads_channel(problem, stage):
        return "Channel"
    return "Image" if _reads_image(problem, stage) else "Join"


def _stage_type(stage: EpilogueOp, reads: str = "Join") -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::Map<{activation_type(stage.op)}>"
    return f"{_SPACE}::{reads}{_join(stage)}"


def _stage_value(stage: EpilogueOp, reads: str = "Join") -> str:
    if isinstance(stage.op, Activation):
        return f"{_SPACE}::map({activation(stage.op)})"
    return f"{_SPACE}::{reads.lower()}{_join(stage)}()"
