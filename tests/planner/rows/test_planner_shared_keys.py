"""Heads that share one head of keys and values become queries, where each has few."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.shared_keys import SHARE_KEYS

DID = ("y", "made queries of heads", "4 heads share their keys")


def attention(queries: int, more: str = "", mask: str = "") -> Graph:
    given, read = (f", %m: f32[{mask}]", ", %m") if mask else ("", "")
    return graph(f"""
        graph g batch=6 (%q: f32[6,{queries},32], %k: f32[6,9,8], %v: f32[6,9,4]{given}) -> (%y) {{
          %y = attention(%q, %k, %v{read}) heads=4 kv_heads=1 scale=0.5{more} // "y"
        }}""")


def test_one_token_of_grouped_heads_is_one_head_of_queries() -> None:
    result = run(SHARE_KEYS, attention(1))
    assert said(result) == [DID]
    assert body(result.graph).splitlines() == [
        "%'y.queries = reshape(%q) shape=[6,4,8]",
        "%'y.rows = attention(%'y.queries, %k, %v) heads=1 kv_heads=1 scale=0.5  // \"y\"",
        "%y = reshape(%'y.rows) shape=[6,1,16] @y.heads",
    ]


@pytest.mark.parametrize("more", ["", " safe=true"])
@pytest.mark.parametrize("mask", ["", "9", "1,9", "6,1,1,9", "2,1,1,9", "6,4,1,9", "3,4,1,9", "4,1,9"])
def test_masks_of_heads_become_those_of_queries(mask: str, more: str) -> None:
    assert said(run(SHARE_KEYS, attention(1, more, mask))) == [DID]


@pytest.mark.parametrize("mask", ["", "9", "6,1,1,9"])
def test_scores_with_a_cap_have_masks_of_keys(mask: str) -> None:
    assert said(run(SHARE_KEYS, attention(1, " cap=2.0", mask))) == [DID]


@pytest.mark.parametrize("mask", ["", "9", "6,1,1,9", "2,1,1,9"])
def test_several_queries_share_masks_of_keys(mask: str) -> None:
    assert said(run(SHARE_KEYS, attention(5, mask=mask))) == [DID]


@pytest.mark.parametrize(
    ("queries", "more", "mask", "obstacle"),
    [
        (5, "", "6,4,1,9", "its mask has rows of their own for heads or queries"),
        (5, "", "5,9", "its mask has rows of their own for heads or queries"),
        (5, " causal=true", "", "which keys a query reads follows from its place"),
        (5, " window=2", "", "which keys a query reads follows from its place"),
        (1, " cap=2.0", "6,4,1,9", "its mask has rows of their own for heads, and its scores a cap"),
        (1, " | relu", "", "something follows in its kernel"),
    ],
)
def test_heads_stay_apart(queries: int, more: str, mask: str, obstacle: str) -> None:
    before = attention(queries, more, mask)
    result = run(SHARE_KEYS, before)
    assert said(result) == [("y", "declined", f"4 heads share their keys, but {obstacle}")]
    assert result.graph == before


def test_many_queries_fill_tiles_by_themselves() -> None:
    result = run(SHARE_KEYS, attention(64))
    assert said(result) == []
