"""Sums of rows in one kernel: which nodes they are found among, what is proposed, and what planners make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_row_sums import GRAPHS, NORM, TABLES, tokens
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.ops.elementwise.formula import Formula
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.chains import chains_of
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import target_named
from bolt_build.verify.index_ranges import index_ranges

H200, FAMILY, SPACE = target_named("h200"), Portable(), "bolt::portable"


def proposed(of: Graph, target: str = "h200") -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of several nodes that are no formula, and why not."""
    answers = [FAMILY.propose(of, node, target_named(target), DType.F16) for node in of.nodes]
    about = [(each.what, each.reason) for _, refusals in answers for each in refusals if "," in each.what]
    several = [each for found, _ in answers for each in found if len(each.region) > 1]
    return [each for each in several if not isinstance(each.steps[0].problem.op, Formula)], about


def drawn(of: Graph) -> dict[str, Array]:
    """Random inputs; indices of the first rows of any table, from either end."""
    inputs = random_inputs(of, 0)
    return {name: array if array.dtype.kind == "f" else array.clip(-2, 1) for name, array in inputs.items()}


# What is one kernel.


def test_embeddings_and_their_normalisation_are_one_step() -> None:
    (alternative,), reasons = proposed(GRAPHS["sum-bert"])
    (step,) = alternative.steps
    assert (alternative.region, reasons) == (("a", "c", "e", "x", "n"), [])
    assert (step.inputs, step.outputs, step.may_share) == (
        ("w", "words", "t", "types", "p", "s", "b"), ("n",), (),
    )  # fmt: skip
    assert [each.op.kind for each in alternative.apart] == ["gather", "gather", "binary", "binary", "norm"]
    alone = [
        a for node in GRAPHS["sum-bert"].nodes for a in FAMILY.propose(GRAPHS["sum-bert"], node, H200, DType.F16)[0]
    ]
    assert set(alternative.apart) <= {step.problem for a in alone if not a.apart for step in a.steps}
    assert alternative.seconds < sum(a.seconds for a in alone if a.steps[0].problem in alternative.apart)


