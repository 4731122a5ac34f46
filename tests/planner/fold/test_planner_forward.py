"""Arithmetic by channel that the products behind it take into their weights."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.forward_affine import FOLD_FORWARD


def before(arithmetic: str, constant: str, product: str, weight: str, outputs: str = "%y", more: str = "") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,5,5]) -> ({outputs}) {{
          const %c: {constant} positive
          const %w: {weight} #
          const %b: f32[6] #
          %r = exp(%x) // "r"
          %a = {arithmetic} // "a"
          %y = {product} // "y"
          {more}
        }}""")


POINT = "conv(%a, %w, %b)"


@pytest.mark.parametrize(
    "arithmetic", ["add(%r, %c)", "add(%c, %r)", "sub(%r, %c)", "sub(%c, %r)", "mul(%c, %r)", "div(%r, %c)"]
)
@pytest.mark.parametrize("constant", ["f32[]", "f32[4,1,1]", "f32[1,4,1,1]"])
@pytest.mark.parametrize(
    ("product", "weight"),
    [
        (POINT, "f32[6,4,1,1]"),
        ("conv(%a, %w, %b)", "f32[6,4,3,3]"),  # without padding
        ("conv(%a, %w) strides=[2,2] groups=2", "f32[6,2,2,2]"),
    ],
)
def test_arithmetic_by_channel_goes_into_the_convolution_behind_it(
    arithmetic: str, constant: str, product: str, weight: str
) -> None:
    result = run(FOLD_FORWARD, before(arithmetic, constant, product, weight))
    assert [node.op.kind for node in result.graph.nodes] == ["activation", "conv"]
    assert result.graph.nodes[1].covers == ("a", "y")
    assert said(result) == [("a", "folded", "into the weights of 'y' behind it")]


@pytest.mark.parametrize(
    ("product", "weight"),
    [("matmul(%a, %w)", "f32[5,6]"), ("matmul(%a, %w, %b) transpose_b=true", "f32[6,5]")],
)
def test_arithmetic_by_column_goes_into_the_matrix_product_behind_it(product: str, weight: str) -> None:
    result = run(FOLD_FORWARD, before("sub(%c, %r)", "f32[5]", product, weight))
    assert [node.op.kind for node in result.graph.nodes] == ["activation", "matmul"]


CHAIN = """
    graph g batch=2 (%x: f32[2,4,5,5]) -> (%y, %z) {
      const %c: f32[] positive
      const %d: f32[4,1,1] #
      const %w: f32[6,4,1,1] #
      %r = exp(%x) // "r"
      %a = mul(%r, %c) // "a"
      %s = add(%a, %d) // "s"
      %y = conv(%s, %w) // "y"
      %z = conv(%s, %w) strides=[2,2] // "z"
    }"""


def test_a_chain_goes_into_all_products_that_read_it() -> None:
    result = run(FOLD_FORWARD, graph(CHAIN))
    assert [node.op.kind for node in result.graph.nodes] == ["activation", "conv", "conv"]
    assert said(result) == [
        ("s", "folded", "into the weights of 'y', 'z' behind it"),
        ("a", "folded", "into the weights of 'y', 'z' behind it"),
    ]  # fmt: skip


def test_a_scale_goes_into_a_convolution_that_pads_and_a_shift_does_not() -> None:
    pads = " pads_begin=[1,1] pads_end=[1,1]"
    scaled = run(FOLD_FORWARD, before("mul(%r, %c)", "f32[4,1,1]", POINT + pads, "f32[6,4,3,3]"))
    assert [node.op.kind for node in scaled.graph.nodes] == ["activation", "conv"]
    shifted = before("add(%r, %c)", "f32[4,1,1]", POINT + pads, "f32[6,4,3,3]")
    result = run(FOLD_FORWARD, shifted)
    assert (result.graph, said(result)) == (shifted, [("a", "declined", "'y' pads what it reads with zeros")])


@pytest.mark.parametrize(
    ("arithmetic", "constant", "outputs", "reason"),
    [
        ("div(%c, %r)", "f32[]", "%y", "'r' is the divisor"),
        ("mul(%r, %c)", "f32[]", "%y, %a", "'a' is a graph output"),
        ("mul(%r, %c)", "f32[5]", "%y", "'c' is not one number a channel of 'y'"),
    ],
)
def test_arithmetic_that_cannot_go_says_why(arithmetic: str, constant: str, outputs: str, reason: str) -> None:
    text = before(arithmetic, constant, POINT, "f32[6,4,1,1]", outputs)
    result = run(FOLD_FORWARD, text)
    assert (result.graph, said(result)) == (text, [("a", "declined", reason)])


def test_arithmetic_that_others_read_stays() -> None:
    text = before("mul(%r, %c)", "f32[]", POINT, "f32[6,4,1,1]", "%y, %z", '%z = tanh(%a) // "z"')
    assert run(FOLD_FORWARD, text).graph == text
