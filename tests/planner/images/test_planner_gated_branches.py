"""Gated branches that a 1x1 convolution reads the sum of are multiplied side by side."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.images.gated_branches import GATE_BRANCHES, MOST_FILTERS

SUM, PLAIN = '%s = add(%p, %q) // "s"', "conv(%s, %w, %b)"
ALL = (("xuv", "5,5"), ("gh", "1,1"))


def branches(lines: str, outputs: str = "%y", product: str = PLAIN, filters: int = 6) -> Graph:
    """Three tensors and their gates, a sum %s of `lines`, and a convolution of it."""
    inputs = ", ".join(f"%{name}: f32[2,4,{extents}]" for names, extents in ALL for name in names)
    return graph(f"""
        graph g batch=2 ({inputs}) -> ({outputs}) {{
          const %w: f32[{filters},4,1,1] #
          const %d: f32[4,2,1,1] #
          const %b: f32[{filters}] #
          %p = mul(%x, %g) // "p"
          %q = mul(%h, %u) // "q"
          {lines}
          %y = {product} // "y"
        }}""")


def test_branches_are_multiplied_side_by_side() -> None:
    """OSNet adds up streams so."""
    before = branches('%r = mul(%v, %g) // "r"\n %t = add(%p, %q) // "t"\n %s = add(%t, %r) // "s"')
    result = run(GATE_BRANCHES, before)
    *gates, product = body(result.graph).splitlines()
    assert gates == [
        "%'y.branches = concat(%x, %u, %v) axis=1",
        "%'y.gates = concat(%g, %h, %g) axis=1",
        "%'y.gated = mul(%'y.branches, %'y.gates)",
    ]
    assert product == (
        "%y = conv(%'y.gated, %'w.folded, %b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] @y  // "
        '"r", "q", "p", "t", "s", "y"'
    )
    assert result.graph.type("w.folded").shape == (6, 12, 1, 1)
    assert said(result) == [("y", "multiplies", "'x', 'u', 'v' side by side, and their gates")]


@pytest.mark.parametrize(
    ("lines", "outputs", "product", "filters", "reason"),
    [
        ('%s = add(%p, %v) // "s"\n %z = relu(%q) // "z"', "%y, %z", PLAIN, 6, "'v' is added without a gate"),
        (SUM, "%y, %q", PLAIN, 6, "'q' is added without a gate"),
        (SUM, "%y", "conv(%s, %d) groups=2", 6, "'y' has groups"),
        (
            SUM, "%y", PLAIN, MOST_FILTERS + 1,
            "multiplying each branch by 513 filters would take longer than adding them up",
        ),
        (SUM, "%y", f"{PLAIN} | relu", 6, "'y' already has an epilogue"),
    ],
)  # fmt: skip
def test_what_keeps_a_sum(lines: str, outputs: str, product: str, filters: int, reason: str) -> None:
    before = branches(lines, outputs, product, filters)
    result = run(GATE_BRANCHES, before)
    assert (result.graph, said(result)) == (before, [("y", "declined", reason)])


@pytest.mark.parametrize(
    ("lines", "outputs", "product"),
    [
        (SUM, "%y, %s", PLAIN),
        ('%s = add(%u, %v) // "s"\n %z = add(%p, %q) // "z"', "%y, %z", "conv(%s, %w, %b)"),
        ('%z = relu(%q) // "z"', "%y, %z", "conv(%p, %w, %b)"),
    ],
)
def test_what_is_no_sum_of_gated_branches(lines: str, outputs: str, product: str) -> None:
    before = branches(lines, outputs, product)
    result = run(GATE_BRANCHES, before)
    assert (result.graph, said(result)) == (before, [])
