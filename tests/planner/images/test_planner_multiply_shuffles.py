"""A 1x1 in front of a channel shuffle leaves shuffled channels, those that pass by included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.images import multiply_shuffles
from bolt_build.planner.passes.images.multiply_shuffles import MULTIPLY_SHUFFLES
from bolt_build.planner.passes.images.rearrangements import MERGE_REARRANGEMENTS

UNIT = """
    graph g batch=2 (%x: f32[2,8,5,3]) -> (%p, %q{out}) {{
      const %w: f32[{cut},8,{size},{size}]
      const %v: f32[8,8,1,1]
      const %b: f32[{cut}]
      %a = {passes} // "a"
      %c = {convolves} // "c"
      %d = concat({parts}) axis=1 // "d"
      %s = reshape(%d) shape=[2,2,{cut},5,3] // "s"
      %t = transpose(%s) perm=[0,2,1,3,4] // "t"
      %u = reshape(%t) shape=[2,{all},5,3] // "u"
      %m = slice(%u) begin=[0,0,0,0] count=[2,{cut},5,3] step=[1,1,1,1] // "m"
      %n = slice(%u) begin=[0,{cut},0,0] count=[2,{cut},5,3] step=[1,1,1,1] // "n"
      %p = tanh(%m) // "p"
      %q = sigmoid(%n) // "q"
    }}"""


def unit(**parts: object) -> Graph:
    """As in ShuffleNet V2, with its halves as rearrangements."""
    sizes = {"cut": 8, "all": 16, "size": 1, "out": "", "passes": "conv(%x, %v) | relu", "parts": "%a, %c"}
    text = UNIT.format(**sizes | {"convolves": "conv(%x, %w, %b) | relu"} | parts)
    return run(MERGE_REARRANGEMENTS, graph(text)).graph


def agrees(before: Graph, after: Graph) -> None:
    random = np.random.default_rng(1)
    x = {name: random.standard_normal(before.type(name).shape).astype(np.float32) for name in before.inputs}
    wanted, found = evaluate(before, x), evaluate(after, x)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("convolves", ["conv(%x, %w, %b) | relu", "conv(%x, %w, %b)", "conv(%x, %w) | relu"])
def test_the_product_leaves_shuffled_channels(convolves: str) -> None:
    before = unit(convolves=convolves)
    result = run(MULTIPLY_SHUFFLES, before)
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds == ["conv", "concat", "conv", "slice", "slice", "activation", "activation"]
    assert said(result) == [("c", "multiplied", "leaves the shuffled channels of 'd', others with an identity")]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("passes", "convolves", "slope"),
    [
        ("conv(%x, %v)", "conv(%x, %w, %b) | relu", 0.0),
        ("conv(%x, %v) | leaky_relu alpha=0.25", "conv(%x, %w) | leaky_relu alpha=0.25", 0.25),
        ("conv(%x, %v) | silu", "conv(%x, %w, %b) | leaky_relu alpha=-0.5", -0.5),
    ],
)
def test_a_rectifier_has_a_slope_of_one_for_what_passes_by(passes: str, convolves: str, slope: float) -> None:
    before = unit(passes=passes, convolves=convolves)
    after = run(MULTIPLY_SHUFFLES, before).graph
    (node,) = [node for node in after.nodes if node.op == Binary("prelu")]
    slopes = after.constant(node.inputs[1])
    assert slopes is not None
    assert slopes.reshape(-1).tolist() == [1.0, slope] * 8
    agrees(before, after)


def test_what_passes_by_is_left_as_it_is_to_the_bit() -> None:
    before = unit()
    after = run(MULTIPLY_SHUFFLES, before).graph
    x = {"x": np.random.default_rng(2).standard_normal((2, 8, 5, 3)).astype(np.float32)}
    wanted, found = evaluate(before, x), evaluate(after, x)
    for name in ("p", "q"):
        np.testing.assert_array_equal(found[name][:, ::2], wanted[name][:, ::2])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"convolves": "conv(%x, %w, %b) | leaky_relu alpha=0.1 | tanh"}, "what follows 'c' would change the others"),
        ({"convolves": "conv(%x, %w, %b) | silu"}, "what follows 'c' would change the others"),
        ({"size": 3, "convolves": "conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] | relu"},
         "'c' is no 1x1 of constant weights"),
        ({"out": ", %c"}, "'c' is read by others as well"),
        ({"parts": "%a, %x"}, "no convolution computes 'x'"),
    ],
)  # fmt: skip
def test_other_shuffles_are_moved(parts: dict[str, object], reason: str) -> None:
    before = unit(**parts)
    result = run(MULTIPLY_SHUFFLES, before)
    assert result.graph == before
    assert said(result) == [("d", "declined", f"its channels are shuffled, but {reason}")]


GROUPS = """
    graph g batch=2 (%x: f32[2,12,5,3], %h: f32[6]) -> (%y{out}) {{
      const %w: f32[{filters},{depth},{size},1] #
      const %b: f32[{filters}] #
      const %d: f32[{filters},1,3,3] #
      const %f: f32[{filters},1,1] #
      %a = {convolves} // "a"
      %s = reshape(%a) shape=[2,3,{each},5,3] // "s"
      %t = transpose(%s) perm=[0,2,1,3,4] // "t"
      %u = reshape(%t) shape=[2,{filters},5,3] // "u"
      %y = conv(%u, %d) pads_begin=[1,1] pads_end=[1,1] groups={filters} // "y"
    }}"""
CONVOLVES = "conv(%x, %w, %b) groups=3 | relu"


def grouped(convolves: str = CONVOLVES, out: str = "", filters: int = 6, size: int = 1, depth: int = 4) -> Graph:
    """As in the first ShuffleNet."""
    text = GROUPS.format(convolves=convolves, out=out, filters=filters, each=filters // 3, size=size, depth=depth)
    return run(MERGE_REARRANGEMENTS, graph(text)).graph


@pytest.mark.parametrize("convolves", [CONVOLVES, "conv(%x, %w) groups=3"])
def test_a_product_with_groups_leaves_shuffled_channels_as_one_of_all(convolves: str) -> None:
    before = grouped(convolves)
    result = run(MULTIPLY_SHUFFLES, before)
    assert [node.op.kind for node in result.graph.nodes] == ["conv", "slice", "conv"]
    assert said(result) == [("a", "multiplied", "leaves shuffled channels, with zeros where a group reads nothing")]
    weights = result.graph.constant("w.shuffled")
    assert weights is not None
    assert weights.shape == (6, 12, 1, 1)
    assert (np.count_nonzero(weights, axis=1) == 4).all()
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"out": ", %a"}, "they are a graph output"),
        ({"convolves": "conv(%x, %w, %b, %f) groups=3 | mul(%f)"}, "'a' has an operand that is not shuffled"),
        ({"convolves": "conv(%x, %w, %h) groups=3"}, "'a' is no 1x1 of constant weights"),
    ],
)
def test_a_product_with_groups_stays_in_them(parts: dict[str, Any], reason: str) -> None:
    before = grouped(**parts)
    result = run(MULTIPLY_SHUFFLES, before)
    assert (result.graph, said(result)) == (before, [("a", "declined", f"its channels are shuffled, but {reason}")])


def test_a_product_of_many_channels_stays_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiply_shuffles, "_OPERATIONS", 3)
    why = "its channels are shuffled, but a product of all would be 4 operations of each element"
    assert said(run(MULTIPLY_SHUFFLES, grouped())) == [("a", "declined", why)]


def test_larger_windows_stay_in_groups() -> None:
    before = grouped("conv(%x, %w) groups=3 pads_begin=[1,0] pads_end=[1,0]", size=3)
    assert run(MULTIPLY_SHUFFLES, before).graph == before
