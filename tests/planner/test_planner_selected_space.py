"""Plans from measurements: winners, refused alternatives, covers of a lock, and where each choice came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph
from planner_fakes import HOST_TARGET, LAST, ROW, SPEC, Fake, recipe
from tuned_family import Tiled

from bolt_build.digest import decode, encode
from bolt_build.families.base import Alternative, Candidate, KernelProblem
from bolt_build.graph.ir import Graph
from bolt_build.planner.kernel_sources import Declined
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine, search_spaces
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.resolve import resolve
from bolt_build.planner.selected_space import chosen_cover, selected_space
from bolt_build.planner.selection import PREDICTED, ChosenCover, Selection, Winner
from bolt_build.planner.space import SearchSpace, problems_of, search_space
from bolt_build.planner.structure import graph_digest
from bolt_build.schema.recipe import IoSpec
from bolt_build.targets import target_named
from bolt_build.tuning.trials.tuning_set import TuningSet, tuning_set

NET = """
    graph g batch={batch} (%x: f32[{batch},2,2,2]) -> (%y) {{
      %a = softmax(%x) axis=1 // "a"
      %b = softmax(%a) axis=2 // "b"
      %y = softmax(%b) axis=1 // "y"
    }}"""


def net(batch: int = 1) -> Graph:
    return graph(NET.format(batch=batch))


def space_of(*families: Fake, of: Graph | None = None) -> SearchSpace:
    return search_space(of or net(), recipe(), SPEC, HOST_TARGET, families)


def trials_of(*families: Fake, graphs: Sequence[Graph] = ()) -> TuningSet:
    spaces = search_spaces(graphs or [net()], recipe(), SPEC, HOST_TARGET, families)
    return tuning_set(spaces, families, HOST_TARGET, 12)


def selection(found: TuningSet, seconds: Callable[[KernelProblem, Candidate], float | None]) -> Selection:
    """The fastest of all trials by `seconds`; None is no time."""
    winners = []
    for each in found.problems:
        timed = [(seconds(each.problem, trial.candidate), trial.candidate) for trial in each.trials]
        known = [(time, str(candidate), candidate) for time, candidate in timed if time is not None]
        if known:
            winners.append(Winner(each.problem.digest, min(known)[2], min(known)[0]))
    return Selection("net.lock.yaml", tuple(sorted(winners, key=lambda winner: winner.problem)))


def planned(*families: Fake, by: Selection = PREDICTED, graphs: Sequence[Graph] = ()) -> PlannedEngine:
    return plan_engine(graphs or [net()], recipe(), SPEC, HOST_TARGET, families, by)


def kernels(engine: PlannedEngine) -> list[str]:
    return [f"{step.name}: {step.candidate}" for plan in engine.plan.plans for step in plan.steps]


def said(engine: PlannedEngine) -> list[str]:
    found = [d for d in engine.plan.decisions if d.stage == "tuning"]
    return [f"{d.subject}: {d.action} ({d.reason})" for d in found]


def row(node: object) -> tuple[object, ...]:
    return (ROW,)


def largest_first(problem: KernelProblem, candidate: Candidate) -> float:
    """The largest tile is the fastest, against the prediction."""
    return 9e-6 - 1e-6 * int(dict(candidate.parameters).get("tile", 8))


def test_the_winner_is_the_kernel_and_its_time_the_alternative_s() -> None:
    tiled = Tiled(layouts=row)
    by = selection(trials_of(tiled), largest_first)
    engine = planned(tiled, by=by)
    assert kernels(planned(tiled)) == ["a: tiled tile=1", "b: tiled tile=1", "y: tiled tile=1"]
    assert kernels(engine) == ["a: tiled tile=4", "b: tiled tile=4", "y: tiled tile=4"]
    assert said(engine) == [
        "batch 1: a and 1 more: took tiled tile=4 (measured 5.00 us, net.lock.yaml)",
        "batch 1: b: took tiled tile=4 (measured 5.00 us, net.lock.yaml)",
    ]
    (resolved,) = [d.reason for d in engine.plan.decisions if d.stage == "resolve"]
    assert resolved == "measured 15.0 us over 3 nodes with 0 conversions; exact"


def test_a_winner_keeps_its_settings() -> None:
    tiled = Tiled(layouts=row, swizzles=(2, 4))
    by = selection(trials_of(tiled), lambda problem, candidate: 1e-6 if dict(candidate.settings) else 2e-6)
    assert kernels(planned(tiled, by=by)) == [f"{name}: tiled tile=1 swizzle=2" for name in ("a", "b", "y")]


def test_measured_times_choose_the_formats() -> None:
    """Predicted, both layouts are alike and rows need no conversion; measured, channels last are faster by more."""
    tiled = Tiled(conversion=1e-6)
    times = {ROW: 9e-6, LAST: 1e-6}
    by = selection(trials_of(tiled), lambda problem, _: times[problem.outputs[0].format.layout])
    before, after = planned(tiled), planned(tiled, by=by)
    assert [step.name for step in before.plan.plans[0].steps] == ["a", "b", "y"]
    assert [step.name for step in after.plan.plans[0].steps] == ["x@f32/channels_last", "a", "b", "y", "y@f32/row"]


def test_the_loser_s_alternative_is_refused() -> None:
    first, second = Tiled("first", row), Tiled("second", row)
    by = selection(trials_of(first, second), lambda problem, c: 1e-6 if c.family == "second" else 2e-6)
    engine = planned(first, second, by=by)
    assert {step.candidate.family for step in engine.plan.plans[0].steps} == {"second"}
    assert [(r.family, r.what, r.reason) for r in engine.plan.refusals] == [
        ("first", name, "second has the fastest kernel that was measured") for name in ("a", "b", "y")
    ]


def test_what_was_not_measured_does_not_compete_with_what_was() -> None:
    """Predicted at a tenth of what the other layout was measured at, and refused all the same."""
    tiled = Tiled(seconds=lambda node, layout: 1e-7 if layout is LAST else 1e-6)
    by = selection(
        trials_of(tiled), lambda problem, _: None if problem.outputs[0].format.layout is LAST else 1e-5
    )  # fmt: skip
    engine = planned(tiled, by=by)
    assert {step.problem.outputs[0].format.layout for step in engine.plan.plans[0].steps} == {ROW}
    assert {(r.what, r.reason) for r in engine.plan.refusals} == {
        (name, "not measured, unlike another way to compute the same nodes") for name in ("a", "b", "y")
    }


def test_where_nothing_of_a_node_was_measured_it_is_predicted_and_said_so() -> None:
    tiled = Tiled(layouts=row)
    by = selection(trials_of(tiled), lambda problem, _: None if "axis=2" in describe_problem(problem) else 1e-6)
    engine = planned(tiled, by=by)
    assert said(engine) == [
        "batch 1: a and 1 more: took tiled tile=1 (measured 1.00 us, net.lock.yaml)",
        "batch 1: b: took tiled tile=1 (predicted: not in net.lock.yaml)",
    ]
    assert [(each.occurs, each.measured) for each in sorted(engine.used, key=lambda each: each.occurs)] == [
        (("batch 1: a", "batch 1: y"), True), (("batch 1: b",), False),
    ]  # fmt: skip
    (resolved,) = [d.reason for d in engine.plan.decisions if d.stage == "resolve"]
    assert resolved == "measured and predicted 3.0 us over 3 nodes with 0 conversions; exact"


def test_nodes_are_not_left_uncovered_where_only_their_pair_was_measured() -> None:
    tiled = Tiled(layouts=row)
    space = space_of(tiled)
    a, b, _ = space.alternatives
    problem = replace(b.steps[0].problem, target="pair")
    pair = Alternative(("a", "b"), "tiled", (replace(b.steps[0], problem=problem, inputs=("x",)),), 9e-6)
    choice = replace(space.choices[0], problem=problem)
    space = replace(space, alternatives=(*space.alternatives, pair), choices=(*space.choices, choice))
    by = Selection("records", (Winner(problem.digest, tiled.tile(1), 5e-6),))
    found, _ = selected_space(space, by, HOST_TARGET, [tiled])
    assert [each.region for each in found.alternatives] == [("a",), ("b",), ("y",), ("a", "b")]
    singles = [Winner(each.steps[0].problem.digest, tiled.tile(1), 1e-6) for each in (a, b)]
    found, _ = selected_space(space, Selection("records", tuple(singles)), HOST_TARGET, [tiled])
    assert [each.region for each in found.alternatives] == [("a",), ("b",), ("y",)]


def test_a_winner_that_its_family_does_not_name_any_more_is_declined() -> None:
    before, now = Tiled(layouts=row, swizzles=(2,)), Tiled(layouts=row, largest=2)
    for gone in (lambda c: dict(c.parameters).get("tile") == 4 and not c.settings, lambda c: bool(c.settings)):
        by = selection(trials_of(before), lambda problem, c, gone=gone: 1e-6 if gone(c) else None)
        engine = planned(now, by=by)
        assert kernels(engine) == ["a: tiled tile=1", "b: tiled tile=1", "y: tiled tile=1"]
        name = str(by.winners[0].candidate)
        assert said(engine)[0] == (
            f"softmax(f32[1,2,2,2]) axis=1 -> f32[1,2,2,2]: declined {name} "
            "(net.lock.yaml names a kernel that is none of its family's candidates any more)"
        )
        assert not any(each.measured for each in engine.used)


def test_a_conversion_is_done_by_its_winner() -> None:
    first = Tiled("first", lambda node: () if node.name == "b" else (ROW,))
    second = Tiled("second", lambda node: (LAST,))
    by = selection(trials_of(first, second), lambda problem, c: 1e-6 if c.family == "second" else 2e-6)
    engine = planned(first, second, by=by)
    converts = [step.candidate.family for step in engine.plan.plans[0].steps if step.problem.op.kind == "convert"]
    assert converts
    assert set(converts) == {"second"}


def covered(tiled: Tiled, layout: object) -> Selection:
    """A lock whose cover computes everything in one layout, which its times would not choose."""
    by = selection(trials_of(tiled), lambda problem, _: 1e-6)
    (space,) = search_spaces([net()], recipe(), SPEC, HOST_TARGET, [tiled])
    alternatives = [
        each for each in space.alternatives if each.steps[0].problem.outputs[0].format.layout is layout
    ]  # fmt: skip
    return replace(by, covers=(chosen_cover(space, alternatives),))


def test_the_cover_of_a_lock_is_taken_for_its_graph() -> None:
    tiled = Tiled(conversion=1e-6)
    engine = planned(tiled, by=covered(tiled, LAST))
    layouts = [step.problem.outputs[0].format.layout for step in engine.plan.plans[0].steps]
    assert layouts == [LAST, LAST, LAST, LAST, ROW]
    assert said(engine)[0] == "batch 1: took the cover of net.lock.yaml (it was found for this graph)"
    assert engine.covers == covered(tiled, LAST).covers
    assert engine.declined == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cover: replace(cover, graph="0" * 64), "it was found for another graph"),
        (lambda cover: replace(cover, batch=8), "it has none for this batch"),
        (
            lambda cover: replace(cover, alternatives=(replace(cover.alternatives[0], family="gone"),)),
            "no family offers gone for a as it was chosen",
        ),
        (
            lambda cover: replace(cover, alternatives=cover.alternatives[1:]),
            "no family offers every node as it was chosen",
        ),
    ],
    ids=["graph", "batch", "family", "nodes"],
)
def test_a_cover_that_does_not_fit_is_declined_and_the_cheapest_is_found(
    change: Callable[[ChosenCover], ChosenCover], reason: str
) -> None:
    tiled = Tiled(conversion=1e-6)
    by = covered(tiled, LAST)
    engine = planned(tiled, by=replace(by, covers=tuple(change(cover) for cover in by.covers)))
    assert [step.name for step in engine.plan.plans[0].steps] == ["a", "b", "y"]
    assert said(engine)[0] == f"batch 1: declined the cover of net.lock.yaml ({reason})"
    assert engine.declined == (Declined("cover", 1, reason),)


def test_a_cover_is_of_the_forms_in_which_the_caller_gives_and_takes_tensors() -> None:
    """What was cheapest where the model's own form had to be converted is not where the caller has another."""
    tiled = Tiled(conversion=1e-6)
    by = covered(tiled, ROW)
    engine = plan_engine([net()], recipe(IoSpec("model", "channels_last")), SPEC, HOST_TARGET, [tiled], by)
    reason = "it was found for inputs and outputs of other forms"
    assert engine.declined == (Declined("cover", 1, reason),)
    assert said(engine)[0] == f"batch 1: declined the cover of net.lock.yaml ({reason})"
    own = plan_engine([net()], recipe(IoSpec("fp32", "row")), SPEC, HOST_TARGET, [tiled], by)
    assert own.covers == by.covers  # named, and the model's own


