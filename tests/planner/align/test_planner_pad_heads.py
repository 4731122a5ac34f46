"""Heads of attention end at whole 16 bytes, with zeros behind what there is of each."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.align.pad_heads import PAD_HEADS
from bolt_build.schema.recipe import PaddingPolicy, Policy
from bolt_build.targets import target_named

PACKED = """
    graph g batch=2 (%x: f32[2,5,16]) -> ({outputs}) {{
      const %w: f32[16,{width}]
      const %b: f32[{width}]
      const %v: {weight}
      const %c: f32[16]
      %a = matmul(%x, %w, %b) // "a"
      %h = attention(%a) heads=4 kv_heads=2 scale=0.4 packed=true // "h"
      %y = matmul(%h, %v, %c, %x){flag} | add(%x) // "y"
      {more}
    }}"""
USUAL = {"outputs": "%y", "width": 48, "weight": "f32[24,16]", "flag": "", "more": ""}
APART = """
    graph g batch=2 (%x: f32[2,5,16], %z: f32[2,7,16], %m: f32[4,5,7]) -> (%y) {
      const %w: f32[16,72]
      const %u: f32[72,16]
      const %t: f32[16,28]
      const %v: f32[28,16]
      %q = matmul(%x, %w) // "q"
      %k = matmul(%z, %u) transpose_b=true // "k"
      %s = matmul(%z, %t) // "s"
      %h = attention(%q, %k, %s, %m) heads=4 kv_heads=4 scale=0.4 // "h"
      %y = matmul(%h, %v) // "y"
    }"""


@pytest.mark.parametrize("turned", [{}, {"weight": "f32[16,24]", "flag": " transpose_b=true"}])
def test_packed_heads_are_filled_up_in_the_products_around_them(turned: dict[str, str]) -> None:
    result = run(PAD_HEADS, graph(PACKED.format(**USUAL | turned)))
    flag = turned.get("flag", "")
    assert body(result.graph) == (
        "%'a.heads = matmul(%x, %'w.heads, %'b.heads)  // \"a\"\n"
        "%'h.heads = attention(%'a.heads) heads=4 kv_heads=2 scale=0.4 packed=true  // \"h\"\n"
        f"%y = matmul(%'h.heads, %'v.heads, %c, %x){flag} | add(%x)  // \"y\""
    )
    assert result.graph.type("a.heads").shape == (2, 5, 64)
    assert said(result) == [("h", "padded heads of 6 elements", "each is a multiple of 8")]


def test_queries_and_keys_are_filled_up_and_values_are_by_themselves() -> None:
    result = run(PAD_HEADS, graph(APART))
    assert [result.graph.type(name).shape for name in ("q.heads", "k.heads", "s.heads", "h.heads")] == [
        (2, 5, 96), (2, 7, 96), (2, 7, 32), (2, 5, 32),
    ]  # fmt: skip
    assert said(result) == [("h", "padded heads of 18 and 7 elements", "each is a multiple of 8")]


@pytest.mark.parametrize(
    ("text", "padded"),
    [
        (APART.replace("72", "64"), ["h.heads", "s.heads"]),
        (APART.replace("28", "32"), ["k.heads", "q.heads"]),
    ],
)
def test_heads_of_whole_loads_stay(text: str, padded: list[str]) -> None:
    result = run(PAD_HEADS, graph(text))
    assert (
        sorted(each.name for each in result.graph.values if each.name in ("q.heads", "k.heads", "s.heads", "h.heads"))
        == padded
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"outputs": "%y, %h"}, "'h' is a graph output"),
        ({"outputs": "%y, %a"}, "'a' is a graph output"),
        ({"outputs": "%y, %r", "more": '%r = relu(%a) // "r"'}, "'a' is read by 2 nodes"),
        ({"outputs": "%y, %r", "more": '%r = relu(%h) // "r"'}, "'r' is no product of its result with a weight"),
        ({"width": 40, "weight": "f32[20,16]"}, "they would grow by over a third"),
    ],
)
def test_heads_that_something_else_reads_stay(changed: dict[str, str], why: str) -> None:
    result = run(PAD_HEADS, graph(PACKED.format(**USUAL | changed)))
    elements = 5 if "width" in changed else 6
    assert said(result) == [("h", "declined", f"heads of {elements} elements are no multiples of 8, but {why}")]


def test_operands_that_are_no_products_stay() -> None:
    text = APART.replace("%q = matmul(%x, %w)", "%q = concat(%x, %x, %x, %x, %x) axis=2").replace("72", "80")
    text = text.replace("const %w: f32[16,80]\n", "").replace("28", "24")
    result = run(PAD_HEADS, graph(text))
    why = "'q' is no product of rows with a weight"
    assert said(result) == [("h", "declined", f"heads of 20 and 6 elements are no multiples of 8, but {why}")]


def test_a_recipe_that_pads_nothing_keeps_heads() -> None:
    result = PAD_HEADS.run(graph(PACKED.format(**USUAL)), Policy(padding=PaddingPolicy("never")))
    why = "policy.padding.mode is never"
    assert said(result) == [("h", "declined", f"heads of 6 elements are no multiples of 8, but {why}")]


@pytest.mark.parametrize(
    ("target", "precision", "pays"),
    [("h200", "fp16", True), ("h200", "bf16", True), ("h200", "fp32", False), ("a100", "fp16", False)],
)
def test_it_pays_where_attention_copies_whole_loads(target: str, precision: str, pays: bool) -> None:
    assert PAD_HEADS.pays_on is not None
    assert PAD_HEADS.pays_on(target_named(target), precision) is pays
