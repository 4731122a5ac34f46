"""Constants behind a gate are part of the weights of the product that it gates."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.folded_gates import FOLD_GATED

CONV = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"


def gated(lines: str, outputs: str = "%y") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,5,5], %g: f32[2,8,1,1]) -> ({outputs}) {{
          const %w: f32[8,4,1,1] #
          const %b: f32[8] #
          const %s: f32[] #
          const %t: f32[8,1,1] #
          const %q: f32[1,1,5,5] #
          {lines}
        }}""")


def test_two_constants_behind_a_gate() -> None:
    result = run(
        FOLD_GATED,
        gated(f"""
          %p = conv(%x, %w, %b) {CONV} // "p"
          %a = mul(%g, %p) // "a"
          %c = mul(%a, %s) // "c"
          %y = mul(%t, %c) // "y"
    """),
    )
    assert body(result.graph).splitlines() == [
        f"%'p.scaled.scaled = conv(%x, %'w.folded.2, %'b.folded.2) {CONV}  // \"p\"",
        '%y = mul(%g, %\'p.scaled.scaled) @y  // "a", "c", "y"',
    ]
    assert said(result) == [
        ("c", "folded", "into the weights of 'p', which 'a' gates"),
        ("y", "folded", "into the weights of 'p', which 'c' gates"),
    ]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        (f"%p = conv(%x, %w) {CONV}\n %a = mul(%p, %g)\n %y = mul(%a, %q)", "%y"),
        (f"%p = conv(%x, %w) {CONV}\n %a = add(%p, %g)\n %y = mul(%a, %s)", "%y"),
    ],
)
def test_others_stay(lines: str, outputs: str) -> None:
    before = gated(lines, outputs)
    assert run(FOLD_GATED, before).graph is before


@pytest.mark.parametrize("shared", ["a", "p"])
def test_what_others_read_is_not_scaled(shared: str) -> None:
    lines = f'%p = conv(%x, %w) {CONV} // "p"\n %a = mul(%p, %g) // "a"\n %y = mul(%a, %s) // "y"'
    before = gated(lines, f"%y, %{shared}")
    result = run(FOLD_GATED, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", f"'{shared}' is a graph output")]
