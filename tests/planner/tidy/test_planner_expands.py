"""Arithmetic broadcasts what an expand repeats and a reshape rearranges."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.tidy.expands import BROADCAST


@pytest.mark.parametrize(
    ("small", "full", "shape", "part", "left"),
    [
        ("2,4,1,1,1", "2,4,3,5,6", "2,12,5,6", (2, 4, 3, 1, 1), (2, 12, 1, 1)),  # a number of each group of channels
        ("2,3,1", "2,3,30", "2,3,5,6", None, (2, 3, 1, 1)),
        ("1,12,1,1", "2,12,5,6", "24,30", (2, 12, 1, 1), (24, 1)),
        ("2,1,1,30", "2,3,4,30", "2,12,5,6", None, (2, 1, 5, 6)),
    ],
)
def test_a_reshape_leaves_out_what_only_repeats(
    small: str, full: str, shape: str, part: tuple[int, ...] | None, left: tuple[int, ...]
) -> None:
    result = run(
        BROADCAST,
        graph(f"""
        graph g batch=2 (%s: f32[{small}], %x: f32[{shape}]) -> (%y) {{
          %e = expand(%s) shape=[{full}] // "e"
          %r = reshape(%e) shape=[{shape}] // "r"
          %y = div(%x, %r) // "y"
        }}"""),
    )
    assert [each[:2] for each in said(result)] == [("y", "broadcasts")]
    expands = [] if part is None else [Expand(part)]
    assert [node.op for node in result.graph.nodes] == [*expands, Reshape(left), Binary("div")]


@pytest.mark.parametrize(
    "body",
    [
        "%y = relu(%r)",
        "%z = relu(%r)\n          %y = mul(%x, %z)",
        "%y = mul(%r, %r)",  # nothing else has the axes that repeat
    ],
)
def test_what_needs_the_repeated_tensor_keeps_it(body: str) -> None:
    result = run(
        BROADCAST,
        graph(f"""
        graph g batch=1 (%s: f32[1,4,1,1,1], %x: f32[1,12,5,6]) -> (%y) {{
          %e = expand(%s) shape=[1,4,3,5,6]
          %r = reshape(%e) shape=[1,12,5,6]
          {body}
        }}"""),
    )
    assert said(result) == []
