"""Normalisations of images whose statistics a convolution's kernel has left: what of them one pass applies."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.common.cxx import literal
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import Reach, spread
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Target

LANES = 8
"""Neighbouring channels of a thread."""
THREADS = 256
_LOADS = (4, 2, 1)
_FILLED = 1
"""Blocks of a multiprocessor that there are at least where a thread has several loads: an H200 took least with four
loads in nine of ten shapes, however few blocks these were."""
_JOINING = (1024, 512, 256, 128)
"""Threads of blocks that put parts together."""
_RESIDENT = 2048
"""Threads of a multiprocessor."""
_AT_ONCE = 8
"""Parts that a thread of them asks for at once."""
# Of ten shapes of networks on an H200, off by 8% on average: the part of what memory takes that the pass takes, for L2
# has some of it; seconds in which parts come that threads ask for at once, and are put together; seconds of an
# instruction that stages behind take of a result.
_MOVED, _JOIN, _FUNCTION = 0.93, 0.7e-6, 5.1e-14


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
    """`images` of so many pixels and `channels`, of which `group` have one statistic, and so many parts each. Blocks of
    `joining` threads put these together, and a thread of the pass has so many `loads`."""

    images: int
    pixels: int
    channels: int
    group: int
    parts: int
    joining: int
    loads: int

    @classmethod
    def of(cls, norm: KernelProblem, parts: int, target: Target) -> Applied:
        """Of a problem that is not refused: as many loads as leave each multiprocessor some blocks, and threads that
        have a part each."""
        op, (images, channels, *extents) = norm.op, norm.outputs[0].shape
        assert isinstance(op, Norm), op
        assert target.gpu is not None, "kernels that leave moments are for GPUs"
        pixels, beside = prod(extents), THREADS // (channels // LANES)
        group = channels // op.groups if 1 in op.axes else 1
        least = _FILLED * target.gpu.sms
        loads = next((each for each in _LOADS if images * ceil(pixels / (beside * each)) >= least), _LOADS[-1])
        items = parts * (LANES if LANES % group == 0 else group)
        joining = next((each for each in _JOINING if each <= items), _JOINING[-1])
        return cls(images, pixels, channels, group, parts, joining, loads)

    @property
    def covered(self) -> int:
        """Channels of a block that puts parts together."""
        return LANES if LANES % self.group == 0 else self.group

    def seconds(self, norm: KernelProblem, target: Target) -> float:
        """Predicted time behind the convolution."""
        gpu = target.gpu
        assert gpu is not None, "kernels that leave moments are for GPUs"
        rounds = ceil(self.parts * self.covered / (self.joining * _AT_ONCE))
        blocks = self.images * (self.channels // self.covered)
        joining = _JOIN * rounds * ceil(blocks / (gpu.sms * (_RESIDENT // self.joining)))
        functions = _FUNCTION * instructions(norm.epilogue) * self.images * self.pixels * self.channels
        return _MOVED * norm.nbytes / target.bandwidth + 2 * OVERLAPPED * target.launch_seconds + joining + functions

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
        shape = f"bolt::portable::AppliedShape<{self.channels}, {self.group}, {self.joining}, {self.loads}>"
        types = ", ".join((shape, "bolt::portable::NormVariance", *kinds, COMPUTED[norm.outputs[0].format.dtype]))
        return (
            f"bolt::portable::norm_applied<{types}>(r, moments, joined, {{{self.pixels}, {given}, {made}}}, {along}, "
            f"{literal(op.epsilon)}, {', '.join(pointers)}, {chain(norm, at)});"
        )