def test_winners_without_any_cover_lack_that_of_each_batch_and_predictions_lack_none() -> None:
    tiled = Tiled(layouts=row)
    graphs = [net(1), net(8)]
    by = selection(trials_of(tiled, graphs=graphs), lambda problem, _: 1e-6)
    assert planned(tiled, by=by, graphs=graphs).declined == (
        Declined("cover", 1, "it has none for this batch"), Declined("cover", 8, "it has none for this batch"),
    )  # fmt: skip
    assert planned(tiled, graphs=graphs).declined == ()


def test_what_was_chosen_from_records_is_chosen_again_from_its_cover() -> None:
    tiled = Tiled(conversion=1e-6)
    times = {ROW: 3e-6, LAST: 1e-6}
    by = selection(trials_of(tiled), lambda problem, _: times[problem.outputs[0].format.layout])
    first = planned(tiled, by=by)
    again = planned(tiled, by=replace(by, covers=first.covers))
    assert kernels(again) == kernels(first)
    assert again.plan.layout_digest == first.plan.layout_digest
    assert again.covers == first.covers


def test_other_weights_and_another_name_are_the_same_graph_another_batch_is_not() -> None:
    text = 'graph g batch=1 (%x: f32[1,4]) -> (%y) {{\nconst %w: f32[4,4] #{}\n%y = matmul(%x, %w) // "y"\n}}'
    one, other = graph(text.format("")), graph(text.format("").replace("graph g", "graph h"))
    scaled = [
        replace(v, constant=None if v.constant is None else type(v.constant)(v.constant.array * 2)) for v in one.values
    ]
    assert graph_digest(one) == graph_digest(other) == graph_digest(replace(one, values=tuple(scaled)))
    assert graph_digest(net(1)) != graph_digest(net(8))


