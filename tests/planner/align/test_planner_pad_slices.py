"""Parts of split and concatenated channels begin at whole loads, with zeros between them."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.align.pad_slices import PAD_SLICES

HIERARCHY = """
    graph g batch=2 (%x: f32[2,16,5,3]) -> (%y{out}) {{
      const %w: f32[39,16,1,1]
      const %bias: f32[39]
      const %v: f32[13,13,3,3]
      const %u: f32[24,39,1,1]
      %t = conv(%x, %w, %bias) | relu // "t"
      %a = slice(%t) begin=[0,0,0,0] count=[2,13,5,3] step=[1,1,1,1] // "a"
      %b = slice(%t) begin=[0,13,0,0] count=[2,13,5,3] step=[1,1,1,1] // "b"
      %c = slice(%t) begin=[0,26,0,0] count=[2,13,5,3] step=[1,1,1,1] // "c"
      %d = conv(%a, %v) pads_begin=[1,1] pads_end=[1,1] | relu // "d"
      %e = {joins} // "e"
      %f = conv(%e, %v) pads_begin=[1,1] pads_end=[1,1] | relu // "f"
      %p = pool(%c) mode=average kernel=[3,3] pads_begin=[1,1] pads_end=[1,1] // "p"
      %g = concat(%d, %f, %p) axis=1 // "g"
      %y = {reads} // "y"
    }}"""
GHOST = """
    graph g batch=2 (%x: f32[2,16,5,3]) -> (%y) {
      const %w: f32[12,16,1,1]
      const %v: f32[12,1,3,3]
      const %bias: f32[12]
      const %u: f32[24,24,1,1]
      const %k: f32[24,8,1,1]
      const %r: f32[8,24,1,1]
      %a = conv(%x, %w) | relu // "a"
      %b = conv(%a, %v, %bias) groups=12 pads_begin=[1,1] pads_end=[1,1] | relu // "b"
      %c = concat(%a, %b) axis=1 // "c"
      %m = reduce(%c) mode=mean axes=[2,3] // "m"
      %s = conv(%m, %r) | relu // "s"
      %t = conv(%s, %k) | sigmoid // "t"
      %d = mul(%c, %t) // "d"
      %y = conv(%d, %u) // "y"
    }"""


def hierarchy(**parts: str) -> Graph:
    """As in Res2Net: each part joins what was computed of the one before."""
    return graph(HIERARCHY.format(**{"joins": "add(%d, %b)", "reads": "conv(%g, %u)", "out": ""} | parts))


def agrees(before: Graph, after: Graph) -> None:
    x = {"x": np.random.default_rng(1).standard_normal(before.type("x").shape).astype(np.float32)}
    wanted, found = evaluate(before, x), evaluate(after, x)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


def channels(of: Graph) -> dict[str, int]:
    return {node.name: of.type(node.outputs[0]).shape[1] for node in of.nodes}


def test_parts_of_a_hierarchy_are_whole_loads() -> None:
    before = hierarchy()
    result = run(PAD_SLICES, before)
    assert said(result) == [("t", "padded parts of 13+13+13 channels", "each is a multiple of 8")]
    assert channels(result.graph) == {
        "t": 48, "a": 16, "b": 16, "c": 16, "d": 16, "e": 16, "f": 16, "p": 16, "g": 48, "y": 24,
    }  # fmt: skip
    begins = [node.op.begin[1] for node in result.graph.nodes if node.op.kind == "slice"]  # type: ignore[attr-defined]
    assert begins == [0, 16, 32]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("constants", "joins"),
    [
        ("const %n: f32[13,1,1]", "prelu(%d, %n)"),
        ("const %n: f32[1,13,1,1]", "mul(%n, %d)"),
        ("const %n: f32[13,1,1]\n      const %k: f32[1,13,1,1]", "add(%d, %n, %k) | mul(%k) | relu"),
    ],
)
def test_constants_of_channels_are_padded_with_them(constants: str, joins: str) -> None:
    text = HIERARCHY.format(joins=joins, reads="conv(%g, %u)", out="")
    before = graph(text.replace("const %bias", f"{constants}\n      const %bias", 1))
    result = run(PAD_SLICES, before)
    assert said(result) == [("t", "padded parts of 13+13+13 channels", "each is a multiple of 8")]
    assert channels(result.graph)["e"] == 16
    agrees(before, result.graph)


def test_depthwise_convolutions_means_and_gates_keep_parts_apart() -> None:
    before = graph(GHOST)
    result = run(PAD_SLICES, before)
    assert said(result) == [("a", "padded parts of 12+12 channels", "each is a multiple of 8")]
    assert channels(result.graph) == {"a": 16, "b": 16, "c": 32, "m": 32, "s": 8, "t": 32, "d": 32, "y": 24}
    assert next(node.op.groups for node in result.graph.nodes if node.name == "b") == 16  # type: ignore[attr-defined]
    agrees(before, result.graph)


@pytest.mark.parametrize(
    "staged",
    [
        ("conv(%x, %w)", "conv(%x, %w, %z)", "prelu", "12,1,1"),
        ("conv(%a, %v, %bias)", "conv(%a, %v, %bias, %z)", "mul", "1,12,1,1"),
        ("concat(%a, %b) axis=1", "concat(%a, %b, %z) axis=1", "mul", "1,24,1,1"),
        ("reduce(%c) mode=mean axes=[2,3]", "reduce(%c, %z) mode=mean axes=[2,3]", "mul", "24,1,1"),
    ],
    ids=["convolution", "depthwise", "concatenation", "mean"],
)
def test_a_constant_of_channels_in_an_epilogue_is_padded_with_them(staged: tuple[str, str, str, str]) -> None:
    plain, reading, function, shape = staged
    (line,) = (line for line in GHOST.splitlines() if plain in line)
    node, _, name = line.replace(plain, reading).partition(" //")
    text = GHOST.replace(line, f"{node} | {function}(%z) //{name}").replace(
        "const %w", f"const %z: f32[{shape}]\n      const %w", 1
    )
    before = graph(text)
    result = run(PAD_SLICES, before)
    assert channels(result.graph)["c"] == 32
    agrees(before, result.graph)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"reads": "softmax(%g) axis=1"}, "'y' is softmax"),
        ({"joins": "exp(%d)"}, "'e' computes exp"),
        ({"out": ", %e"}, "'e' is a graph output"),
    ],
)
def test_what_cannot_be_padded_stays(parts: dict[str, str], reason: str) -> None:
    before = hierarchy(**parts)
    result = run(PAD_SLICES, before)
    assert result.graph == before
    expected = f"parts of 13+13+13 channels are no multiples of 8, but {reason}"
    assert [each[1:] for each in said(result)] == [("declined", expected)]


def test_few_channels_would_grow_too_much() -> None:
    before = graph(GHOST.replace("12", "10").replace("24", "20"))
    result = run(PAD_SLICES, before)
    assert result.graph == before
    reason = "parts of 10+10 channels are no multiples of 8, but they would grow by over a third together"
    assert said(result) == [("a", "declined", reason)]


def test_a_small_part_may_grow_beside_large_ones() -> None:
    """As in ReXNet, whose shortcuts are added to the first channels of wider blocks."""
    before = graph("""
        graph g batch=1 (%x: f32[1,16,3,3]) -> (%y) {
          const %v: f32[40,16,1,1]
          const %w: f32[45,16,1,1]
          const %u: f32[24,45,1,1]
          %s = conv(%x, %v) // "s"
          %t = conv(%x, %w) // "t"
          %a = slice(%t) begin=[0,0,0,0] count=[1,40,3,3] step=[1,1,1,1] // "a"
          %d = add(%a, %s) // "d"
          %b = slice(%t) begin=[0,40,0,0] count=[1,5,3,3] step=[1,1,1,1] // "b"
          %c = concat(%d, %b) axis=1 // "c"
          %y = conv(%c, %u) // "y"
        }""")
    result = run(PAD_SLICES, before)
    assert said(result) == [("s", "padded parts of 40+5 channels", "each is a multiple of 8")]
    assert channels(result.graph) == {"s": 40, "t": 48, "a": 40, "d": 40, "b": 8, "c": 48, "y": 24}
    agrees(before, result.graph)


def test_channels_around_depthwise_convolutions_are_padded_where_nothing_is_cut() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,16,3,3]) -> (%y) {
          const %w: f32[45,16,1,1]
          const %v: f32[45,1,3,3]
          const %u: f32[24,45,1,1]
          %a = conv(%x, %w) | hard_swish // "a"
          %b = conv(%a, %v) groups=45 pads_begin=[1,1] pads_end=[1,1] | relu // "b"
          %y = conv(%b, %u) // "y"
        }""")
    result = run(PAD_SLICES, before)
    assert said(result) == [("a", "padded parts of 45 channels", "each is a multiple of 8")]
    assert channels(result.graph) == {"a": 48, "b": 48, "y": 24}
    agrees(before, result.graph)


