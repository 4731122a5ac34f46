"""Elementwise nodes and the reduction behind them in one kernel: what is proposed, which kernels there are, and what
planners make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import compare, graph, random_inputs
from planner_fakes import recipe
from planner_interpreter import run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.reductions.folded_runs import FoldedColumnsTile, FoldedRunsTile
from bolt_build.graph.ir import Graph, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaTerm
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words
from bolt_build.schema.recipe import FusionPolicy, Policy, TargetSpec
from bolt_build.targets import target_named

H200, FAMILY, SPACE = target_named("h200"), Portable(), "bolt::portable"
APART = Formula(2, (FormulaTerm(Binary("sub"), (0, 1)), FormulaTerm(Activation("square"), (2,))))

DISTANCES = graph("""
    graph g batch=2 (%x: f32[2,64,57,57], %y: f32[2,64,57,57]) -> (%z) {
      %d = sub(%x, %y) // "d"
      %s = square(%d) // "s"
      %z = reduce(%s) mode=mean axes=[1] keepdims=false | sqrt // "z"
    }""")
POOLED = graph("""
    graph g batch=2 (%x: f32[2,77,96], %m: f32[2,77,1]) -> (%z) {
      %w = mul(%x, %m) // "w"
      %z = reduce(%w) mode=sum axes=[1] keepdims=false // "z"
    }""")
READ_TWICE = graph("""
    graph g batch=2 (%x: f32[2,77,96], %m: f32[2,77,1]) -> (%z, %w) {
      %w = mul(%x, %m) // "w"
      %z = reduce(%w) mode=sum axes=[1] keepdims=false // "z"
    }""")

IN_EPILOGUE = graph("""
    graph g batch=2 (%x: f32[2,77,96], %m: f32[2,96]) -> (%z) {
      %q = square(%m) // "q"
      %z = reduce(%x, %q) mode=mean axes=[1] keepdims=false | sub(%q) // "z"
    }""")
IN_BOTH = graph("""
    graph g batch=2 (%x: f32[2,1,96]) -> (%z) {
      %q = square(%x) // "q"
      %z = reduce(%q, %q) mode=mean axes=[1] keepdims=true | sub(%q) // "z"
    }""")


def proposed(of: Graph, target: str = "h200", precision: DType = DType.F16) -> list[Alternative]:
    answers = [FAMILY.propose(of, node, target_named(target), precision)[0] for node in of.nodes]
    several = [each for found in answers for each in found if len(each.region) > 1]
    return [each for each in several if isinstance(each.steps[0].problem.op, FoldedFormula)]


def problem(op: FoldedFormula, *shapes: tuple[int, ...], dtype: DType = DType.F16) -> KernelProblem:
    inputs = tuple(Operand(shape, TensorFormat(dtype, Layout.ROW)) for shape in shapes)
    (made,) = op.infer([each.type for each in inputs])
    return KernelProblem(op, inputs, (Operand(made.shape, TensorFormat(dtype, Layout.ROW)),), (), DType.F32, "h200")


def test_functions_and_the_reduction_behind_them_are_one_step_in_either_layout() -> None:
    found = proposed(DISTANCES)
    assert [each.region for each in found] == [("d", "s", "z")] * 4
    assert [each.steps[0].problem.outputs[0].format.dtype for each in found] == [DType.F16, DType.F32] * 2
    for each, layout in zip(found[::2], (Layout.ROW, Layout.CHANNELS_LAST), strict=True):
        (step,) = each.steps
        assert (step.inputs, step.outputs, step.may_share) == (("x", "y"), ("z",), ())
        assert {operand.format.layout for operand in step.problem.inputs} == {layout}
        assert [one.op.kind for one in each.apart] == ["binary", "activation", "reduce"]
        assert len(step.problem.epilogue) == 1


@pytest.mark.parametrize(
    ("of", "target"),
    [(DISTANCES, "host"), (READ_TWICE, "h200"), (IN_EPILOGUE, "h200"), (IN_BOTH, "h200")],
    ids=["host", "read twice", "in the epilogue alone", "reduced and in the epilogue"],
)
def test_a_host_keeps_steps_apart_and_so_does_what_others_read(of: Graph, target: str) -> None:
    assert proposed(of, target, DType.F32 if target == "host" else DType.F16) == []


def test_neighbours_of_most_tensors_say_which_kernel_there_is() -> None:
    """A mask's neighbours are folded, but those of the tokens that it weighs are results beside each other."""
    weighed = FoldedFormula(Formula(2, (FormulaTerm(Binary("mul"), (0, 1)),)), Reduce("sum", (1,), False))
    along = FoldedFormula(weighed.formula, Reduce("sum", (2,), False))
    for op, shapes, algorithm in (
        (weighed, ((2, 77, 96), (2, 77, 1)), "columns"), (along, ((2, 77, 96), (2, 77, 1)), "runs"),
    ):  # fmt: skip
        found = {dict(each.parameters)["algorithm"] for each in FAMILY.candidates(problem(op, *shapes), H200)[0]}
        assert found == {"direct", algorithm}


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (FoldedRunsTile(4, 8, 1), None),
        (FoldedRunsTile(8, 4, 1), "4 threads of a result do not read runs by 8"),
        (FoldedRunsTile(4, 8, 2), "blocks share a result that all of their threads have"),
        (FoldedRunsTile(32, 256, 9), "1 parts of a result are not shared by 9 blocks"),
        (FoldedColumnsTile(3, 1), "is none of its candidates"),
    ],
)
def test_what_no_kernel_has_is_refused(tile: FoldedRunsTile | FoldedColumnsTile, reason: str | None) -> None:
    of = problem(FoldedFormula(APART, Reduce("mean", (2,))), (3, 5, 101), (3, 1, 101))
    algorithm = "runs" if isinstance(tile, FoldedRunsTile) else "columns"
    found = FAMILY.refuse(of, candidate_of("portable", algorithm, tile), H200)
    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and found.endswith(reason))


