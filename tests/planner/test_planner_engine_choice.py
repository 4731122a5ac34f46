"""Kernels that were measured in the whole engine: when a plan takes them in place of its problems' winners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from planner_fakes import HOST_TARGET, ROW, SPEC, recipe
from test_planner_selected_space import covered, kernels, net, planned, said, selection, trials_of
from tuned_family import Tiled

from bolt_build.digest import decode, encode
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.planner.kernel_sources import Declined
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.selection import EngineChoice, Selection, Winner
from bolt_build.planner.structure import graph_digest
from bolt_build.schema.recipe import IoSpec
from bolt_build.tuning.trials.engine_table import engine_tables

TILED = Tiled(layouts=lambda node: (ROW,), swizzles=(2,))
AXIS_1, AXIS_2 = 1, 2


def smallest_first(problem: KernelProblem, candidate: Candidate) -> float:
    return 1e-6 * int(dict(candidate.parameters).get("tile", 1)) + 1e-7 * len(candidate.settings)


def problem_of(engine: PlannedEngine, step: str) -> str:
    return next(each.problem.digest for each in engine.plan.plans[0].steps if each.name == step)


def locked(*swaps: tuple[str, Candidate]) -> Selection:
    """What a lock holds where the whole engine was faster with these kernels in the steps of the problem of a step."""
    by = selection(trials_of(TILED), smallest_first)
    engine = planned(TILED, by=by)
    found = tuple(Winner(problem_of(engine, step), candidate, 2e-6) for step, candidate in swaps)
    choice = EngineChoice(graph_digest(engine.graphs[0]), 1, found, 100e-6, 90e-6)
    return replace(by, covers=engine.covers, engines=(choice,))


def test_a_plan_takes_what_the_whole_engine_was_faster_with() -> None:
    by = locked(("a", TILED.tile(4)))
    engine = planned(TILED, by=by)
    assert kernels(engine) == ["a: tiled tile=4", "b: tiled tile=1", "y: tiled tile=4"]
    assert said(engine) == [
        "batch 1: took the cover of net.lock.yaml (it was found for this graph)",
        (
            "batch 1: took 1 kernel of the whole engine's choice in net.lock.yaml "
            "(the engine takes 90.0 us with them, not 100.0 us (10.0% less))"
        ),
        (
            "softmax(f32[1,2,2,2]) axis=1 -> f32[1,2,2,2]: took tiled tile=4 in place of tiled tile=1 "
            "(with it the whole engine was faster; alone it takes 2.00 us)"
        ),
        "batch 1: a and 1 more: took tiled tile=4 (measured 2.00 us, net.lock.yaml)",
        "batch 1: b: took tiled tile=1 (measured 1.00 us, net.lock.yaml)",
    ]
    assert all(each.measured for each in engine.used)
    assert engine.declined == ()


def test_kernels_of_an_engine_serve_callers_with_other_forms() -> None:
    """Their neighbours are the same but at the border, where the cover does not hold."""
    by, of = locked(("b", TILED.tile(4))), recipe(IoSpec("model", "channels_last"))
    engine = plan_engine([net()], of, SPEC, HOST_TARGET, [TILED], by)
    assert "b: tiled tile=4" in kernels(engine)
    assert engine.declined == (Declined("cover", 1, "it was found for inputs and outputs of other forms"),)
    assert (
        "batch 1: took 1 kernel of the whole engine's choice in net.lock.yaml (the engine takes 90.0 us with them, "
        "not 100.0 us (10.0% less), with inputs and outputs of other forms)"
    ) in said(engine)


def rows_were_faster() -> Selection:
    """What a lock holds where channels last take less alone, and rows less in the whole engine."""
    tiled = Tiled(conversion=1e-6)
    by = covered(tiled, ROW)
    choice = EngineChoice(by.covers[0].graph, 1, (), 100e-6, 90e-6, other_plan=True)
    return replace(by, engines=(choice,))


def for_channels_last(by: Selection) -> PlannedEngine:
    of = recipe(IoSpec("model", "channels_last"))
    return plan_engine([net()], of, SPEC, HOST_TARGET, [Tiled(conversion=1e-6)], by)


def test_a_plan_that_the_whole_engine_was_faster_with_serves_callers_with_other_forms() -> None:
    """Its winners would lead to another one, which this caller has without a conversion."""
    by = rows_were_faster()
    engine = for_channels_last(by)
    assert [step.name for step in engine.plan.plans[0].steps] == ["x@f32/row", "a", "b", "y", "y@f32/channels_last"]
    assert engine.declined == ()
    assert said(engine)[0] == (
        "batch 1: took the cover of net.lock.yaml (it was found for inputs and outputs of other forms, in which its "
        "engine was faster with it)"
    )
    without = for_channels_last(replace(by, engines=()))
    assert [step.name for step in without.plan.plans[0].steps] == ["a", "b", "y"]


def test_nodes_that_other_forms_change_are_chosen_anew() -> None:
    by = rows_were_faster()
    (cover,) = by.covers
    changed = replace(
        cover, alternatives=(replace(cover.alternatives[0], problems=("0" * 64,)), *cover.alternatives[1:])
    )
    engine = for_channels_last(replace(by, covers=(changed,)))
    assert [step.name for step in engine.plan.plans[0].steps][-3:] == ["b", "y", "y@f32/channels_last"]
    assert said(engine)[0].startswith("batch 1: took the cover of net.lock.yaml but for a (")
    reason = "it was found for inputs and outputs of other forms, and is taken but for 1 node"
    assert engine.declined == (Declined("cover", 1, reason),)


def test_kernels_measured_with_other_forms_are_taken_all_or_none() -> None:
    by = locked(("a", TILED.tile(4)), ("b", TILED.tile(4)))
    gone = choice(by, swaps=(*by.engines[0].swaps, Winner("0" * 64, TILED.tile(1), 1e-6)))
    engine = plan_engine([net()], recipe(IoSpec("model", "channels_last")), SPEC, HOST_TARGET, [TILED], gone)
    assert not any("tile=4" in each for each in kernels(engine))
    reason = "not all of its kernels, and of the winners that they replace, are there any more"
    assert Declined("engine", 1, reason) in engine.declined


def test_the_plan_around_the_kernels_is_that_of_the_winners() -> None:
    by = locked(("a", TILED.tile(4)))
    before, after = planned(TILED, by=replace(by, engines=())), planned(TILED, by=by)
    assert engine_tables(after) == engine_tables(before)
    assert after.covers == before.covers
    (resolved,) = [d.reason for d in after.plan.decisions if d.stage == "resolve"]
    assert resolved == "measured 3.0 us over 3 nodes with 0 conversions; exact"


def test_settings_are_taken_too() -> None:
    swizzled = TILED.tile(2, swizzle=2)
    assert kernels(planned(TILED, by=locked(("b", swizzled))))[1] == "b: tiled tile=2 swizzle=2"


def choice(by: Selection, **changes: object) -> Selection:
    return replace(by, engines=tuple(replace(each, **changes) for each in by.engines))  # type: ignore[arg-type]


STALE: list[tuple[str, Callable[[Selection], Selection], str]] = [
    ("graph", lambda by: choice(by, graph="0" * 64), "they were measured in another graph"),
    ("cover", lambda by: replace(by, covers=()), "they were measured with its cover"),
    (
        "other cover",
        lambda by: replace(by, covers=tuple(replace(each, graph="0" * 64) for each in by.covers)),
        "they were measured with its cover",
    ),
    (
        "winner",
        lambda by: replace(by, winners=tuple(w for w in by.winners if w.problem != by.engines[0].swaps[0].problem)),
        "not all of its kernels, and of the winners that they replace, are there any more",
    ),
    (
        "kernel",
        lambda by: choice(by, swaps=(replace(by.engines[0].swaps[0], candidate=TILED.tile(64)),)),
        "not all of its kernels, and of the winners that they replace, are there any more",
    ),
    (
        "problem",
        lambda by: choice(by, swaps=(*by.engines[0].swaps, Winner("0" * 64, TILED.tile(1), 1e-6))),
        "not all of its kernels, and of the winners that they replace, are there any more",
    ),
]


@pytest.mark.parametrize(("change", "reason"), [each[1:] for each in STALE], ids=[each[0] for each in STALE])
def test_a_choice_that_does_not_fit_is_declined_as_a_whole(
    change: Callable[[Selection], Selection], reason: str
) -> None:
    by = change(locked(("a", TILED.tile(4)), ("b", TILED.tile(2))))
    engine = planned(TILED, by=by)
    assert kernels(engine) == ["a: tiled tile=1", "b: tiled tile=1", "y: tiled tile=1"]
    assert f"batch 1: declined the whole engine's kernels of net.lock.yaml ({reason})" in said(engine)
    assert Declined("engine", 1, reason) in engine.declined


def test_a_choice_is_declined_where_a_winner_beside_it_is_gone() -> None:
    by = locked(("a", TILED.tile(4)))
    other = problem_of(planned(TILED, by=by), "b")
    winners = tuple(replace(w, candidate=TILED.tile(64)) if w.problem == other else w for w in by.winners)
    engine = planned(TILED, by=replace(by, winners=winners))
    assert kernels(engine) == ["a: tiled tile=1", "b: tiled tile=1", "y: tiled tile=1"]
    assert said(engine)[:3] == [
        (
            "softmax(f32[1,2,2,2]) axis=2 -> f32[1,2,2,2]: declined tiled tile=64 "
            "(net.lock.yaml names a kernel that is none of its family's candidates any more)"
        ),
        "batch 1: took the cover of net.lock.yaml (it was found for this graph)",
        (
            "batch 1: declined the whole engine's kernels of net.lock.yaml "
            "(not all winners for its cover and its conversions are there any more)"
        ),
    ]
    assert engine.declined == (
        Declined("engine", 1, "not all winners for its cover and its conversions are there any more"),
    )


def test_a_gone_winner_of_a_problem_that_the_plan_cannot_have_is_no_reason() -> None:
    by = locked(("a", TILED.tile(4)))
    engine = planned(TILED, by=replace(by, winners=(*by.winners, Winner("0" * 64, TILED.tile(64), 1e-6))))
    assert kernels(engine) == ["a: tiled tile=4", "b: tiled tile=1", "y: tiled tile=4"]
    assert engine.declined == ()


def test_another_batch_keeps_its_own_kernels() -> None:
    tiled = TILED
    by = selection(trials_of(tiled, graphs=[net(1), net(8)]), smallest_first)
    engine = planned(tiled, by=by, graphs=[net(1), net(8)])
    swap = Winner(problem_of(engine, "a"), tiled.tile(4), 2e-6)
    choice = EngineChoice(engine.covers[0].graph, 1, (swap,), 100e-6, 90e-6)
    again = planned(tiled, by=replace(by, covers=engine.covers, engines=(choice,)), graphs=[net(1), net(8)])
    assert kernels(again) == [
        *("a: tiled tile=4", "b: tiled tile=1", "y: tiled tile=4"),
        *("a: tiled tile=1", "b: tiled tile=1", "y: tiled tile=1"),
    ]  # fmt: skip


def test_an_engine_that_nothing_made_faster_says_nothing() -> None:
    by = locked()
    assert planned(TILED, by=by).plan == planned(TILED, by=replace(by, engines=())).plan


def test_a_selection_with_engines_survives_its_json_form() -> None:
    by = locked(("a", TILED.tile(4)))
    assert decode(Selection, encode(by)) == by


def test_a_table_has_the_steps_that_launch_something_where_the_plan_has_them() -> None:
    engine = plan_engine([net(1), net(8)], recipe(), SPEC, HOST_TARGET, [TILED])
    tables = engine_tables(engine)
    assert [(table.batch, table.target) for table in tables] == [(1, SPEC.name), (8, SPEC.name)]
    for table, plan, cover in zip(tables, engine.plan.plans, engine.covers, strict=True):
        assert table.graph == cover.graph
        assert [step.name for step in table.steps] == [step.name for step in plan.steps if not step.view]
        for step, planned_step in zip(table.steps, plan.steps, strict=True):
            assert step.problem == planned_step.problem.digest
            assert step.inputs == tuple(tensor.location for tensor in planned_step.inputs)
            assert step.outputs == tuple(tensor.location for tensor in planned_step.outputs)
