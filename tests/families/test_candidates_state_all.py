"""A candidate says all: what an engine with a lock is made of does not change with what is predicted."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from importlib import import_module

import pytest
from kernel_tiles import FAMILY
from pair_fakes import with_policy
from planner_checks import graph

from bolt_build import families
from bolt_build.emit.engine import emit
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.kernels.lines import rows
from bolt_build.families.portable.kernels.norms import norm, row_sum
from bolt_build.families.portable.kernels.products import squeeze
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.lockfile.contents import LockedTarget, LockEntry
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.planner.selection import PREDICTED, Selection, Winner
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.tuning.restate import restated

H200 = target_named("h200")
RECIPE, SPEC = with_policy("auto"), TargetSpec("h200", "fp16")
# A pooled stem with strips of several tiles, windows with resident weights, deep products in slices.
NET = graph("""
    graph g batch=32 (%x: f32[32,3,224,224]) -> (%z) {
      const %w0: f32[64,3,7,7] #
      const %b0: f32[64] #
      const %w1: f32[64,64,3,3] #
      const %w2: f32[512,64,3,3] #
      const %w3: f32[512,512,3,3] #
      const %w4: f32[1000,512] #
      %c = conv(%x, %w0, %b0) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] | relu // "stem"
      %p = pool(%c) mode=max kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "pool"
      %d = conv(%p, %w1) pads_begin=[1,1] pads_end=[1,1] | relu // "resident"
      %e = conv(%d, %w2) strides=[8,8] pads_begin=[1,1] pads_end=[1,1] | relu // "down"
      %f = conv(%e, %w3) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] | relu // "deep"
      %g = reduce(%f) mode=mean axes=[2,3] keepdims=false // "mean"
      %z = matmul(%g, %w4) transpose_b=true // "fc"
    }""")
# Depthwise and grouped convolutions, attention and a gather: kernels of the other families.
OTHERS = graph("""
    graph others batch=8 (%x: f32[8,96,28,28], %q: f32[8,128,768]) -> (%z, %a) {
      const %w0: f32[96,1,3,3] #
      const %w1: f32[96,1,7,7] #
      const %w2: f32[96,24,3,3] #
      const %w3: f32[96,96,1,1] #
      %c = conv(%x, %w0) pads_begin=[1,1] pads_end=[1,1] groups=96 | relu // "depthwise"
      %d = conv(%c, %w1) pads_begin=[3,3] pads_end=[3,3] groups=96 // "wide"
      %e = conv(%d, %w2) pads_begin=[1,1] pads_end=[1,1] groups=4 | relu // "grouped"
      %f = conv(%e, %w3) | relu // "1x1"
      %z = reduce(%f) mode=mean axes=[2,3] keepdims=false // "mean"
      %a = attention(%q, %q, %q) heads=12 kv_heads=12 scale=0.125 // "attention"
    }""")
# Normalisations whose elements registers hold, of channels and of rows, or shared memory keeps, of large images.
NORMS = graph("""
    graph norms batch=8 (%x: f32[256,64,56,56], %l: f32[16384,4096], %i: f32[2,128,512,512]) -> (%n, %r, %p) {
      const %s: f32[64,1,1] #
      const %t: f32[4096] #
      %n = norm(%x, %s, %s) statistic=variance axes=[2,3] epsilon=1e-5 // "instance"
      %r = norm(%l, %t, %t) statistic=variance axes=[1] epsilon=1e-5 // "rows"
      %p = norm(%i) statistic=variance axes=[1,2,3] epsilon=1e-5 groups=32 // "large"
    }""")
# A gate of squeeze and excitation, a sum of rows, a normalisation and a softmax: plain kernels of the portable family.
PLAIN = graph("""
    graph plain batch=8 (%x: f32[8,96,1,1], %q: f32[4096,768], %k: f32[4096,768], %l: f32[96,512]) -> (%g, %n, %s, %r) {
      const %w0: f32[16,96,1,1] #
      const %w1: f32[96,16,1,1] #
      const %scale: f32[768] #
      %h = conv(%x, %w0) | relu // "squeeze"
      %g = conv(%h, %w1) | sigmoid // "excite"
      %a = add(%q, %k) // "sum"
      %n = norm(%a, %scale, %scale) statistic=variance axes=[1] epsilon=1e-5 // "normed"
      %s = softmax(%l) axis=1 // "softmax"
      %r = norm(%q, %scale, %scale) statistic=variance axes=[1] epsilon=1e-5 // "rows"
    }""")
RULES = {"_FILLED", "_STILL", "e"}
"""Constants that decide what is legal, not what is fast; and the base of logarithms."""


def planned(selection: Selection, target: Target = H200, net: Graph = NET) -> EnginePlan:
    return plan_engine([net], RECIPE, SPEC, target, load(target), selection).plan


def sources(plan: EnginePlan) -> dict[str, str]:
    return {file.path: file.text for file in emit(plan, H200, load(H200))}


def offered(net: Graph = NET) -> dict[tuple[str, str], tuple[Candidate, ...]]:
    """Candidates by problem digest and family."""
    (space,) = search_spaces([net], RECIPE, SPEC, H200, load(H200))
    return {(choice.problem.digest, choice.family): choice.candidates for choice in space.choices}


def locked(net: Graph = NET) -> Selection:
    """What a tuning leaves that finds every prediction confirmed."""
    engine = plan_engine([net], RECIPE, SPEC, H200, load(H200), PREDICTED)
    steps = [step for step in engine.plan.plans[0].steps if not step.view]
    chosen = {step.problem.digest: step.candidate for step in steps}
    first = {digest: candidates[0] for (digest, _), candidates in reversed(offered(net).items())}
    winners = (Winner(digest, candidate, 1e-6) for digest, candidate in sorted((first | chosen).items()))
    return Selection("net.lock", tuple(winners), engine.covers)


def change_predictions(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every constant of the families' predictions, each by a factor of its own; how many there are."""
    changed = 0
    for module in pkgutil.walk_packages(families.__path__, f"{families.__name__}."):
        loaded = import_module(module.name)
        for name, value in sorted(vars(loaded).items()):
            if isinstance(value, float) and name not in RULES:
                changed += 1
                monkeypatch.setattr(loaded, name, value * (0.2, 5.0, 0.6, 2.5)[changed % 4])
    return changed