def test_its_call_says_how_each_tensor_lies_along_the_run() -> None:
    of = problem(FoldedFormula(APART, Reduce("mean", (2,), False)), (3, 5, 101), (3, 5, 1))
    at = StepExpressions(("x", "m"), ("y",), (None,) * 2)
    code = FAMILY.emit(of, candidate_of("portable", "runs", FoldedRunsTile(4, 8, 1)), H200, at)
    half = f"{SPACE}::f16"
    assert code.call == (
        f"{SPACE}::formula_runs<4, 8, {SPACE}::ReduceMean, {SPACE}::FormulaSide<{half}, {SPACE}::Along::near>, "
        f"{SPACE}::FormulaSide<{half}, {SPACE}::Along::alike>>(r, {SPACE}::FormulaFold<2>{{.kept_rank = 1, "
        ".kept = {15}, .kept_step = {{101}, {1}}, .folded_rank = 1, .folded = {101}, .folded_step = {{1}, {0}}, "
        f".channel_axis = -1}}, {SPACE}::formula({SPACE}::Term<{SPACE}::Sub, 0, 1>{{}}, "
        f"{SPACE}::Term<{SPACE}::Square, 2>{{{SPACE}::Square{{}}}}), 1, "
        f"{SPACE}::float_results<{SPACE}::ReduceMean, {half}>(y, 101, {SPACE}::chain()), x, m);"
    )
    shared = FAMILY.emit(of, candidate_of("portable", "runs", FoldedRunsTile(1, 256, 4)), H200, at)
    assert (shared.member_type, shared.member_arguments, shared.counts) == (f"{SPACE}::SharedTotals", "240", True)


def test_its_problem_in_words() -> None:
    of = problem(FoldedFormula(APART, Reduce("mean", (2,), False)), (3, 5, 101), (3, 5, 1))
    assert describe_problem(of) == (
        'folded_formula(f16[3,5,101], f16[3,5,1]) formula=formula(count=2 terms=["sub(0,1)","square(2)"]) '
        "fold=reduce(mode=mean axes=[2] keepdims=false) -> f16[3,5]"
    )
    assert in_words(of) == "mean of sub+square of 3x5x101"


@pytest.mark.parametrize("of", [DISTANCES, POOLED])
@pytest.mark.parametrize("persistent", ["auto", "never"])
def test_an_engine_has_it_unless_chains_are_unwanted(of: Graph, persistent: str) -> None:
    wanted = replace(recipe(), policy=Policy(FusionPolicy(epilogue=True, persistent=persistent)))
    engine = plan_engine([of], wanted, TargetSpec("h200", "fp16"), H200, load(H200))
    (plan,) = engine.plan.plans
    kinds = [step.problem.op.kind for step in plan.steps if not step.view]
    assert ("folded_formula" in kinds) == (persistent == "auto")
    assert ("reduce" in kinds) == (persistent == "never")
    inputs = random_inputs(of, 0)
    compare(run_plan(engine, plan, inputs), evaluate(of, inputs), 2e-2)