@pytest.mark.parametrize(
    ("name", "region", "outputs"),
    [
        ("sum-gpt", ("a", "c", "e", "x", "n"), ("x", "n")),
        ("sum-given", ("a", "c", "x"), ("x",)),
        ("sum-vit", ("c", "y", "n"), ("y", "n")),
        ("sum-clip", ("c", "y", "n"), ("n",)),
        ("sum-class", ("c", "y"), ("y",)),
        ("sum-added", ("z", "n"), ("n",)),
    ],
)
def test_a_sum_that_others_read_is_stored_too(name: str, region: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    (alternative,), reasons = proposed(GRAPHS[name])
    assert (alternative.region, alternative.steps[0].outputs, reasons) == (region, outputs, [])


def test_a_tensor_that_dies_may_lend_its_memory_to_the_sum() -> None:
    (alternative,), _ = proposed(GRAPHS["sum-added"])
    assert alternative.steps[0].may_share == ((0, 0), (2, 0))


def test_tables_count_by_the_rows_that_can_be_read() -> None:
    problem = proposed(GRAPHS["sum-given"])[0][0].steps[0].problem
    row = 40 * 2
    assert problem.nbytes == (3 * 7 + 7) * (row + 8) + 3 * 7 * row


def test_its_problem_in_words() -> None:
    problem = proposed(GRAPHS["sum-vit"])[0][0].steps[0].problem
    assert describe_problem(problem) == (
        "row_sum(f16[3,1,200], f16[3,6,200], f32[1,7,200]) terms=[joined2,tensor] | norm(_, f32[200], f32[200]) "
        "statistic=variance axes=[2] epsilon=1e-06 -> f16[3,7,200], f16[3,7,200]"
    )
    assert in_words(problem) == "sum of rows of 1 concatenation and 1 tensor, 3x7x200 then norm of 3x7x200"
    assert in_words(proposed(GRAPHS["sum-given"])[0][0].steps[0].problem) == "sum of rows of 2 tables, 3x7x40"


def test_its_call_says_where_rows_lie() -> None:
    problem = proposed(GRAPHS["sum-clip"])[0][0].steps[0].problem
    at = StepExpressions(("k", "x", "p", "s", "b"), ("y",), (None,) * 5)
    code = FAMILY.emit(problem, FAMILY.candidates(problem, H200)[0][0], H200, at)
    f16 = f"{SPACE}::f16"
    terms = f"{SPACE}::RowTerms<{SPACE}::PartRows<{f16}>, {SPACE}::PartRows<{f16}>, {SPACE}::TensorRows<float>>"
    assert (code.includes, code.member_type) == (("bolt_portable/cuda/norms/row_sum.h",), None)
    assert code.call == (
        f"{SPACE}::row_sum<2, 4, true, false, {SPACE}::NormVariance, float, float, {f16}, {f16}>"
        f"(r, {SPACE}::RowLoops{{.rank = 2, .extent = {{3, 7}}, .rows = 21, .count = 40}}, "
        f"{terms}{{{{static_cast<const {f16}*>(k), {{40, 40}}, 1, 0, 1}}, "
        f"{{{{static_cast<const {f16}*>(x), {{240, 40}}, 1, 1, 7}}, "
        f"{{{{static_cast<const float*>(p), {{0, 40}}}}, {{}}}}}}}}, s, b, 1e-06f, nullptr, y);"
    )


# What is not.


@pytest.mark.parametrize("behind", ['%n = tanh(%x) // "n"', f"%n = {NORM.replace('[2]', '[1]')}"])
def test_what_does_not_normalise_rows_stays_behind(behind: str) -> None:
    text = TABLES.format(tokens=7, row=96, outputs="%n", behind=behind.replace("%s, %b", "%s2, %s2"))
    of = graph(text.replace("const %s:", "const %s2: f32[7,1] #\n      const %s:"))
    (alternative,), _ = proposed(of)
    assert alternative.region == ("a", "c", "e", "x")


def test_a_gather_that_others_read_is_a_tensor() -> None:
    text = TABLES.format(tokens=7, row=96, outputs="%n, %z", behind=f'%n = {NORM}\n      %z = tanh(%a) // "z"')
    (alternative,), _ = proposed(graph(text))
    assert alternative.region == ("c", "e", "x", "n")
    assert alternative.steps[0].inputs[:3] == ("a", "t", "types")


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (tokens(36), "rows of 36 elements do not fit in registers"),
        (tokens(8200), "rows of 8200 elements do not fit in registers"),
        (graph(TABLES.format(tokens=7, row=96, outputs="%n", behind=f"%n = {NORM}").replace("f32[7,96]", "f32[7,1]")),
         "a term has not all elements of a row"),
        (graph(TABLES.format(tokens=7, row=96, outputs="%n", behind=f"%n = {NORM}").replace("f32[96]", "f32[7,96]")),
         "normalises rows with one factor and one shift for each of their elements"),
    ],
)  # fmt: skip
def test_refusals(of: Graph, reason: str) -> None:
    assert proposed(of) == ([], [("a, c, e, x, n", reason)])


def test_hosts_have_none() -> None:
    assert proposed(GRAPHS["sum-bert"], "host") == ([], [])


# What planners make of it.


@pytest.mark.parametrize("persistent", ["auto", "never"])
@pytest.mark.parametrize("name", ["sum-gpt", "sum-given", "sum-vit"])
def test_an_engine_has_the_step_where_the_recipe_leaves_a_choice(name: str, persistent: str) -> None:
    of = GRAPHS[name]
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = {step.problem.op.kind for step in plan.steps if not step.view}
    assert bool(kinds & {"row_sum", "normed_rows", "kept_rows"}) == (persistent == "auto")
    assert not kinds & {"gather", "concat", "binary"} or persistent == "never"
    if any(value.type.dtype is DType.I64 for value in of.values):
        ranges = {"words": 100, "types": 2} if name == "sum-gpt" else {"words": 50, "places": 9}
        assert index_ranges(plan) == ranges
    inputs = drawn(of)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)


def test_what_one_kernel_spares_is_what_lay_between() -> None:
    of = GRAPHS["sum-gpt"]
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, load(H200))
    (shown,) = chains_of(engine.graphs[0], engine.plan, engine.chains, H200).legal
    assert (shown.nodes, shown.fused, len(shown.apart)) == (("a", "c", "e", "x", "n"), True, 5)
    assert shown.split is not None
    # Two gathered tensors and a sum are neither written nor read, and the other sum is written alone.
    assert shown.split.nbytes == 7 * 2 * 3 * 5 * 768
