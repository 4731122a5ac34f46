"""Attention with heads wider than its kernels take becomes two products and a softmax."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.rows.wide_heads import MULTIPLY_WIDE_HEADS

WIDE = "its heads have 260 elements, kernels of attention take 256"
DID = ("y", "made two products and a softmax of attention", WIDE)


def test_one_wide_head_is_two_products() -> None:
    """As in decoders of latent images."""
    result = run(MULTIPLY_WIDE_HEADS, graph("""
        graph g batch=2 (%q: f32[2,5,260], %k: f32[2,7,260], %v: f32[2,7,8]) -> (%y) {
          %y = attention(%q, %k, %v) heads=1 kv_heads=1 scale=0.0625 // "y"
        }"""))  # fmt: skip
    assert said(result) == [DID]
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds == ["binary", "placed_matmul", "softmax", "placed_matmul"]


@pytest.mark.parametrize("mask", ["2,1,5,5", "5", "2,2,5,5"])
def test_packed_heads_and_masks(mask: str) -> None:
    result = run(MULTIPLY_WIDE_HEADS, graph(f"""
        graph g batch=2 (%p: f32[2,5,1560], %m: f32[{mask}]) -> (%y) {{
          %y = attention(%p, %m) heads=2 kv_heads=2 scale=1.0 packed=true // "y"
        }}"""))  # fmt: skip
    assert said(result) == [DID]
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds == ["slice", "slice", "slice", "placed_matmul", "binary", "binary", "softmax", "placed_matmul"]


@pytest.mark.parametrize(
    "made", ["%t = add(%m, %b)", "%t = add(%b, %m)", "%t = reshape(%m) shape=[1,1,1,5]", "%t = relu(%b)"]
)
def test_a_query_whose_keys_are_all_hidden_reads_their_mean(made: str) -> None:
    """As in attention: all scores of a row are minus infinity then, of which a softmax would be NaN. What a mask is
    made of may not be known."""
    result = run(MULTIPLY_WIDE_HEADS, graph(f"""
        graph g batch=2 (%p: f32[2,5,780], %b: f32[5,5]) -> (%y) {{
          const %m: f32[1,5] {{-inf, -inf, -inf, -inf, -inf}}
          {made} // "t"
          %y = attention(%p, %t) heads=1 kv_heads=1 scale=1.0 packed=true // "y"
        }}"""))  # fmt: skip
    assert said(result) == [DID]
    assert [node.op.function for node in result.graph.nodes if isinstance(node.op, Binary)][-1] == "max"


def test_a_mask_that_hides_no_key_by_infinity_is_added_alone() -> None:
    result = run(MULTIPLY_WIDE_HEADS, graph("""
        graph g batch=2 (%p: f32[2,5,780], %c: bool[5,5]) -> (%y) {
          const %hidden: f32[] {-1e9}
          const %seen: f32[] {0}
          %m = where(%c, %seen, %hidden) // "m"
          %y = attention(%p, %m) heads=1 kv_heads=1 scale=1.0 packed=true // "y"
        }"""))  # fmt: skip
    assert [node.op.function for node in result.graph.nodes if isinstance(node.op, Binary)] == ["add"]


def test_heads_that_share_one_of_keys_and_values() -> None:
    result = run(MULTIPLY_WIDE_HEADS, graph("""
        graph g batch=2 (%q: f32[2,5,520], %k: f32[2,7,260], %v: f32[2,7,260]) -> (%y) {
          %y = attention(%q, %k, %v) heads=2 kv_heads=1 scale=1.0 // "y"
        }"""))  # fmt: skip
    assert said(result) == [DID]


@pytest.mark.parametrize(
    ("heads", "more", "reason"),
    [
        (1, "causal=true", "its heads have 1040 elements, but which keys a query reads is part of it"),
        (4, "", "its heads have 260 elements, but 4 heads share 2 of keys and values"),
    ],
)
def test_what_stays_says_why(heads: int, more: str, reason: str) -> None:
    shared = 2 if heads == 4 else 1
    width = 1040 // heads * shared
    result = run(MULTIPLY_WIDE_HEADS, graph(f"""
        graph g batch=2 (%q: f32[2,7,1040], %k: f32[2,7,{width}], %v: f32[2,7,{width}]) -> (%y) {{
          %y = attention(%q, %k, %v) heads={heads} kv_heads={shared} scale=1.0 {more} // "y"
        }}"""))  # fmt: skip
    assert said(result) == [("y", "declined", reason)]


def test_heads_that_kernels_take_stay() -> None:
    result = run(MULTIPLY_WIDE_HEADS, graph("""
        graph g batch=2 (%q: f32[2,5,256], %k: f32[2,7,256], %v: f32[2,7,256]) -> (%y) {
          %y = attention(%q, %k, %v) heads=1 kv_heads=1 scale=1.0 // "y"
        }"""))  # fmt: skip
    assert said(result) == []
