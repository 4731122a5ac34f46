"""Elementwise nodes in one kernel: what is proposed, in which formats, and what planners make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaTerm
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import target_named

H200, FAMILY, SPACE = target_named("h200"), Portable(), "bolt::portable"

MODULATED = graph("""
    graph g batch=2 (%x: f32[2,24,6,6], %s: f32[2,24,1,1], %b: f32[2,24,1,1]) -> (%y) {
      const %w: f32[24,24,3,3] #
      const %v: f32[24] #
      %c = conv(%x, %w, %v) pads_begin=[1,1] pads_end=[1,1] | relu // "c"
      %m = mul(%c, %s) // "m"
      %a = add(%m, %b) | silu // "a"
      %y = conv(%a, %w, %v) pads_begin=[1,1] pads_end=[1,1] // "y"
    }""")
PRODUCTS = graph(
    """
    graph g batch=2 (%a: f32[2,7,40], %b: f32[2,7,40], %c: f32[2,1,40], %d: f32[7,40]) -> (%y) {
      const %half: f32[] {0.5}
      %m = mul(%a, %c) // "m"
      %n = mul(%b, %d, %half) | mul(%half) // "n"
      %y = add(%m, %n) | tanh // "y"
    }""".replace("mul(%b, %d)", "mul(%b, %d, %half)")
)


CHOSEN = graph("""
    graph g batch=2 (%x: f32[2,7,40], %m: bool[2,1,40], %i: i64[2,7,40], %j: i64[40]) -> (%y, %q, %z) {
      const %low: f32[] {0.25}
      const %high: f32[] {0.75}
      const %zero: f32[] {0.0}
      %above = compare(%x, %low) question=greater // "above"
      %below = compare(%x, %high) question=less // "below"
      %both = logic(%above, %below) function=and // "both"
      %y = where(%both, %x, %zero) // "y"
      %e = compare(%i, %j) question=equal // "e"
      %n = ask(%m) question=not // "n"
      %q = logic(%e, %n) function=or // "q"
      %f = cast(%m) to=f32 // "f"
      %z = mul(%x, %f) // "z"
    }""")


def proposed(of: Graph, target: str = "h200", precision: DType = DType.F16) -> list[Alternative]:
    answers = [FAMILY.propose(of, node, target_named(target), precision)[0] for node in of.nodes]
    several = [each for found in answers for each in found if len(each.region) > 1]
    return [each for each in several if isinstance(each.steps[0].problem.op, Formula)]


def test_an_image_is_scaled_and_shifted_in_either_layout() -> None:
    found = proposed(MODULATED)
    assert [each.region for each in found] == [("m", "a")] * 2
    for each, layout in zip(found, (Layout.ROW, Layout.CHANNELS_LAST), strict=True):
        (step,) = each.steps
        assert (step.inputs, step.outputs, step.may_share, step.reads_apart) == (
            ("c", "s", "b"), ("a",), ((0, 0),), (0, 1, 2),
        )  # fmt: skip
        assert step.problem.outputs[0].format.layout is layout
        assert [problem.op.kind for problem in each.apart] == ["binary", "binary"]
        alone = [a.seconds for name in each.region for a in FAMILY.propose(MODULATED, node_of(name), H200, DType.F16)[0]
                 if len(a.region) == 1]  # fmt: skip
        assert each.seconds < 2 * min(alone)


def node_of(name: str) -> Node:
    return next(node for node in MODULATED.nodes if node.name == name)


def test_a_host_keeps_steps_apart() -> None:
    assert proposed(MODULATED, "host", DType.F32) == []


def test_its_call_has_all_terms() -> None:
    (alternative, *_) = proposed(PRODUCTS)
    (step,) = alternative.steps
    at = StepExpressions(step.inputs, ("y",), (None,) * len(step.inputs))
    problem = step.problem
    plain = next(each for each in FAMILY.candidates(problem, H200)[0] if each.parameters == (("algorithm", "direct"),))
    f16, terms = f"{SPACE}::f16", f"{SPACE}::Term<{SPACE}::"
    names = ("Mul, 0, 1", "Mul, 2, 3", "Mul, 6, 4", "Add, 5, 7")
    formula = "".join(f"{terms}{each}>{{}}, " for each in names) + f"{terms}Tanh, 8>{{{SPACE}::Tanh{{}}}}"
    assert FAMILY.emit(problem, plain, H200, at).call == (
        f"{SPACE}::pointwise<{f16}, {f16}, {f16}, {f16}, {f16}, float>(r, {SPACE}::Pointwise<5>{{.rank = 3, "
        ".extent = {2, 7, 40}, .step = {{280, 40, 1}, {40, 0, 1}, {280, 40, 1}, {0, 40, 1}, {0, 0, 0}}}, "
        f"{SPACE}::formula({formula}), y, a, c, b, d, half);"
    )


def test_its_problem_in_words() -> None:
    (alternative, *_) = proposed(PRODUCTS)
    problem = alternative.steps[0].problem
    assert describe_problem(problem) == (
        "formula(f16[2,7,40], f16[2,1,40], f16[2,7,40], f16[7,40], f32[]) count=5 "
        'terms=["mul(0,1)","mul(2,3)","mul(6,4)","add(5,7)","tanh(8)"] -> f16[2,7,40]'
    )
    assert in_words(problem) == "mul+mul+mul+add+tanh of 2x7x40"
    assert str(FormulaTerm(Activation("clip", 0.0, 6.0), (2,))) == "clip[0.0,6.0](2)"


@pytest.mark.parametrize("of", [MODULATED, PRODUCTS])
@pytest.mark.parametrize("persistent", ["auto", "never"])
def test_an_engine_has_it_unless_chains_are_unwanted(of: Graph, persistent: str) -> None:
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert kinds.count("formula") == (persistent == "auto")
    assert ("binary" in kinds) == (persistent == "never")
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


def test_comparisons_and_choices_are_part_of_it() -> None:
    found = {each.region: each.steps[0].problem for each in reversed(proposed(CHOSEN))}  # row-major comes first
    chosen = found["above", "below", "both", "y"]
    assert describe_problem(chosen) == (
        "formula(f16[2,7,40], f32[], f32[], f16[]) count=4 "
        'terms=["greater(0,1)","less(0,2)","and(4,5)","where(6,0,3)"] -> f16[2,7,40]'
    )
    assert in_words(chosen) == "greater+less+and+where of 2x7x40"
    asked = found["e", "n", "q"]
    assert describe_problem(asked) == (
        'formula(i64[2,7,40], i64[40], bool[2,1,40]) count=3 terms=["equal(0,1)","not(2)","or(3,4)"] -> bool[2,7,40]'
    )
    # Integers are compared as they are: floating point has not all of them.
    (plain,) = (each for each in FAMILY.candidates(asked, H200)[0] if str(each).endswith("algorithm=direct"))
    call = FAMILY.emit(asked, plain, H200, StepExpressions(("i", "j", "m"), ("q",), (None,) * 3)).call
    assert f"{SPACE}::IntegerTerm<{SPACE}::typed::Equal, 0, 1>{{}}, {SPACE}::Term<{SPACE}::typed::Not, 2>{{}}" in call
    numbered = found["f", "z"]
    assert [str(term) for term in numbered.op.terms] == ["number(0)", "mul(1,2)"]
    assert numbered.outputs[0].format.dtype is DType.F16
    at = StepExpressions(("m", "x"), ("z",), (None, None))
    plain = next(each for each in FAMILY.candidates(numbered, H200)[0] if str(each).endswith("algorithm=direct"))
    assert FAMILY.emit(numbered, plain, H200, at).call.endswith(
        f"{SPACE}::formula({SPACE}::Term<{SPACE}::AsNumber, 0>{{}}, {SPACE}::Term<{SPACE}::Mul, 1, 2>{{}}), z, m, x);"
    )


def test_what_comparisons_and_choices_give() -> None:
    inputs = random_inputs(CHOSEN, 3)
    for each in proposed(CHOSEN):
        (step,) = each.steps
        values = {**inputs, **evaluate(CHOSEN, inputs)}
        values |= {v.name: v.constant.array for v in CHOSEN.values if v.constant is not None}
        (made,) = step.problem.op.evaluate([values[name] for name in step.inputs])
        np.testing.assert_allclose(made.astype(float), np.asarray(values[step.outputs[0]], float), rtol=1e-6)
