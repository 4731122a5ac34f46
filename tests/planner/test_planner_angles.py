"""Sines and cosines of angles that inputs give are computed in fp32, whatever the precision of the rest."""

from __future__ import annotations

from pair_fakes import with_policy
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.planner.angles import angles, places
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.selection import PREDICTED
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200 = target_named("h200")

STEP = """
    graph g batch=1 (%t: i64[1], %x: f32[1,4]) -> (%y) {
      const %f: f32[8] #
      const %w: f32[8,4] #
      %c = cast(%t) to=f32 // "c"
      %r = reshape(%c) shape=[1,1] // "r"
      %a = mul(%r, %f) // "a"
      %s = sin(%a) // "s"
      %p = matmul(%s, %w) // "p"
      %y = add(%p, %x) // "y"
    }"""


def named(text: str) -> set[str]:
    return set(angles(graph(text)))


def test_a_time_step_is_exact_up_to_its_sine() -> None:
    assert named(STEP) == {"c", "r", "a", "s"}


def test_a_plan_in_half_precision_has_them_in_single_and_says_so() -> None:
    engine = plan_engine([graph(STEP)], with_policy("auto"), TargetSpec("h200", "fp16"), H200, load(H200), PREDICTED)
    stored = {step.name: step.problem.outputs[0].format.dtype for step in engine.plan.plans[0].steps if not step.view}
    assert {name: dtype.value for name, dtype in stored.items() if "@" not in name} == {
        "c": "f32", "s": "f32", "y": "f32",
    }  # fmt: skip
    assert stored["s@f16/row"] is DType.F16
    (said,) = [each.reason for each in engine.plan.decisions if each.stage == "precision"]
    assert said == "sines and cosines are of angles that inputs give"


def test_coordinates_times_frequencies_are_angles_and_results_of_layers_are_not() -> None:
    text = STEP.replace("%a = mul(%r, %f)", "const %m: f32[4,8] #\n      %a = matmul({0}, {1})")
    short, deep = text.replace("{0}", "%x").replace("{1}", "%m"), text.replace("{0}", "%e").replace("{1}", "%v")
    assert named(short) == {"a", "s"}
    deep = deep.replace("%r = ", '%e = concat(%x, %x) axis=1 // "e"\n      %r = ').replace("%m: f32[4", "%v: f32[8")
    assert named(deep) == set()


WARP = """
    graph g batch=1 (%x: f32[1,8,16,16]) -> (%y) {
      const %w: f32[2,8,3,3] #
      const %v: f32[8,8,1,1] #
      const %base: f32[1,2,16,16] #
      %f = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "f"
      %a = add(%f, %base) // "a"
      %t = transpose(%a) perm=[0,2,3,1] // "t"
      %c = conv(%x, %v) // "c"
      %y = grid_sample(%c, %t) // "y"
    }"""


def test_places_in_images_are_exact_back_to_what_layers_leave() -> None:
    assert set(places(graph(WARP))) == {"a", "t"}
    engine = plan_engine([graph(WARP)], with_policy("auto"), TargetSpec("h200", "fp16"), H200, load(H200), PREDICTED)
    plan = engine.plan.plans[0]
    sampled = next(step for step in plan.steps if step.problem.op.kind == "grid_sample").problem
    assert [operand.format.dtype for operand in sampled.inputs] == [DType.F16, DType.F32]
    assert [each.reason for each in engine.plan.decisions if each.stage == "precision"] == [
        "images are sampled at these places"
    ]


def test_places_that_are_taken_of_much_larger_tensors_begin_behind_these() -> None:
    text = WARP.replace("%w: f32[2,8", "%w: f32[10,8").replace(
        "%a = add(%f, %base)",
        '%s = slice(%f) begin=[0,0,0,0] count=[1,2,16,16] step=[1,1,1,1] // "s"\n%a = add(%s, %base)',
    )
    assert set(places(graph(text))) == {"a", "t"}
