"""Constant masks of attention: triangles, zeros, and what every image has alike."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION


def attending(batch: int, constants: str, inputs: str = "", masked: str = "%m = add(%s, %mask)") -> str:
    """Attention of two rows to themselves, with scores that `masked` makes %m of."""
    return f"""
    graph g batch={batch} (%x: f32[{batch},2,12]{inputs}) -> (%y) {{
      {constants}
      %h = reshape(%x) shape=[{batch},2,3,4]
      %t = transpose(%h) perm=[0,2,1,3]
      %s = matmul(%t, %t) transpose_b=true
      {masked}
      %p = softmax(%m) axis=3
      %o = matmul(%p, %t)
      %y = transpose(%o) perm=[0,2,1,3]
    }}
    """


def test_a_constant_triangle_is_causal() -> None:
    """It is no weight: what it holds follows from the shapes."""
    rows = ", ".join("0" if key <= query else "-inf" for query in range(2) for key in range(2))
    text = attending(1, f"const %mask: f32[1,1,2,2] {{{rows}}}")
    result = run(RECOGNISE_ATTENTION, graph(text))
    (node,) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    assert node.op == Attention(3, 3, 1.0, causal=True)
    assert node.inputs == ("x", "x", "x")
    assert said(result) == [("o", "recognised attention", "3 heads of 4, 2 queries, scale 1, causal")]
    other = run(RECOGNISE_ATTENTION, graph(text.replace("{0, -inf, 0, 0}", "{0, -inf, -inf, -inf}")))
    kept = [node.op for node in other.graph.nodes if isinstance(node.op, Attention)]
    assert kept == [Attention(3, 3, 1.0, endless=True)]


@pytest.mark.parametrize(("hides", "causal"), [("-inf", True), ("-3e38", True), ("-1e4", False)])
def test_a_triangle_of_booleans_is_causal_beside_keys_that_are_there(hides: str, causal: bool) -> None:
    """A row that both leave nothing of sees all keys by their scores where a small number hides them."""
    constants = (
        "const %lower: bool[1,1,2,2] {true, false, true, true}\n const %zero: f32[] {0}\n "
        f"const %none: f32[] {{{hides}}}"
    )
    masked = "%b = logic(%lower, %there) function=and\n %n = where(%b, %zero, %none)\n %m = add(%s, %n)"
    text = attending(2, constants, ", %there: bool[2,1,1,2]", masked)
    after = RECOGNISE_ATTENTION.run(graph(text), POLICY).graph
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    assert node.op.causal is causal
    assert after.type(node.inputs[3]).shape == ((2, 1, 1, 2) if causal else (2, 1, 2, 2))


@pytest.mark.parametrize(("shape", "masks"), [("1,1", 0), ("2,1", 0), ("1,3", 1)])
def test_a_constant_mask_of_zeros_is_none(shape: str, masks: int) -> None:
    """Exporters leave one where a model was given no padding. What heads have their own of may be weights as yet."""
    images, heads = map(int, shape.split(","))
    zeros = ", ".join(["0"] * images * heads * 4)
    text = attending(2, f"const %mask: f32[{shape},2,2] {{{zeros}}}")
    result = run(RECOGNISE_ATTENTION, graph(text))
    (node,) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    assert len(node.inputs) == 3 + masks


@pytest.mark.parametrize(
    ("second", "causal", "masks"),
    [("0, -inf, 0, 0", True, ()), ("0, -1, 0, 0", False, ("mask",)), ("0, -inf, 0, 1", False, ("mask",))],
)
def test_so_is_one_that_every_image_has(second: str, causal: bool, masks: tuple[str, ...]) -> None:
    """Models that were exported for a batch have it so."""
    result = run(RECOGNISE_ATTENTION, two_images(f"0, -inf, 0, 0, {second}"))
    (node,) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    assert (node.op.causal, node.inputs[3:]) == (causal, masks)


def test_another_mask_that_every_image_has_is_read_once() -> None:
    result = run(RECOGNISE_ATTENTION, two_images("0, 1, 2, 3, 0, 1, 2, 3"))
    (node,) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    (mask,) = node.inputs[3:]
    assert (mask, result.graph.type(mask).shape) == ("mask.mask", (1, 1, 2, 2))
    same_values(two_images("0, 1, 2, 3, 0, 1, 2, 3"), result.graph)


def two_images(mask: str) -> Graph:
    return graph(attending(2, f"const %mask: f32[2,1,2,2] {{{mask}}}"))


@pytest.mark.parametrize(("hides", "causal"), [("-inf", True), ("-3e38", False)])
def test_beside_another_mask_only_an_infinite_triangle_is_causal(hides: str, causal: bool) -> None:
    """OWL-ViT adds a triangle of the least number and a mask of padding: a row of padding sees what both hide once."""
    masked = "%n = add(%s, %mask)\n %m = add(%n, %padding)"
    constants = f"const %mask: f32[1,1,2,2] {{0, {hides}, 0, 0}}"
    text = attending(1, constants, ", %padding: f32[1,1,2,2]", masked)
    result = run(RECOGNISE_ATTENTION, graph(text))
    (node,) = [node for node in result.graph.nodes if isinstance(node.op, Attention)]
    assert node.op.causal is causal
