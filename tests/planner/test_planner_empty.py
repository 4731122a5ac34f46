"""Tensors without elements, as a slice may leave them: passes let them be, and what is around them has its values."""

from __future__ import annotations

import pytest
from kept_meaning import keeps_its_meaning, small_thresholds
from planner_checks import graph, random_inputs
from planner_fakes import recipe

from bolt_build.families import load
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

EMPTY = {
    "a product of no depth with a sum": """
        graph g batch=2 (%a: f32[2,0,6], %b: f32[2,0,5]) -> (%y) {
          const %c: f32[2,0,5]
          %t = transpose(%a) perm=[0,2,1] // "t"
          %s = add(%b, %c) // "s"
          %y = matmul(%t, %s) // "y"
        }""",
    "a slice of a slice": """
        graph g batch=1 (%x: f32[2,4,4,1]) -> (%y) {
          %s = slice(%x) begin=[0,0,1,0] count=[2,4,1,1] step=[1,1,1,1] // "s"
          %y = slice(%s) begin=[1,0,0,0] count=[0,4,1,1] step=[1,1,1,1] // "y"
        }""",
    "columns of a product that are moved": """
        graph g batch=2 (%x: f32[2,0,6]) -> (%y) {
          const %w: f32[6,12]
          const %s: f32[]
          %p = matmul(%x, %w) // "p"
          %r = reshape(%p) shape=[2,0,2,6] // "r"
          %t = transpose(%r) perm=[0,2,1,3] // "t"
          %y = mul(%t, %s) // "y"
        }""",
    "filters of no image": """
        graph g batch=1 (%x: f32[0,8,8,8]) -> (%y) {
          const %w: f32[3,8,3,3]
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "y"
        }""",
    "heads without scores": """
        graph g batch=2 (%x: f32[2,3,0,4]) -> (%y) {
          const %w: f32[3,3]
          %t = transpose(%x) perm=[0,2,3,1] // "t"
          %m = matmul(%t, %w) // "m"
          %y = transpose(%m) perm=[0,3,1,2] // "y"
        }""",
    "attention without queries": """
        graph g batch=2 (%q: f32[2,2,0,4], %k: f32[2,2,3,4], %v: f32[2,2,3,4]) -> (%y) {
          %s = matmul(%q, %k) transpose_b=true // "s"
          %a = softmax(%s) axis=3 // "a"
          %y = matmul(%a, %v) // "y"
        }""",
    "no volume": """
        graph g batch=1 (%x: f32[0,3,4,4,4]) -> (%y) {
          const %w: f32[4,3,3,3,3]
          %y = conv(%x, %w) pads_begin=[1,1,1] pads_end=[1,1,1] // "y"
        }""",
    "columns of no image": """
        graph g batch=1 (%x: f32[0,2,1,9]) -> (%y) {
          const %w: f32[2,1,1,5]
          %y = conv(%x, %w) pads_begin=[0,2] pads_end=[0,2] groups=2 // "y"
        }""",
    "no channels beside others": """
        graph g batch=1 (%x: f32[1,0,4,4], %z: f32[1,8,4,4]) -> (%y) {
          const %w: f32[9,8,1,1]
          const %v: f32[8,9,1,1]
          %c = conv(%z, %w) // "c"
          %j = concat(%x, %c) axis=1 // "j"
          %y = conv(%j, %v) // "y"
        }""",
}


@pytest.mark.parametrize("name", EMPTY)
def test_passes_take_tensors_without_elements(name: str) -> None:
    before = graph(EMPTY[name])
    with small_thresholds():
        keeps_its_meaning(before, random_inputs(before, 0))


@pytest.mark.parametrize(("on", "precision"), [("host", "fp32"), ("t4", "fp16"), ("a100", "bf16"), ("h200", "fp16")])
@pytest.mark.parametrize("name", EMPTY)
def test_plans_have_steps_without_elements(name: str, on: str, precision: str) -> None:
    before, target = graph(EMPTY[name]), target_named(on)
    engine = plan_engine([before], recipe(), TargetSpec(on, precision), target, load(target))
    assert set(before.outputs) <= {port.name for plan in engine.plan.plans for port in plan.outputs}
