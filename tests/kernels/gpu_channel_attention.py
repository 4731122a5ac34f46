"""Attention over channels: of one tile and of several, with lengths and scales, of channels that are no whole
instruction, of rows that are no whole tile, and of channels whose shares are alike."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention

_ROUNDED_ONCE = 2.5e-4
"""More than storing numbers from 1 to 2 in f16 is off by. Were shares of 1/22 rounded to f16, all would be too small by
3e-4 of themselves, and so would all results."""


def layer(label: str, op: ChannelAttention, *inputs: Input, tolerance: float = TOLERANCE) -> Layer:
    return Layer(f"channel-attention-{label}", op, inputs, (), DType.F16, tolerance)


CHANNEL_ATTENTION = [
    layer("scaled", ChannelAttention(2, 1.0, "l2", 1e-12, True), Input((2, 196, 192)), Input((4, 196), True, 0.5, 2.0)),
    layer("odd", ChannelAttention(3, 30.0, "l2", 1e-6), Input((1, 333, 216))),
    layer("pairs", ChannelAttention(2, 30.0, "l2", 1e-6), Input((2, 70, 132))),
    layer("alike", ChannelAttention(1, 0.01, "l2"), Input((1, 70, 66), low=1.0, high=1.9), tolerance=_ROUNDED_ONCE),
    layer("plain", ChannelAttention(1, 0.25), Input((3, 40, 144))),
]


def channel_attention() -> list[Trial]:
    """Of each layer every kernel, and the plain one of the smallest."""
    kernels = [trial for each in CHANNEL_ATTENTION for trial in trials_of(each, "portable", 2, kind="stages")]
    return [*kernels, *trials_of(CHANNEL_ATTENTION[-1], "portable", 9)[-1:]]
