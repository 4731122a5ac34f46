"""Heads whose pairs are one thread's: halves and neighbours, normalised and not, angles of all heads and of each."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary


def layer(label: str, op: HeadRows | Rotary, *inputs: Input) -> Layer:
    return Layer(f"head-pairs-{label}", op, inputs, (), DType.F16, TOLERANCE)


ANGLES = Input((1, 37, 1, 128), True)
HEAD_PAIRS = [
    layer(
        "normed", HeadRows(4, "rms", 1e-6, True, rotary=True),
        Input((2, 37, 512)), Input((1, 1, 4, 128), True, 0.5, 2.0), ANGLES, ANGLES,
    ),
    layer(
        "neighbours", HeadRows(6, "variance", 1e-5, True, True, True, True),
        Input((3, 9, 192)), *(Input((6, 32), True),) * 2, *(Input((3, 9, 1, 32)),) * 2,
    ),
    layer("apart", Rotary(), Input((2, 3, 21, 64)), *(Input((21, 64), True),) * 2),
]  # fmt: skip


def head_pairs() -> list[Trial]:
    """Of each layer every kernel."""
    return [trial for each in HEAD_PAIRS for trial in trials_of(each, "portable", 3, kind="each")]
