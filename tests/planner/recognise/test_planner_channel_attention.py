"""Attention over channels is one step on rows as a product left them: XCiT, EdgeNeXt."""

from __future__ import annotations

import pytest
from fake_engine import plan_of
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise import channel_attention
from bolt_build.planner.passes.recognise.channel_attention import ATTEND_CHANNELS
from bolt_build.verify.taps import taps_of

ATTENTION = "attention(%q, %k, %v) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false"
NORMED = """
    %both = slice(%t) begin=[0,0,0] count=[2,4,20] step=[1,1,1]
    %h = head_rows(%both, %s) heads=4 statistic="l2" epsilon=0.01 scaled=true shifted=false rotary=false interleaved=false
    %q = slice(%h) begin=[0,0,0] count=[2,4,10] step=[1,1,1]
    %k = slice(%h) begin=[0,0,10] count=[2,4,10] step=[1,1,1]
"""  # noqa: E501
PLAIN = """
    %q = slice(%t) begin=[0,0,0] count=[2,4,10] step=[1,1,1]
    %k = slice(%t) begin=[0,0,10] count=[2,4,10] step=[1,1,1]
"""


def channels(operands: str, attention: str = ATTENTION, outputs: str = "(%y)", more: str = "") -> Graph:
    """Two images of five rows, whose two heads have four channels, and attention over these."""
    lines = f"""
        %apart = reshape(%x) shape=[2,5,6,4]
        %turned = transpose(%apart) perm=[0,3,2,1]
        %t = reshape(%turned) shape=[2,4,30]
        {operands}
        %v = slice(%t) begin=[0,0,20] count=[2,4,10] step=[1,1,1]
        %a = {attention}
        %heads = reshape(%a) shape=[2,4,2,5]
        %back = transpose(%heads) perm=[0,3,2,1]
        %y = reshape(%back) shape=[2,5,8]
        {more}
    """.strip().splitlines()
    made = "\n".join(f'{each.strip()} // "{each.split()[0][1:]}"' for each in lines if each.strip())
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,24]) -> {outputs} {{
          const %s: f32[1,1,4,5]
          const %each: f32[2,4,4,5]
          {made}
        }}""")


def test_transposes_lengths_and_the_attention_are_one_step() -> None:
    result = run(ATTEND_CHANNELS, channels(NORMED))
    assert body(result.graph) == (
        "%y = channel_attention(%x, %'s.rows) heads=2 scale=0.5 statistic=l2 epsilon=0.01 scaled=true @a  "
        '// "h", "a", "heads", "back", "y"'
    )
    assert said(result) == [("a", "merged", "with what transposes 'x' in front of it, and back")]


def test_few_blocks_do_not_go_through_long_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_attention, "_LONG", 4)
    reason = "5 rows are too many for each of 4 blocks, 96 blocks go through more than 4"
    assert said(run(ATTEND_CHANNELS, channels(NORMED))) == [("a", "declined", reason)]
    monkeypatch.setattr(channel_attention, "_MANY", 4)
    assert [each[1] for each in said(run(ATTEND_CHANNELS, channels(NORMED)))] == ["merged"]


def test_what_it_leaves_is_rounded_as_often_as_behind_attention() -> None:
    """A share is rounded before it is a factor: that is no rounding of the step's inputs, and none of its result."""
    before = graph("""
        graph g batch=2 (%q: f32[2,4,10], %k: f32[2,4,10], %v: f32[2,4,10]) -> (%y) {
          %y = attention(%q, %k, %v) heads=2 kv_heads=2 scale=0.5 causal=false packed=false safe=false // "y"
        }""")
    for each in (before, run(ATTEND_CHANNELS, channels(PLAIN)).graph):
        (tap,) = taps_of(plan_of(each).plans[0])
        assert tap.roundings == 2


def test_queries_and_keys_need_not_be_normalised() -> None:
    result = run(ATTEND_CHANNELS, channels(PLAIN))
    assert body(result.graph).startswith("%y = channel_attention(%x) heads=2 scale=0.5")


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (
            channels(NORMED.replace('"l2"', '"variance"')),
            "'h' does more than normalise and scale queries and keys",
        ),
        (channels(NORMED.replace("%s)", "%each)")), "'each' is not constant, or scales channels by themselves"),
        (channels(NORMED, outputs="(%y, %z)", more="%z = relu(%back)"), "what it gives is no rows again"),
    ],
)
def test_others_stay_with_the_reason(before: Graph, reason: str) -> None:
    result = run(ATTEND_CHANNELS, before)
    assert said(result) == [("a", "declined", reason)]


@pytest.mark.parametrize(
    "before",
    [
        channels(PLAIN, ATTENTION.replace("causal=false", "causal=true")),
        channels(PLAIN.replace("[0,0,10]", "[0,0,0]")),
        channels(NORMED.replace("%k = slice(%h)", "%m = relu(%h)\n    %k = slice(%m)")),
    ],
)
def test_other_attention_is_none_over_channels(before: Graph) -> None:
    assert said(run(ATTEND_CHANNELS, before)) == []
