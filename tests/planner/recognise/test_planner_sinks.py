"""Sinks of attention: a score of each head that takes its share of the softmax and reads no value."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.recognise.softmaxes import RECOGNISE_SOFTMAXES
from bolt_build.planner.pipeline import optimize

HEAD = """
  %h = reshape(%x) shape=[2,3,2,2]
  %t = transpose(%h) perm=[0,2,1,3]
  %s = matmul(%t, %t) transpose_b=true
"""
"""Scores of 2 heads and 3 positions, of 2 images."""
END = """
  %o = matmul(%r, %t) // "o"
  %t2 = transpose(%o) perm=[0,2,1,3]
  %y = reshape(%t2) shape=[2,3,4]
}
"""
OF_HEADS = "const %b: f32[1,2,1,1] #1"
COLUMN = "%e = expand(%b) shape=[2,2,3,1]\n"
SHARES = "%r = slice(%p) begin=[0,0,0,0] count=[2,2,3,3] step=[1,1,1,1]"
BEHIND = f"{COLUMN}%c = concat(%s, %e) axis=3\n%p = softmax(%c) axis=3\n{SHARES}"
POWERS = "%d = sub(%s, %m)\n%f = exp(%d)\n%u = reduce(%f) mode=sum axes=[3]\n"
LARGEST = "%m = reduce(%s) mode=max axes=[3]\n"


def model(constants: str, statements: str, inputs: str = "") -> Graph:
    return graph(f"graph g batch=2 (%x: f32[2,3,4]{inputs}) -> (%y) {{\n{constants}{HEAD}{statements}{END}")


def attention_of(before: Graph, spelled: bool = False) -> tuple[Graph, Node]:
    """The graph that attention is recognised in, whose values are those before; and the attention."""
    after = run(RECOGNISE_ATTENTION, run(RECOGNISE_SOFTMAXES, before).graph if spelled else before).graph
    same_values(before, after)
    same_values(before, optimize(before, POLICY).graph)
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    assert node.op.sunk
    return after, node


@pytest.mark.parametrize(
    ("constants", "statements", "shape"),
    [
        (OF_HEADS, BEHIND, (2,)),
        (OF_HEADS, f"{COLUMN}%c = concat(%e, %s) axis=3\n%p = softmax(%c) axis=3\n"
         + SHARES.replace("0,0,0,0", "0,0,0,1"), (2,)),
        ("const %b: f32[] {0.5}", BEHIND, (1,)),
        (OF_HEADS, (f"{COLUMN}%c = concat(%s, %e) axis=3\n%m = reduce(%c) mode=max axes=[3]\n%d = sub(%c, %m)\n"
         f"%p = softmax(%d) axis=3\n{SHARES}"), (2,)),
        ("", f"%c = pad(%s) begin=[0,0,0,0] end=[0,0,0,1]\n%p = softmax(%c) axis=3\n{SHARES}", (1,)),
        ("", "%c = pad(%s) begin=[0,0,0,1] end=[0,0,0,0]\n%p = softmax(%c) axis=3\n"
         + SHARES.replace("0,0,0,0", "0,0,0,1"), (1,)),
        (OF_HEADS, (f"%n = reduce(%s) mode=max axes=[3]\n%m = max(%n, %b)\n{POWERS}%g = sub(%b, %m)\n%k = exp(%g)\n"
         "%w = add(%u, %k)\n%r = div(%f, %w)"), (2,)),
        ("", f"{LARGEST}{POWERS}%g = neg(%m)\n%k = exp(%g)\n%w = add(%k, %u)\n%r = div(%f, %w)", (1,)),
        ("const %one: f32[] {1.0}", ("%f = exp(%s)\n%u = reduce(%f) mode=sum axes=[3]\n%w = add(%one, %u)\n"
         "%r = div(%f, %w)"), (1,)),
    ],
)  # fmt: skip
def test_a_further_score_is_a_sink(constants: str, statements: str, shape: tuple[int, ...]) -> None:
    after, node = attention_of(model(constants, statements), spelled=True)
    assert len(node.inputs) in (2, 4)
    assert after.type(node.inputs[-1]).shape == shape


def test_scores_are_masked_beside_a_sink() -> None:
    triangle = "const %tri: f32[3,3] {0.0, -inf, -inf, 0.0, 0.0, -inf, 0.0, 0.0, 0.0}\n" + OF_HEADS
    causal = "%a = add(%s, %tri)\n" + BEHIND.replace("concat(%s", "concat(%a")
    _, node = attention_of(model(triangle, causal))
    assert isinstance(node.op, Attention)
    assert node.op.causal
    masked = "%a = add(%s, %mask)\n" + BEHIND.replace("concat(%s", "concat(%a")
    _, node = attention_of(model(OF_HEADS, masked, ", %mask: f32[2,1,1,3]"))
    assert isinstance(node.op, Attention)
    assert not node.op.safe
    assert not node.op.endless


def test_a_sink_may_be_given() -> None:
    after, node = attention_of(model("", BEHIND, ", %b: f32[1,2,1,1]"))
    assert after.type(node.inputs[-1]).shape == (2,)


@pytest.mark.parametrize(
    ("constants", "statements", "inputs", "why"),
    [
        ("", BEHIND.replace("%e", "%b").replace("%b = expand(%b) shape=[2,2,3,1]\n", ""), ", %b: f32[2,2,3,1]",
         "the further column of 'c' is no sink, one number for each head"),
        ("", "%c = concat(%s, %b) axis=3\n%p = softmax(%c) axis=3\n" + SHARES, ", %b: f32[2,2,3,2]", None),
        ("", "%c = add(%b, %b)\n%p = softmax(%c) axis=3\n" + SHARES, ", %b: f32[2,2,3,4]",
         "a share of 'c' is left out, which is none of a column beside 3 scores"),
    ],
)  # fmt: skip
def test_others_are_none(constants: str, statements: str, inputs: str, why: str | None) -> None:
    result = run(RECOGNISE_ATTENTION, model(constants, statements, inputs))
    assert [reason for _, what, reason in said(result) if what == "declined"] == ([why] if why else [])
    assert not any(isinstance(node.op, Attention) for node in result.graph.nodes)
