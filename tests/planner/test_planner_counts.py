"""Whole numbers that are computed in floating point stay whole, whatever the precision of the rest."""

from __future__ import annotations

import pytest
from pair_fakes import with_policy
from planner_checks import graph

from bolt_build.families import load
from bolt_build.planner.counts import counts
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.selection import PREDICTED
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200 = target_named("h200")

EXPERTS = """
    graph g batch=1 (%e: i64[8], %x: f32[8,4]) -> (%y, %z) {
      const %width: f32[1] {0.75}
      const %none: f32[3] {0,0,0}
      const %ones: f32[8] {1,1,1,1,1,1,1,1}
      %c = cast(%e) to=f32 // "c"
      %d = div(%c, %width) // "d"
      %i = cast(%d) to=i64 // "i"
      %n = scatter_elements(%none, %i, %ones) axis=0 reduction=add // "n"
      %y = cast(%n) to=i64 // "y"
      %m = mul(%x, %x) // "m"
      %z = cast(%m) to=i64 // "z"
    }"""
"""As histograms of experts are exported, and a number of a layer's that becomes an integer."""


def test_counts_of_experts_are_exact_and_results_of_layers_are_not() -> None:
    assert set(counts(graph(EXPERTS))) == {"c", "d", "i", "n", "y"}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_plan_in_half_precision_has_them_in_single_and_says_so(precision: str) -> None:
    engine = plan_engine(
        [graph(EXPERTS)], with_policy("auto"), TargetSpec("h200", precision), H200, load(H200), PREDICTED
    )
    stored = {step.name: step.problem.outputs[0].format.dtype.value for step in engine.plan.plans[0].steps}
    assert {name: stored[name] for name in ("d", "n", "m")} == {"d": "f32", "n": "f32", "m": stored["m"]}
    assert stored["m"] == {"fp16": "f16", "bf16": "bf16"}[precision]
    (said,) = [each.reason for each in engine.plan.decisions if each.stage == "precision"]
    assert said == "whole numbers are computed, or asked about"


MASK = """
    graph g batch=1 (%m: bool[1,8], %x: f32[1,8]) -> (%y) {
      const %least: f32[] {1}
      %f = cast(%m) to=f32 // "f"
      %s = reduce(%f) mode=sum axes=[1] keepdims=true // "s"
      %b = compare({side}, %least) question=less // "b"
      %y = where(%b, %least, %x) // "y"
    }"""


def test_so_is_what_a_comparison_asks_about() -> None:
    assert set(counts(graph(MASK.replace("{side}", "%s")))) == {"f", "s", "b"}


def test_a_comparison_of_a_layer_s_results_is_as_exact_as_these() -> None:
    text = MASK.replace("{side}", "%p").replace("%b = compare", '%p = mul(%s, %x) // "p"\n      %b = compare')
    assert set(counts(graph(text))) == set()
