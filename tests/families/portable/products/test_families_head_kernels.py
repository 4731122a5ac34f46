"""Which heads the kernels of pairs turn, and which channels those of tensor cores attend over; and the reasons."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from gpu_harness import TARGET

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention
from bolt_build.graph.ops.attention.heads import HeadRows

FAMILY = Portable()
FORMS = ("pairs", "tensor_cores")


def offered(op: Op, *inputs: Input) -> tuple[list[str], list[str]]:
    """Kernels of the forms for a layer in half precision, fastest first; and why others are none."""
    graph, node = graph_with(Layer("layer", op, inputs, (), DType.F16, 1.0))
    (step,) = FAMILY.propose(graph, node, TARGET, DType.F16)[0][0].steps
    found, refused = FAMILY.candidates(step.problem, TARGET)
    return [_text(each) for each in found if dict(each.parameters)["algorithm"] in FORMS], [
        str(each.reason) for each in refused
    ]


def seconds(op: Op, *inputs: Input) -> float:
    """What the fastest kernel of a layer in half precision is predicted to take."""
    graph, node = graph_with(Layer("layer", op, inputs, (), DType.F16, 1.0))
    (step,) = FAMILY.propose(graph, node, TARGET, DType.F16)[0][0].steps
    return min(FAMILY.predict(step.problem, each, TARGET) for each in FAMILY.candidates(step.problem, TARGET)[0])


def _text(candidate: Candidate) -> str:
    return " ".join(f"{name}={value}" for name, value in candidate.parameters)


def turned(heads: int, depth: int, each: int = 1, angles: int | None = None) -> tuple[list[str], list[str]]:
    """Heads of a text of 512 tokens; angles of all heads, or of each."""
    of_angles = Input((512, each, depth if angles is None else angles), True)
    return offered(HeadRows(heads, rotary=True), Input((8, 512, heads * depth)), of_angles, of_angles)


def test_heads_that_share_angles_are_one_threads() -> None:
    assert turned(16, 128)[0] == [f"algorithm=pairs each={each}" for each in (1, 2, 4)]
    assert turned(14, 64)[0] == [f"algorithm=pairs each={each}" for each in (1, 2)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (turned(14, 64), "a thread has 4 of 14 heads"),
        (turned(4, 64, each=4), "heads beside each other are turned by other angles"),
        (turned(4, 64, angles=32), "pairs: turns whole heads, of 64 elements 32 are turned"),
        (turned(4, 96), "pairs: halves of heads of 96 elements are no loads of a power of two of threads"),
    ],
)
def test_other_heads_have_the_plain_kernel_or_fewer(found: tuple[list[str], list[str]], reason: str) -> None:
    assert reason in found[1]


def test_channels_have_kernels_of_two_tiles_and_of_four() -> None:
    found, _ = offered(ChannelAttention(4, 1.0, "l2", 1e-12), Input((32, 196, 384)))
    assert found == [f"algorithm=tensor_cores stages={stages}" for stages in (2, 4)]


def test_a_block_takes_longer_for_each_tile_of_rows_and_for_channels_that_are_copied_by_twos() -> None:
    """A block goes through its rows alone: of an image of 3136 rows, 49 tiles, most of the time is theirs."""
    short, long, twos = (
        seconds(ChannelAttention(4), Input(shape)) for shape in ((1, 196, 384), (1, 3136, 384), (1, 196, 264))
    )
    assert long > 7 * short
    assert short < twos < 1.5 * short


@pytest.mark.parametrize(
    ("op", "columns", "reason"),
    [
        (ChannelAttention(1), 3 * 80, "tensor_cores: heads have 80 channels, even numbers up to 64 are supported"),
        (ChannelAttention(1), 3 * 31, "tensor_cores: heads have 31 channels, even numbers up to 64 are supported"),
        (ChannelAttention(1, 1.0, "variance"), 96, "tensor_cores: sums terms of channels, not their variance"),
    ],
)
def test_other_channels_have_none(op: ChannelAttention, columns: int, reason: str) -> None:
    found, reasons = offered(op, Input((2, 40, columns)))
    assert found == []
    assert reason in reasons