def test_depths_that_become_images_keep_their_channels() -> None:
    """A depthwise convolution over volumes stands between products over images of all depths."""
    before = graph("""
        graph g batch=1 (%x: f32[4,16,3,3]) -> (%y) {
          const %w: f32[45,16,1,1]
          const %v: f32[45,1,3,3,3]
          const %u: f32[24,45,1,1]
          %a = conv(%x, %w) // "a"
          %b = unfold-depth(%a) depth=4 // "b"
          %c = conv(%b, %v) groups=45 pads_begin=[1,1,1] pads_end=[1,1,1] | relu // "c"
          %d = fold-depth(%c) // "d"
          %y = conv(%d, %u) // "y"
        }""")
    result = run(PAD_SLICES, before)
    assert channels(result.graph) == {"a": 48, "b": 48, "c": 48, "d": 48, "y": 24}
    agrees(before, result.graph)


def test_channels_whose_sums_have_logarithms_stay() -> None:
    """Zeros have none: minus infinity times a weight of zero is no number."""
    before = graph("""
        graph g batch=2 (%x: f32[2,8,5,5]) -> (%y) {
          const %w: f32[20,8,1,1]
          const %v: f32[8,20,1,1]
          %c = conv(%x, %w) // "c"
          %r = relu(%c) // "r"
          %m = reduce(%r) mode=log_sum axes=[2,3] // "m"
          %y = conv(%m, %v) // "y"
        }""")
    assert run(PAD_SLICES, before).graph == before
