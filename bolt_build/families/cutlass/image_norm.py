"""Normalisations of images whose statistics a convolution's kernel has left: what of them one pass applies."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import literal
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import Reach, spread
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norm import Norm
from bolt_build.targets import Target

LANES = 8
"""Neighbouring channels of a thread."""
THREADS = 256
_LOADS = (8, 4, 2, 1)
_FILLED = 2
"""Blocks of a multiprocessor that there are at least where a thread has several loads."""
_MOST_PARTS = 4
"""Parts of an image that a block puts together by itself (`most_parts_read`)."""
_REACHED = 0.9
"""A guess at the part of a GPU's bandwidth that the pass reaches."""
_JOIN = 1.0e-6
"""A guess at the seconds in which a kernel puts parts together, beside its launch."""


def refuse(norm: KernelProblem) -> str | None:
    """Why no pass normalises what has its statistics; None where one does."""
    op, y = norm.op, norm.outputs[0]
    assert isinstance(op, Norm), op
    rank = len(y.shape)
    if op.statistic != "variance" or op.axes not in (tuple(range(1, rank)), tuple(range(2, rank))):
        return "normalises by mean and variance of whole images, of each channel or of groups of them"
    if y.format.layout is not Layout.CHANNELS_LAST or y.format.dtype is not norm.inputs[0].format.dtype:
        return f"leaves what is normalised like the convolution's results, not in {y.format}"
    if y.shape[1] % LANES:
        return Reason("{} channels are no multiple of the {} that a thread loads at once", y.shape[1], LANES)
    if y.shape[1] > LANES * THREADS:
        return Reason("{} channels are more than the {} of a block's threads", y.shape[1], LANES * THREADS)
    for index in op_operands(norm)[1:]:
        how = spread(norm.inputs[index], y)
        if how is None or how.reach is Reach.SAME or (how.reach is Reach.AXIS and how.axis != 1):
            return f"scale and bias are numbers of channels, not {list(norm.inputs[index].shape)}"
    return refuse_stages(norm, 1)


@dataclass(frozen=True)
class Applied:
    """`images` of so many pixels and `channels`, of which `group` have one statistic. A thread has so many `loads`."""

    images: int
    pixels: int
    channels: int
    group: int
    loads: int

    @classmethod
    def of(cls, norm: KernelProblem, target: Target) -> Applied:
        """Of a problem that is not refused: as many loads as leave each multiprocessor some blocks."""
        op, (images, channels, *extents) = norm.op, norm.outputs[0].shape
        assert isinstance(op, Norm), op
        assert target.gpu is not None, "kernels that leave moments are for GPUs"
        pixels, beside = prod(extents), THREADS // (channels // LANES)
        group = channels // op.groups if 1 in op.axes else 1
        least = _FILLED * target.gpu.sms
        loads = next((each for each in _LOADS if images * ceil(pixels / (beside * each)) >= least), _LOADS[-1])
        return cls(images, pixels, channels, group, loads)

    def seconds(self, norm: KernelProblem, parts: int, target: Target) -> float:
        """Predicted time behind the convolution, whose kernel leaves so many parts of an image."""
        launches = OVERLAPPED * target.launch_seconds
        joining = launches + _JOIN if parts > _MOST_PARTS else 0.0
        return moved(norm.nbytes, target) / _REACHED + launches + joining

    def text(self, norm: KernelProblem, at: StepExpressions) -> str:
        """The call of `norm_applied` for `moments` and `joined`."""
        op, own = norm.op, op_operands(norm)
        assert isinstance(op, Norm)
        kinds = [COMPUTED[norm.inputs[index].format.dtype] for index in own]
        kinds += ["bolt::portable::Ones", "bolt::portable::Zeros"][len(kinds) - 1 :]
        steps = [int(norm.inputs[index].shape != () and prod(norm.inputs[index].shape) > 1) for index in own[1:]]
        steps += [0] * (2 - len(steps))
        along = f"{{{self.channels}, 1, {steps[0]}, {steps[1]}, {int(channel_axis(norm) == 1)}}}"
        given, made = at.input_pitch(0) or self.channels, at.pitch(0) or self.channels
        pointers = (*(at.inputs[index] for index in own), *("nullptr",) * (3 - len(own)), at.outputs[0])
        shape = f"bolt::portable::AppliedShape<{self.channels}, {self.group}, {self.loads}>"
        types = ", ".join((shape, "bolt::portable::NormVariance", *kinds, COMPUTED[norm.outputs[0].format.dtype]))
        return (
            f"bolt::portable::norm_applied<{types}>(r, moments, joined, {{{self.pixels}, {given}, {made}}}, {along}, "
            f"{literal(op.epsilon)}, {', '.join(pointers)}, {chain(norm, at)});"
        )
