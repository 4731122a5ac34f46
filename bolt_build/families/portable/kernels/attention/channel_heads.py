"""What kernels of attention over channels are told of a problem."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.kernels.norms.norm_loops import STATISTICS
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention

_SPACE = "bolt::portable"


@dataclass(frozen=True)
class ChannelHeads:
    """Images, their rows, heads and the channels of each."""

    images: int
    rows: int
    heads: int
    depth: int


def channel_heads(problem: KernelProblem) -> ChannelHeads:
    op = problem.op
    assert isinstance(op, ChannelAttention)
    images, rows, depth = op.extents(problem.inputs[0].type)
    return ChannelHeads(images, rows, op.heads, depth)


def types(problem: KernelProblem) -> str:
    """What kernels are compiled for: a statistic, and the types of what they read and store."""
    op = problem.op
    assert isinstance(op, ChannelAttention)
    statistic = STATISTICS[op.statistic] if op.statistic else "AsItIs"
    found = [COMPUTED[operand.format.dtype] for operand in (problem.inputs[0], problem.outputs[0])]
    return ", ".join((f"{_SPACE}::{statistic}", *found))


def parameters(problem: KernelProblem, at: StepExpressions) -> str:
    op, of = problem.op, channel_heads(problem)
    assert isinstance(op, ChannelAttention)
    scales = f"static_cast<const float*>({at.inputs[1]})" if op.scaled else "nullptr"
    return struct(
        f"{_SPACE}::ChannelAttention",
        images=of.images, rows=of.rows, pitch=at.input_pitch(0) or problem.inputs[0].row, heads=of.heads,
        depth=of.depth, scale=literal(op.scale), epsilon=literal(op.epsilon), given=at.inputs[0], scales=scales,
    )  # fmt: skip
