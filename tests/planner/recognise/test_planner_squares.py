"""Squares that become activations: how models write them, and what stays as it is."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.passes.recognise.squares import RECOGNISE_SQUARES


@pytest.mark.parametrize(("lines", "end"), [("mul(%a, %a)", ""), ("pow(%a, %two)", "const %two: f32[1] {2}")])
def test_a_square_rides_in_the_product_in_front_of_it(lines: str, end: str) -> None:
    written = graph(f"""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {{
          const %w: f32[4,4,1,1] #
          {end}
          %c = conv(%x, %w) // "c"
          %a = relu(%c) // "a"
          %y = {lines} // "y"
        }}""")
    found = run(RECOGNISE_SQUARES, written)
    assert said(found) == [("y", "recognised square", "x * x")]
    fused = run(FUSE_EPILOGUES, found.graph)
    assert " | relu | square " in body(fused.graph)
    assert len(fused.graph.nodes) == 1


@pytest.mark.parametrize("line", ["mul(%x, %z)", "pow(%x, %three)", "pow(%x, %twos)", "add(%x, %x)"])
def test_other_arithmetic_is_no_square(line: str) -> None:
    written = graph(f"""
        graph g batch=1 (%x: f32[4,2], %z: f32[4,2]) -> (%y) {{
          const %three: f32[] {{3}}
          const %twos: f32[2] {{2, 2}}
          %y = {line} // "y"
        }}""")
    assert run(RECOGNISE_SQUARES, written).graph is written


def test_integers_are_not_what_kernels_apply_activations_to() -> None:
    written = graph("""
        graph g batch=1 (%x: i64[4,2]) -> (%y) {
          %y = mul(%x, %x) // "y"
        }""")
    assert run(RECOGNISE_SQUARES, written).graph is written
