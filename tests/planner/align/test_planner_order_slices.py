"""Channels of a product whose result is cut in parts: those of whole loads come first, and begin at whole loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_checks import body, graph, run, said
from planner_fakes import POLICY

from bolt_build.planner.passes.align.order_slices import ORDER_SLICES
from bolt_build.schema.recipe import PaddingPolicy


def part(name: str, begin: int, count: int, of: str = "%p") -> str:
    return f'%{name} = slice({of}) begin=[0,{begin},0,0] count=[2,{count},3,3] step=[1,1,1,1] // "{name}"'


def cut(*parts: tuple[str, int, int], filters: int, front: str = "conv(%x, %w, %b)", more: str = "") -> str:
    lines = "\n".join(part(*each) for each in parts)
    outputs = ", ".join(f"%{name}" for name, *_ in parts)
    return f"""
        graph g batch=2 (%x: f32[2,8,3,3]) -> ({outputs}) {{
          const %w: f32[{filters},8,1,1] #
          const %b: f32[{filters}] #
          %p = {front} // "p"
          {lines}
          {more}
        }}"""


def test_the_odd_part_goes_last_and_zeros_fill_the_last_load() -> None:
    before = graph(cut(("q", 0, 1), ("k", 1, 8), ("v", 9, 16), filters=25))
    result = run(ORDER_SLICES, before)
    assert said(result) == [("p", "ordered parts of 1+8+16 channels", "whole loads of 8 first")]
    lines = body(result.graph).splitlines()
    assert [line.split("begin=")[1].split(" count")[0] for line in lines[1:]] == [
        "[0,24,0,0]", "[0,0,0,0]", "[0,8,0,0]",
    ]  # fmt: skip
    weight = result.graph.constant("w.ordered")
    assert weight is not None
    assert weight.shape == (32, 8, 1, 1)
    assert not weight[25:].any()
    before_weight = before.constant("w")
    assert before_weight is not None
    np.testing.assert_array_equal(weight[:25], np.roll(before_weight, -1, 0))


def test_columns_of_a_matrix_product_too() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,8]) -> (%a, %b) {
          const %w: f32[8,19] #
          %p = matmul(%x, %w) // "p"
          %a = slice(%p) begin=[0,0,3] count=[2,5,16] step=[1,1,1] // "a"
          %b = slice(%p) begin=[0,0,0] count=[2,5,3] step=[1,1,1] // "b"
        }""")
    result = run(ORDER_SLICES, before)
    assert said(result) == [("p", "ordered parts of 3+16 channels", "whole loads of 8 first")]
    assert result.graph.type(result.graph.nodes[0].outputs[0]).shape == (2, 5, 24)


@pytest.mark.parametrize(
    "text",
    [
        cut(("a", 0, 8), ("c", 8, 16), filters=24),  # all begin at whole loads
        cut(("a", 0, 3), ("c", 3, 5), filters=8),  # none is whole loads
        cut(("a", 0, 8), ("c", 4, 8), filters=12),  # channels in common
        cut(("a", 0, 8), ("p", 0, 1), filters=9).replace(part("p", 0, 1), ""),  # an output of the graph
        cut(("a", 0, 8), ("z", 8, 1), filters=9).replace(part("z", 8, 1), '%z = relu(%p) // "z"'),
        cut(("a", 0, 8), ("c", 8, 1), filters=9, front="conv(%x, %w, %b) | add(%r)")
        .replace("(%x: f32[2,8,3,3])", "(%x: f32[2,8,3,3], %r: f32[2,9,3,3])")
        .replace("%b) | add", "%b, %r) | add"),
    ],
)
def test_other_products_stay(text: str) -> None:
    before = graph(text)
    assert run(ORDER_SLICES, before).graph is before


def test_a_recipe_may_forbid_it() -> None:
    before = graph(cut(("q", 0, 1), ("k", 1, 8), filters=9))
    result = ORDER_SLICES.run(before, replace(POLICY, padding=PaddingPolicy("never")))
    assert result.graph is before
    assert said(result) == [("p", "declined", "policy.padding.mode is never")]
