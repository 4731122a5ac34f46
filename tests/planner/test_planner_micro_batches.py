"""Micro-batches: which steps go over the batch part by part, where tensors lie then, and that nothing else changes."""

from __future__ import annotations

import pytest
from in_place_plans import HOST, PITCHING
from planner_checks import compare, graph, no_step_overwrites_what_is_read_later, random_inputs
from planner_fakes import AS_MODEL, HOST_TARGET, SPEC, recipe
from planner_interpreter import run_in_parts, run_plan

from bolt_build.emit.step_source import expression
from bolt_build.families.base import Family
from bolt_build.graph.reference import evaluate
from bolt_build.planner import micro_batches
from bolt_build.planner.engine_plan import Location, MicroBatchSpan, Parts
from bolt_build.planner.parts import part_of
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.targets import target_named


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that hold some hundred bytes, so that small tensors are large; calls cost next to nothing."""
    for name, nbytes in (("_NEAR", 600), ("_SHARED", 1200), ("_CALL", 1), ("_WORTH", 2000)):
        monkeypatch.setattr(micro_batches, name, nbytes)


def planned(text: str, families: tuple[Family, ...] = tuple(HOST)) -> PlannedEngine:
    """The engine; its outputs are the same with micro-batches and without, and right."""
    of = graph(text)
    engine = plan_engine([of], recipe(AS_MODEL), SPEC, HOST_TARGET, families)
    (plan,) = engine.plan.plans
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(of, 0)
    expected = evaluate(of, inputs)
    compare(run_plan(engine, plan, inputs), expected, 1e-5)
    compare(run_in_parts(engine, plan, inputs), expected, 1e-5)
    return engine


CONVOLUTIONS = """
    graph g batch=4 (%x: f32[4,4,6,6]) -> (%y) {
      const %w: f32[8,4,1,1] #1
      const %v: f32[4,8,1,1] #2
      %a = conv(%x, %w) // "a"
      %b = softmax(%a) axis=1 // "b"
      %c = conv(%b, %v) // "c"
      %y = add(%c, %x) // "y"
    }"""


def test_steps_that_compute_images_by_themselves_go_over_the_batch_part_by_part(small_caches: None) -> None:
    engine = planned(CONVOLUTIONS)
    (plan,) = engine.plan.plans
    assert plan.micro_batches == (MicroBatchSpan(0, len(plan.steps) - 1, 4),)
    said = [decision for decision in engine.plan.decisions if decision.stage == "micro-batches"]
    assert [(each.subject, each.action) for each in said] == [
        (f"batch 4: {plan.steps[0].name} to {plan.steps[-1].name}", "go over the batch in 4 parts")
    ]
    inside = [tensor for step in plan.steps for tensor in step.outputs if tensor.location.kind == "arena"]
    assert all(tensor.parts is not None and tensor.parts.held is not None for tensor in inside)
    largest = max(tensor.operand.nbytes for tensor in inside)
    assert largest // 4 <= plan.slab_bytes < largest


def test_a_batch_has_all_its_divisors_as_parts() -> None:
    for batch in range(1, 200):
        assert micro_batches.divisors_of(batch) == [parts for parts in range(2, batch + 1) if batch % parts == 0]


def test_the_largest_batch_is_a_prime_and_has_itself_alone() -> None:
    assert micro_batches.divisors_of(2**31 - 1) == [2**31 - 1]


def test_a_step_over_all_images_ends_a_band(small_caches: None) -> None:
    """A softmax over the batch reads all that the span left, which lies part behind part."""
    (plan,) = planned("""
        graph g batch=4 (%x: f32[4,4,6,6]) -> (%y) {
          const %w: f32[8,4,1,1] #1
          const %v: f32[8,8,1,1] #2
          %a = conv(%x, %w) // "a"
          %b = conv(%a, %v) // "b"
          %y = softmax(%b) axis=0 // "y"
        }""").plan.plans
    (span,) = plan.micro_batches
    over = next(step.index for step in plan.steps if step.name == "y")
    assert span.last < over
    left = plan.steps[span.last].outputs[0]
    assert left.parts == Parts(left.operand.nbytes // 4)
    assert all(tensor.parts is None for tensor in plan.steps[over].inputs)


def test_parts_of_a_concatenation_lie_in_their_part_of_it(small_caches: None) -> None:
    """Rows apart, in the slab as in the arena."""
    (plan,) = planned(
        """
        graph g batch=4 (%x: f32[4,8,3,3]) -> (%y) {
          %a = tanh(%x) // "a"
          %b = exp(%a) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %y = softmax(%c) axis=1 // "y"
        }""",
        (PITCHING,),
    ).plan.plans
    assert [span.parts for span in plan.micro_batches] == [4]


@pytest.mark.parametrize("line", ["add(%x, %c)", "concat(%c, %x) axis=1", "concat(%x, %c) axis=2"])
def test_constants_of_the_batch_have_no_parts(line: str) -> None:
    """A residual, or a class token in front of each image's."""
    (plan,) = planned(f"""
        graph g batch=4 (%x: f32[4,4,2,2]) -> (%y) {{
          const %c: f32[4,4,2,2] #1
          %y = {line} // "y"
        }}""").plan.plans
    problem = plan.steps[0].problem
    assert part_of(problem, 4) is None
    assert not plan.micro_batches


def test_filters_that_are_given_are_of_all_images(small_caches: None) -> None:
    """As many as the batch has, and no constants."""
    (plan,) = planned("""
        graph g batch=4 (%x: f32[4,4,6,6], %w: f32[4,4,1,1]) -> (%y) {
          %a = tanh(%x) // "a"
          %b = conv(%a, %w) // "b"
          %c = exp(%b) // "c"
          %y = softmax(%c) axis=1 // "y"
        }""").plan.plans
    (given,) = [step for step in plan.steps if "b" in step.covers]
    assert part_of(given.problem, 4) is None
    assert plan.parts(given.index) == 1


def test_other_targets_have_no_bands(small_caches: None) -> None:
    of = graph(CONVOLUTIONS)
    target = target_named("h200")
    engine = plan_engine([of], recipe(AS_MODEL), SPEC, target, HOST)
    assert engine.plan.plans[0].micro_batches == ()


def test_addresses_of_parts() -> None:
    at = Location("input", 1, 8)
    assert expression(at) == "r.input(1, 8)"
    assert expression(at, Parts(64)) == "r.input(1, 8 + r.part * 64)"
    assert expression(Location("output", 0), Parts(64)) == "r.output(0, r.part * 64)"
    assert expression(Location("arena", 128), Parts(64)) == "r.arena(128 + r.part * 64)"
    assert expression(Location("arena", 128), Parts(64, 0)) == "r.held(0, 128, 64)"
