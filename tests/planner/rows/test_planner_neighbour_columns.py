"""Products whose every second column is taken leave even columns in front of odd ones."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.neighbour_columns import PART_NEIGHBOURS


def heads(*statements: str, bias: bool = False, outputs: str = "%y") -> Graph:
    """Two heads of six columns, of which the last four are taken apart."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,8]) -> ({outputs}) {{
          const %w: f32[8,12]
          const %b: f32[12]
          %m = matmul(%x, %w{", %b" if bias else ""}) // "m"
          %r = reshape(%m) shape=[2,5,2,6] // "r"
          %t = transpose(%r) perm=[0,2,1,3] // "t"
          %front = slice(%t) begin=[0,0,0,0] count=[2,2,5,2] step=[1,1,1,1] // "front"
          %p = slice(%t) begin=[0,0,0,2] count=[2,2,5,4] step=[1,1,1,1] // "p"
          %lo = slice(%p) begin=[0,0,0,0] count=[2,2,5,2] step=[1,1,1,2] // "lo"
          %hi = slice(%p) begin=[0,0,0,1] count=[2,2,5,2] step=[1,1,1,2] // "hi"
          {" ".join(statements)}
          %y = concat(%front, %hi, %lo) axis=3 // "y"
        }}""")


@pytest.mark.parametrize("bias", [False, True])
def test_slices_are_runs(*, bias: bool) -> None:
    before = heads(bias=bias)
    result = run(PART_NEIGHBOURS, before)
    assert said(result) == [("m", "put even columns first", "1 reader parted them")]
    lines = [line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines()]
    assert lines[-4:-1] == [
        "%'p.parted = slice(%'t.parted) begin=[0,0,0,2] count=[2,2,5,4] step=[1,1,1,1]",
        "%lo = slice(%'p.parted) begin=[0,0,0,0] count=[2,2,5,2] step=[1,1,1,1]",
        "%hi = slice(%'p.parted) begin=[0,0,0,2] count=[2,2,5,2] step=[1,1,1,1]",
    ]
    weight, parted = before.constant("w"), result.graph.constant("w.parted")
    assert weight is not None
    assert parted is not None
    np.testing.assert_array_equal(parted, weight[:, [0, 1, 2, 4, 3, 5, 6, 7, 8, 10, 9, 11]])


def test_columns_of_a_product_without_heads_are_parted() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,8]) -> (%y) {
          const %w: f32[8,12]
          %m = matmul(%x, %w) // "m"
          %latent = slice(%m) begin=[0,0,0] count=[2,5,4] step=[1,1,1] // "latent"
          %p = slice(%m) begin=[0,0,4] count=[2,5,8] step=[1,1,1] // "p"
          %one = reshape(%p) shape=[2,1,5,8] // "one"
          %lo = slice(%one) begin=[0,0,0,0] count=[2,1,5,4] step=[1,1,1,2] // "lo"
          %hi = slice(%one) begin=[0,0,0,1] count=[2,1,5,4] step=[1,1,1,2] // "hi"
          %n = concat(%lo, %hi) axis=3 // "n"
          %flat = reshape(%n) shape=[2,5,8] // "flat"
          %y = concat(%latent, %flat) axis=2 // "y"
        }""")
    assert said(run(PART_NEIGHBOURS, before)) == [("m", "put even columns first", "1 reader parted them")]


def moved(order: str = "0,1,2,4,3", more: str = "", outputs: str = "%y") -> Graph:
    """DeepSeek-V3's: pairs are an axis of two, which a transpose moves forwards."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,8]) -> ({outputs}) {{
          const %w: f32[8,12]
          %m = matmul(%x, %w) // "m"
          %r = reshape(%m) shape=[2,5,2,6] // "r"
          %t = transpose(%r) perm=[0,2,1,3] // "t"
          %front = slice(%t) begin=[0,0,0,0] count=[2,2,5,2] step=[1,1,1,1] // "front"
          %p = slice(%t) begin=[0,0,0,2] count=[2,2,5,4] step=[1,1,1,1] // "p"
          %pairs = reshape(%p) shape=[2,2,5,2,2] // "pairs"
          %parted = transpose(%pairs) perm=[{order}] // "parted"
          %flat = reshape(%parted) shape=[2,2,5,4] // "flat"
          {more}
          %n = neg(%flat) // "n"
          %y = concat(%front, %n) axis=3 // "y"
        }}""")


def test_pairs_that_a_transpose_parts_are_parted_in_the_weight() -> None:
    result = run(PART_NEIGHBOURS, moved())
    assert said(result) == [("m", "put even columns first", "1 reader parted them")]
    lines = [line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines()]
    assert lines[-3:-1] == [
        "%flat = slice(%'t.parted) begin=[0,0,0,2] count=[2,2,5,4] step=[1,1,1,1]",
        "%n = neg(%flat)",
    ]


@pytest.mark.parametrize(
    "before",
    [
        moved("0,1,3,4,2"),
        moved(more='%z = neg(%parted) // "z"', outputs="%y, %z"),
        heads('%z = neg(%p) // "z"', outputs="%y, %z"),
        heads('%z = slice(%t) begin=[0,0,0,1] count=[2,2,5,3] step=[1,1,1,1] // "z"', outputs="%y, %z"),
        heads(outputs="%y, %r"),
    ],
    ids=["another move", "a reader in between", "another reader", "an overlapping slice", "an output"],
)
def test_columns_that_others_read_stay(before: Graph) -> None:
    assert run(PART_NEIGHBOURS, before).graph is before


def test_a_product_that_is_one_number_has_no_columns() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,8]) -> (%y) {
          const %w: f32[8,1]
          %m = matmul(%x, %w) // "m"
          %y = reshape(%m) shape=[] // "y"
        }""")
    assert run(PART_NEIGHBOURS, before).graph == before