def test_without_measurements_a_gpu_target_says_so_once_a_batch_and_a_cpu_nothing() -> None:
    engine = plan_engine([net(1), net(8)], recipe(), SPEC, target_named("h200"), [Tiled(layouts=row)])
    assert said(engine) == [
        f"batch {batch}: chose kernels by prediction (nothing was measured for this engine)" for batch in (1, 8)
    ]
    assert said(planned(Tiled(layouts=row))) == []


def test_every_problem_that_a_winner_could_change_is_asked_about() -> None:
    tiled = Tiled()
    engine = planned(tiled)
    assert set(engine.asked) == {each.problem.digest for each in space_of(tiled).choices}
    assert list(engine.asked) == sorted(engine.asked)


def test_a_selection_survives_its_json_form() -> None:
    tiled = Tiled(swizzles=(2,))
    by = covered(tiled, LAST)
    assert decode(Selection, encode(by)) == by


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_was_measured_there_is_a_cover_and_winners_are_what_runs(data: st.DataObject) -> None:
    """Any winners of any family for any of the problems: every node is computed, and by the winner where there is one
    that could take the alternative's place."""
    first, second = Tiled("first"), Tiled("second", swizzles=(2,))
    space = space_of(first, second)
    winners = []
    for problem in dict.fromkeys(choice.problem for choice in space.choices):
        candidates = [c for choice in space.choices if choice.problem == problem for c in choice.candidates]
        candidate = data.draw(st.sampled_from([None, *candidates]))
        if candidate is not None:
            winners.append(Winner(problem.digest, candidate, data.draw(st.floats(1e-7, 1e-4))))
    by = Selection("records", tuple(sorted(winners, key=lambda winner: winner.problem)))
    found, known = selected_space(space, by, HOST_TARGET, [first, second])
    cover = resolve(found)
    assert {name for each in cover.alternatives for name in each.region} == {"a", "b", "y"}
    chosen = {(choice.family, choice.problem): choice.candidates[0] for choice in found.choices}
    for each in cover.alternatives:
        for problem in problems_of(each):
            assert problem not in known or chosen[each.family, problem] == known[problem].candidate


def test_a_cover_holds_for_its_graph_whatever_other_extents_its_engine_has() -> None:
    """So a lock of one length serves the recipe that has more, and what is said names the extents."""
    tiled = Tiled(conversion=1e-6)
    by = covered(tiled, LAST)
    longer = replace(net(), dims=(("width", 8),))
    engine = planned(tiled, by=by, graphs=[longer])
    assert engine.declined == ()
    assert said(engine)[0] == "batch 1, width 8: took the cover of net.lock.yaml (it was found for this graph)"
    none = planned(tiled, by=replace(by, covers=()), graphs=[longer])
    assert none.declined == (Declined("cover", 1, "it has none for batch 1, width 8", (("width", 8),)),)
