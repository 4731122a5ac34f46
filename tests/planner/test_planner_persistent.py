"""Products in one kernel: what a recipe wants of them, what times decide, and what the plan says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_fakes import CHAIN_ON_H200, Joining, with_policy
from planner_checks import compare, graph, random_inputs
from planner_interpreter import run_plan

from bolt_build.families import load
from bolt_build.families.base import Candidate, Family
from bolt_build.graph.ops.products.chain import Chain
from bolt_build.graph.patterns.chains import chains_in
from bolt_build.graph.reference import evaluate
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine, search_spaces
from bolt_build.planner.selection import PREDICTED, Selection, Winner
from bolt_build.report.plan import render
from bolt_build.schema.recipe import LayerSpec, Recipe, TargetSpec
from bolt_build.targets import HOST, Target, target_named
from bolt_build.tuning.trials.tuning_set import tuning_set
from bolt_build.verify.taps import taps_of
from bolt_build.wording import many

H200 = target_named("h200")
NET = """
    graph g batch=1 (%x: f32[64,16]) -> (%u) {
      const %w: f32[16,16] #
      const %v: f32[16,16] #
      const %t: f32[16,8] #
      %y = matmul(%x, %w) | relu // "/a", "/a/relu"
      %z = matmul(%y, %v) // "/b"
      %r = softmax(%z) axis=1 // "/r"
      %u = matmul(%r, %t) // "/c"
    }"""


def planned(
    of: Recipe | None = None, family: Family | None = None, net: str = NET, by: Selection = PREDICTED,
) -> PlannedEngine:  # fmt: skip
    spec = TargetSpec("host", "fp32")
    return plan_engine([graph(net)], of or with_policy(), spec, HOST, (family or Joining(),), by)


def steps(engine: PlannedEngine) -> list[str]:
    return [f"{step.name}: {step.problem.op.kind}" for step in engine.plan.plans[0].steps]


def said(engine: PlannedEngine, stage: str = "persistent") -> list[str]:
    found = [d for d in engine.plan.decisions if d.stage == stage]
    return [f"{d.subject}: {d.action} ({d.reason})" for d in found]


def refused(engine: PlannedEngine) -> list[tuple[str, str]]:
    return [(each.what, each.reason) for each in engine.plan.refusals]


FUSED = ["/b: chain", "/r: softmax", "/c: matmul"]
APART = ["/a: matmul", "/b: matmul", "/r: softmax", "/c: matmul"]


# What follows what.


def test_links_of_a_graph() -> None:
    found = chains_in(
        graph("""
        graph g batch=1 (%x: f32[8,16], %s: f32[8,16]) -> (%u, %q) {
          const %w: f32[16,16] #
          %y = matmul(%x, %w) // "/a"
          %z = matmul(%y, %w) // "/b"
          %u = relu(%z) // "/relu"
          %p = matmul(%s, %w) // "/c"
          %q = add(%p, %s) // "/add"
        }""")
    )
    assert [(each.region, each.obstacle) for each in found] == [(("/a", "/b"), None)]


# Times decide.


def test_the_faster_way_is_taken() -> None:
    engine = planned(family=Joining(together=1.5e-6))
    assert steps(engine) == FUSED
    assert said(engine) == [
        (
            "batch 1: /b: fused (behind '/a': predicted 1.50 us in one kernel, predicted 1.00 us and "
            "predicted 1.00 us apart)"
        )
    ]
    step = engine.plan.plans[0].steps[0]
    assert (step.covers, [tensor.value for tensor in step.inputs]) == (("/a", "/a/relu", "/b"), ["x", "w", "v"])
    (outcome,) = engine.chains
    assert (outcome.fused, outcome.seconds, outcome.apart_seconds) == (True, 1.5e-6, (1e-6, 1e-6))
    assert outcome.measured == (False, False, False)


def test_what_one_kernel_takes_longer_for_stays_apart() -> None:
    engine = planned(family=Joining(together=2.5e-6))
    assert steps(engine) == APART
    assert said(engine) == [
        (
            "batch 1: /b: declined (behind '/a': predicted 2.50 us in one kernel, predicted 1.00 us and "
            "predicted 1.00 us apart)"
        )
    ]


def measured(
    engine: PlannedEngine, together: float | None, apart: float | None, family: Family | None = None
) -> Selection:
    """Winners for the pair and for both apart, in seconds; None is no winner. Everything else takes a microsecond."""
    family = family or Joining()
    spaces = search_spaces([graph(NET)], with_policy(), TargetSpec("host", "fp32"), HOST, (family,))
    (pair,) = (outcome.chain for outcome in engine.chains)
    times = {pair.problem: together, **dict.fromkeys(pair.apart, apart)}
    problems = [each.problem for each in tuning_set(spaces, (family,), HOST, 4).problems]
    found = ((problem, times.get(problem, 1e-6)) for problem in problems)
    winners = [Winner(p.digest, Candidate("joining"), time) for p, time in found if time is not None]
    return Selection("net.lock", tuple(sorted(winners, key=lambda winner: winner.problem)))


def test_the_pair_and_both_apart_are_worth_measuring() -> None:
    spaces = search_spaces([graph(NET)], with_policy(), TargetSpec("host", "fp32"), HOST, (Joining(),))
    problems = {each.problem for each in tuning_set(spaces, (Joining(),), HOST, 4).problems}
    (outcome,) = planned().chains
    assert {outcome.chain.problem, *outcome.chain.apart} <= problems


@pytest.mark.parametrize(("together", "fused"), [(3e-6, True), (5e-6, False)])
def test_measurements_overrule_predictions(together: float, fused: bool) -> None:
    before = planned(family=Joining(together=1.9e-6 if not fused else 2.1e-6))
    assert (steps(before) == FUSED) is not fused
    engine = planned(by=measured(before, together, 2e-6))
    assert (steps(engine) == FUSED) is fused
    action = "fused" if fused else "declined"
    assert said(engine) == [
        (
            f"batch 1: /b: {action} (behind '/a': measured {together * 1e6:.2f} us in one kernel, measured 2.00 us and "
            "measured 2.00 us apart)"
        )
    ]


def test_a_pair_that_was_not_measured_stays_out_where_its_parts_were() -> None:
    """Locks from before there were pairs plan the engines that they planned then."""
    before = planned()
    assert steps(before) == FUSED
    engine = planned(by=measured(before, None, 2e-6))
    assert steps(engine) == APART
    assert said(engine) == [
        (
            "batch 1: /b: declined (behind '/a': predicted 1.50 us in one kernel, measured 2.00 us and "
            "measured 2.00 us apart; it was not measured, unlike the kernels apart)"
        )
    ]
    assert ("/a, /b", "not measured, unlike another way to compute the same nodes") in refused(engine)


def test_a_lock_s_cover_holds_the_pair() -> None:
    by = measured(planned(), 3e-6, 2e-6)
    engine = planned(by=by)
    assert steps(engine) == FUSED
    (cover,) = engine.covers
    assert [each.region for each in cover.alternatives] == [("/a", "/b"), ("/r",), ("/c",)]
    again = planned(by=replace(by, covers=engine.covers))
    assert steps(again) == FUSED
    assert again.covers == engine.covers
    assert "batch 1: took the cover of net.lock (it was found for this graph)" in said(again, "tuning")


def test_a_cover_gives_way_to_what_the_recipe_wants() -> None:
    by = measured(planned(), 3e-6, 2e-6)
    by = replace(by, covers=planned(by=by).covers)
    engine = planned(with_policy("never"), by=by)
    assert steps(engine) == APART
    assert "batch 1: declined the cover of net.lock (no family offers joining for /a, /b as it was chosen)" in said(
        engine, "tuning"
    )


# What the recipe wants.


def test_never() -> None:
    engine = planned(with_policy("never"))
    assert steps(engine) == APART
    assert ("/a, /b", "policy.fusion.persistent is never") in refused(engine)
    assert (engine.chains, said(engine)) == ((), [])


def test_always() -> None:
    engine = planned(with_policy("always"), Joining(together=9e-6))
    assert steps(engine) == FUSED
    assert said(engine) == ["/b: fused (behind '/a': policy.fusion.persistent is always)"]
    (outcome,) = engine.chains
    assert (outcome.fused, outcome.chain.wish) == (True, "always")


def test_always_without_a_family_that_can() -> None:
    engine = planned(with_policy("always"), Joining(joins=False))
    assert steps(engine) == APART
    assert said(engine) == [
        (
            "/b: declined (behind '/a', policy.fusion.persistent is always: no kernel family of 'host' computes "
            "both in one kernel)"
        )
    ]


def test_always_where_the_graph_is_against_it() -> None:
    engine = planned(with_policy("always"), net=NET.replace("(%u)", "(%u, %y)"))
    assert steps(engine) == APART
    assert said(engine) == [
        "/b: declined (behind '/a', policy.fusion.persistent is always: what lies between is an output of the graph)"
    ]


def test_always_takes_the_first_of_pairs_that_overlap() -> None:
    chain = """
        graph g batch=1 (%x: f32[64,16]) -> (%v) {
          const %w: f32[16,16] #
          %y = matmul(%x, %w) // "/a"
          %z = matmul(%y, %w) // "/b"
          %u = matmul(%z, %w) // "/c"
          %v = matmul(%u, %w) // "/d"
        }"""
    engine = planned(with_policy("always"), Joining(together=9e-6), chain)
    assert steps(engine) == ["/b: chain", "/d: chain"]
    assert said(engine) == [
        "/b: fused (behind '/a': policy.fusion.persistent is always)",
        "/c: declined (behind '/b', policy.fusion.persistent is always: one kernel computes '/a' and '/b' already)",
        "/d: fused (behind '/c': policy.fusion.persistent is always)",
    ]


def test_of_pairs_that_overlap_times_take_the_best() -> None:
    chain = """
        graph g batch=1 (%x: f32[64,16]) -> (%u) {
          const %w: f32[16,16] #
          %y = matmul(%x, %w) // "/a"
          %z = matmul(%y, %w) // "/b"
          %u = matmul(%z, %w) // "/c"
        }"""
    engine = planned(net=chain)
    assert len(engine.plan.plans[0].steps) == 2
    declined = [each for each in said(engine) if "declined" in each]
    assert len(declined) == 1
    assert declined[0].endswith("already)")


@pytest.mark.parametrize("match", ["/a", "/b", "/a/relu", "/*"])
def test_a_layer_may_want_none(match: str) -> None:
    engine = planned(with_policy("always", (LayerSpec(match, persistent="never"),)))
    assert steps(engine) == APART
    assert ("/a, /b", f"layers['{match}'].persistent is never") in refused(engine)
    count = {"/*": 4}.get(match, 1)
    assert said(engine) == [
        f"layers[0]: set persistent never ('{match}' matches {many(count, 'node')})",
    ]


def test_a_layer_may_want_one_against_the_policy() -> None:
    layers = (LayerSpec("/a", persistent="always"), LayerSpec("nothing", persistent="never"))
    engine = planned(with_policy("never", layers), Joining(together=9e-6))
    assert steps(engine) == FUSED
    assert said(engine) == [
        "layers[0]: set persistent always ('/a' matches 1 node)",
        "layers[1]: declined ('nothing' matches no node of the optimised graph)",
        "/b: fused (behind '/a': layers['/a'].persistent is always)",
    ]


def test_of_layers_that_disagree_never_holds() -> None:
    layers = (LayerSpec("/a", persistent="always"), LayerSpec("/b", persistent="never"))
    assert steps(planned(with_policy("auto", layers))) == APART
    assert steps(planned(with_policy("auto", layers[::-1]))) == APART


def test_the_last_layer_that_matches_holds() -> None:
    layers = (
        LayerSpec("/*", persistent="never"),
        LayerSpec("/*", precision="bf16"),
        LayerSpec("/*", persistent="auto"),
    )
    engine = planned(with_policy("always", layers), Joining(conversion=1e-6))
    assert "/b: chain" in steps(engine)
    assert [each.chain.wish for each in engine.chains] == ["auto"]


def test_products_in_different_precisions_stay_apart() -> None:
    for wish in ("auto", "always"):
        engine = planned(with_policy(wish, (LayerSpec("/b", precision="bf16"),)), Joining(conversion=1e-6))
        assert "chain" not in " ".join(steps(engine))
        assert ("/a, /b", "'/a' computes in f32 and '/b' in bf16") in refused(engine)
    assert said(engine) == [
        "/b: declined (behind '/a', policy.fusion.persistent is always: '/a' computes in f32 and '/b' in bf16)"
    ]


# What becomes of it.


@given(
    channels=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    extents=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    stride=st.integers(1, 2),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_fused_and_apart_a_plan_computes_what_the_graph_means(
    channels: tuple[int, int, int], extents: tuple[int, int], stride: int, seed: int
) -> None:
    c, n0, n1 = channels
    height, width = extents
    net = graph(f"""
        graph g batch=2 (%x: f32[2,{c},{height},{width}]) -> (%u) {{
          const %w: f32[{n0},{c},3,3] #
          const %b: f32[{n0}] #
          const %v: f32[{n1},{n0},1,1] #
          const %t: f32[{n1},{c},1,1] #
          %y = conv(%x, %w, %b) strides=[{stride},{stride}] pads_begin=[1,1] pads_end=[1,1] | relu // "/a"
          %s = conv(%x, %t) strides=[{stride},{stride}] // "/side"
          %u = conv(%y, %v, %s) | add(%s) | relu // "/b"
        }}""")
    inputs = random_inputs(net, seed)
    for wish in ("always", "never"):
        engine = plan_engine([net], with_policy(wish), TargetSpec("host", "fp32"), HOST, (Joining(),))
        (plan,) = engine.plan.plans
        assert any(isinstance(step.problem.op, Chain) for step in plan.steps) is (wish == "always")
        compare(run_plan(engine, plan, inputs), evaluate(net, inputs), 1e-5)


def test_what_lies_between_is_not_there_to_be_compared() -> None:
    fused, apart = (planned(with_policy(wish)).plan.plans[0] for wish in ("always", "never"))
    assert [tap.tensor for tap in taps_of(apart)] == ["y", "z", "r", "u"]
    assert [tap.tensor for tap in taps_of(fused)] == ["z", "r", "u"]
    # Both products round what they leave, in one kernel or in two.
    assert [tap.depth for tap in taps_of(fused)] == [tap.depth for tap in taps_of(apart)][1:]


def test_the_plan_shows_both_products() -> None:
    text = render(planned(with_policy("always")).plan)
    (row,) = [line for line in text.splitlines() if line.strip().startswith("0 ")]
    assert "matmul+activation, matmul" in row


def kernels_of(wish: str, target: Target = H200, precision: str = "fp16") -> list[str]:
    spec = TargetSpec(target.name, precision)
    engine = plan_engine([graph(CHAIN_ON_H200)], with_policy(wish), spec, target, load(target))
    return [f"{step.name}: {step.candidate.family} {step.problem.op.kind}" for step in engine.plan.plans[0].steps]


@pytest.mark.parametrize(
    ("wish", "middle"),
    [
        ("auto", ["/1x1: cutlass chain"]),
        ("always", ["/1x1: cutlass chain"]),
        ("never", ["/3x3: cutlass conv", "/1x1: cutlass conv"]),
    ],
)
def test_plans_for_a_gpu(wish: str, middle: Sequence[str]) -> None:
    """A row of the paper's second table."""
    edges = ["x@f16/channels_last: portable convert", "z@f32/row: portable convert"]
    assert kernels_of(wish) == [edges[0], *middle, edges[1]]


def test_of_a_first_layer_the_form_that_is_chosen_is_compared() -> None:
    """Read from planes in fp32, a pair that takes longer saves the conversion that the fastest one needs."""
    net = graph(CHAIN_ON_H200.replace("[32,64,56,56]", "[32,3,112,112]").replace("[64,64,3,3]", "[64,3,3,3]"))
    engine = plan_engine([net], with_policy(), TargetSpec("h200", "fp16"), H200, load(H200))
    (step, _) = engine.plan.plans[0].steps
    (outcome,) = engine.chains
    assert outcome.fused
    assert outcome.chain.problem == step.problem
    assert str(step.problem.inputs[0].format) == "f32/row"


def test_the_host_says_that_it_fuses_none() -> None:
    engine = plan_engine([graph(CHAIN_ON_H200)], with_policy("always"), TargetSpec("host", "fp32"), HOST, load(HOST))
    assert said(engine) == [
        (
            "/1x1: declined (behind '/3x3', policy.fusion.persistent is always: no kernel family of 'host' computes "
            "both in one kernel)"
        )
    ]
    assert all(not isinstance(step.problem.op, Chain) for step in engine.plan.plans[0].steps)
