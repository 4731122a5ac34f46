"""Attention over channels: one kernel for a head, whose rows are read where they lie."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.kernels.attention import half_channel_attention
from bolt_build.families.portable.kernels.attention.channel_heads import channel_heads, parameters, types
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention

_DEEPEST = 128
"""Channels of a head whose shares a thread has room for."""
_STEP = 5e-9
"""Seconds in which a GPU's thread adds one product to a sum: few threads wait for what they load. A guess, as none was
timed."""


def _waits(problem: KernelProblem) -> float:
    """Of a thread, which adds up its channel's products with each of the head's, the squares of these, and what they
    weigh."""
    of = channel_heads(problem)
    return 3 * of.rows * of.depth * _STEP


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or no_epilogue(problem)) is not None:
        return reason
    if any(operand.format.dtype.value != "f32" for operand in problem.inputs[1:]):
        return "scales heads by numbers in f32"
    if (depth := channel_heads(problem).depth) > _DEEPEST:
        return Reason("heads have {} channels, at most {} are supported", depth, _DEEPEST)
    return None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    call = f"bolt::portable::channel_attention<{types(problem)}>(r, {parameters(problem, at)}, {at.outputs[0]});"
    return StepCode(("bolt_portable/channel_attention.h",), None, "", call)


RULES = (
    Rule(
        ChannelAttention,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        gpu_latency=_waits,
        layouts=row_major,
        reads_apart=lambda problem: (0,),
        forms=(half_channel_attention.FORM,),
    ),
)