def change_usual_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """How plain kernels are cut where no candidate says so."""
    monkeypatch.setattr(rows, "_USUAL", ((rows.BLOCK, 4),))
    monkeypatch.setattr(norm, "MANY_ROWS", 1 << 30)
    monkeypatch.setattr(row_sum, "MANY_ROWS", 1 << 30)
    monkeypatch.setattr(squeeze, "_BLOCKS", 8)


@pytest.mark.parametrize(
    ("net", "settings", "chosen"),
    [
        (NET, {"slices", "strip"}, {"cutlass", "portable"}),
        (OTHERS, {"run"}, {"grouped", "cutlass", "attention", "portable"}),
        (NORMS, {"blocks"}, {"portable"}),
        (PLAIN, {"blocks"}, {"portable"}),
    ],
    ids=["products", "others", "norms", "plain"],
)
def test_a_locked_engine_does_not_change_with_predictions(
    net: Graph, settings: set[str], chosen: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    selection = locked(net)
    before, predicted = planned(selection, net=net), planned(PREDICTED, net=net)
    candidates = [step.candidate for step in before.plans[0].steps]
    assert {name for candidate in candidates for name, _ in candidate.settings} == settings
    assert {candidate.family for candidate in candidates} == chosen
    text = sources(before)
    assert change_predictions(monkeypatch) > 90
    change_usual_cuts(monkeypatch)
    slow = replace(H200, bandwidth=H200.bandwidth / 7, launch_seconds=3e-5)
    assert sources(planned(selection, slow, net)) == text
    assert sources(planned(PREDICTED, slow, net)) != sources(predicted)


def test_emission_predicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, target = planned(PREDICTED), replace(H200, bandwidth=0.0, flops=(), launch_seconds=0.0)
    assert {file.path: file.text for file in emit(plan, target, load(H200))} == sources(plan)


def problem_of(name: str) -> tuple[KernelProblem, Candidate]:
    """A step's problem and kernel; that of split-K for a product."""
    (step,) = (step for step in planned(PREDICTED).plans[0].steps if step.name == name)
    if name != "fc":
        return step.problem, step.candidate
    found = FAMILY.candidates(step.problem, H200)[0]
    return step.problem, next(each for each in found if "partial" in dict(each.parameters))


@pytest.mark.parametrize("name", ["pool", "fc"])
def test_a_candidate_that_lacks_a_setting_is_refused(name: str) -> None:
    problem, candidate = problem_of(name)
    assert FAMILY.refuse(problem, candidate, H200) is None
    bare = candidate.compiled
    why = f"{bare} has settings that it cannot have here, or lacks some"
    assert FAMILY.refuse(problem, bare, H200) == why
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"))
    with pytest.raises(ValueError, match=f"^{bare} states not all of its settings$"):
        FAMILY.emit(problem, bare, H200, at)


def test_settings_are_those_that_are_possible() -> None:
    problem, candidate = problem_of("fc")
    assert FAMILY.refuse(problem, replace(candidate, settings=(("slices", 7),)), H200) is not None
    assert FAMILY.refuse(problem, replace(candidate, settings=(("strip", 1),)), H200) is not None
    pooled, strips = problem_of("pool")
    assert isinstance(pooled.op.sequence[1].op, Pool)
    assert FAMILY.refuse(pooled, replace(strips, settings=(("strip", 4),)), H200) is None
    assert FAMILY.refuse(pooled, replace(strips, settings=(("strip", 57),)), H200) is not None


def test_earlier_locks_give_the_engine_that_they_gave() -> None:
    """They left slices and strips to the prediction of the build."""
    selection = locked()
    bare = tuple(replace(winner, candidate=winner.candidate.compiled) for winner in selection.winners)
    assert bare != selection.winners
    assert sources(planned(replace(selection, winners=bare, stated=False))) == sources(planned(selection))


def test_an_earlier_lock_is_restated_with_its_kernels() -> None:
    (winner, *_) = (each for each in locked().winners if each.candidate.settings)
    bare = winner.candidate.compiled
    entry = LockEntry(winner.problem, "a problem", bare, 2.0, bare, 2.0, 1.0, 2, "")
    other = replace(entry, problem="0" * 64)
    part = restated(LockedTarget("h200", (), (entry, other), (), (), stated=False), offered())
    full = replace(entry, winner=winner.candidate, runner_up=winner.candidate)
    assert part == LockedTarget("h200", (), (full, other), ())
