"""Single constants that weights in fp16 would lose digits by stay out of them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.base import Pass
from bolt_build.planner.passes.fold.affine import FOLD_AFFINE
from bolt_build.planner.passes.fold.folded_gates import FOLD_GATED
from bolt_build.planner.passes.fold.forward_affine import FOLD_FORWARD

CONV = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"
BEHIND = f'%p = conv(%x, %w) {CONV} // "p"\n %y = {{}} // "y"'
FRONT = f'%s = {{}} // "y"\n %y = conv(%s, %w) {CONV} // "p"'
GATED = f'%p = conv(%x, %w) {CONV} // "p"\n %a = mul(%p, %g) // "a"\n %y = {{}} // "y"'


def scaled(lines: str, constant: str) -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,8,5,5], %g: f32[2,8,1,1]) -> (%y) {{
          const %w: f32[8,8,1,1] #
          const %c: {constant}
          {lines}
        }}""")


CASES = {
    "behind": (FOLD_AFFINE, BEHIND, "p"),
    "in front": (FOLD_FORWARD, FRONT, "x"),
    "gated": (FOLD_GATED, GATED, "a"),
}


def folds(each: Pass, before: Graph, precision: str) -> tuple[bool, str]:
    """Whether the pass changes the graph in this precision, and what it says last."""
    result = run(each, before, precision)
    return body(result.graph) != body(before), said(result)[-1][2]


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(
    ("function", "constant", "fewer"),
    [
        ("mul(%{0}, %c)", "f32[] {9e-4}", "0.0009"),
        ("mul(%c, %{0})", "f32[1,1,1,1] {-1e-5}", "-1e-05"),
        ("mul(%{0}, %c)", "f32[] {0.001}", ""),
        ("mul(%{0}, %c)", "f32[] {3e4}", ""),
        ("mul(%{0}, %c)", "f32[] {0}", ""),
        ("mul(%{0}, %c)", "f32[8,1,1] {" + "1e-5, " * 7 + "1e-5}", ""),
    ],
)
def test_fp16_alone_keeps_small_scales_out_of_weights(kind: str, function: str, constant: str, fewer: str) -> None:
    """Of a scale for each channel nothing is asked: weights may be swapped without a rebuild."""
    each, lines, value = CASES[kind]
    before = scaled(lines.format(function.format(value)), constant)
    for precision in ("fp32", "bf16"):
        assert folds(each, before, precision)[0]
    changed, reason = folds(each, before, "fp16")
    assert changed is (fewer == "")
    assert reason.startswith(f"fp16 would hold weights times {fewer}") is not changed


@pytest.mark.parametrize(("each", "lines", "value"), [CASES["behind"], CASES["in front"]])
def test_large_divisors_are_small_scales(each: Pass, lines: str, value: str) -> None:
    before = scaled(lines.format(f"div(%{value}, %c)"), "f32[] {65535}")
    assert folds(each, before, "fp32")[0]
    assert folds(each, before, "fp16") == (False, "fp16 would hold weights times 1.53e-05 to fewer digits")
