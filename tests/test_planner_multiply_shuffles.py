"""A 1x1 in front of a channel shuffle leaves shuffled channels, those that pass by included."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.multiply_shuffles import MULTIPLY_SHUFFLES
from bolt_build.planner.passes.rearrangements import MERGE_REARRANGEMENTS

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
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
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
        ({"passes": "conv(%x, %v)"}, "the activation of 'c' would change the others"),
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
