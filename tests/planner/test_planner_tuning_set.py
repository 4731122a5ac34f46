"""What is worth measuring: which problems, which of their candidates in which order, and why the rest is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph
from planner_fakes import AS_MODEL, HOST_TARGET, LAST, ROW, SPEC, Fake, recipe
from tuned_family import Tiled

from bolt_build.families.base import Alternative, Refusal
from bolt_build.planner.plan_engine import search_spaces
from bolt_build.planner.space import SearchSpace, search_space
from bolt_build.schema.recipe import IoSpec
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial, TuningSet, tuning_set

CHAIN = """
    graph g batch={batch} (%x: f32[{batch},2,2,2]) -> (%y) {{
      %a = relu(%x) // "a"
      %b = tanh(%a) // "b"
      %c = relu(%b) // "c"
      %y = neg(%c) // "y"
    }}"""
TARGET = replace(HOST_TARGET, launch_seconds=1e-7)


def space_of(text: str, *families: Fake, io: IoSpec = AS_MODEL) -> SearchSpace:
    return search_space(graph(text), recipe(io), SPEC, TARGET, families)


def chosen(*families: Fake, limit: int = 12, batches: tuple[int, ...] = (1,), io: IoSpec = AS_MODEL) -> TuningSet:
    spaces = [space_of(CHAIN.format(batch=batch), *families, io=io) for batch in batches]
    return tuning_set(spaces, families, TARGET, limit)


def named(found: TuningSet, place: str) -> ProblemTrials:
    return next(each for each in found.problems if place in each.occurs)


def lines(found: ProblemTrials) -> list[str]:
    return [f"{trial.candidate} {trial.predicted * 1e6:.0f} of {trial.of}" for trial in found.trials]


def rows(node: object) -> tuple[object, ...]:
    return (ROW,)


def test_what_a_lock_has_is_tried_again_wherever_prediction_puts_it() -> None:
    (space,) = [space_of(CHAIN.format(batch=1), Tiled(layouts=rows))]
    every = tuning_set([space], [Tiled(layouts=rows)], TARGET, 12)
    last = {each.problem.digest: [t for t in each.trials if t.of is None][-1].candidate for each in every.problems}
    few = tuning_set([space], [Tiled(layouts=rows)], TARGET, 1, last)
    for each in few.problems:
        first = [trial.candidate for trial in each.trials if trial.of is None]
        assert first[-1] == last[each.problem.digest]
        assert len(first) <= 2
    assert any(len([t for t in each.trials if t.of is None]) == 2 for each in few.problems)
    gone = {digest: replace(each, parameters=(("tile", 99),)) for digest, each in last.items()}
    assert tuning_set([space], [Tiled(layouts=rows)], TARGET, 1, gone) == chosen(Tiled(layouts=rows), limit=1)


def test_equal_layers_are_one_problem_that_says_where_it_occurs() -> None:
    found = chosen(Tiled(layouts=rows), batches=(1, 8))
    assert sorted(each.occurs for each in found.problems) == [
        ("batch 1: a", "batch 1: c"), ("batch 1: b",), ("batch 1: output y",), ("batch 1: y",),
        ("batch 8: a", "batch 8: c"), ("batch 8: b",), ("batch 8: output y",), ("batch 8: y",),
    ]  # fmt: skip
    assert [each.problem.digest for each in found.problems] == sorted(each.problem.digest for each in found.problems)


def test_the_first_candidates_by_prediction_and_their_variants_behind_them() -> None:
    found = named(chosen(Tiled(layouts=rows, tiles=(4, 1, 2), swizzles=(3,)), limit=2), "batch 1: b")
    assert lines(found) == [
        "tiled tile=1 1 of None",
        "tiled tile=2 2 of None",
        "tiled tile=1 swizzle=3 1 of 0",
        "tiled tile=2 swizzle=3 2 of 1",
    ]
    assert found.refusals == (
        Refusal("tiled", "tiled tile=4", "predicted 4.0 us, in place 3 of 3: the first 2 are tried"),
    )


@pytest.mark.parametrize(("tile", "tried"), [(13, (10, 11, 13)), (14, (10, 11))])
def test_what_a_family_puts_in_front_of_faster_ones_is_tried_where_it_is_not_far_behind(
    tile: int, tried: tuple[int, ...]
) -> None:
    """The first of a group of kernels: 1.3 times what the fastest takes, and 1.4 times."""
    found = named(chosen(Tiled(layouts=rows, tiles=(10, tile, 11, 12), largest=99), limit=2), "batch 1: b")
    assert [trial.candidate for trial in found.trials] == [Tiled().tile(each) for each in tried]


def test_a_family_s_own_refusals_are_kept() -> None:
    found = named(chosen(Tiled(layouts=rows, largest=2)), "batch 1: b")
    assert found.refusals == (Refusal("tiled", "tile 4", "larger than 2"),)


def test_candidates_of_all_families_that_offer_a_problem_are_ranked_together() -> None:
    other = Tiled("other", rows, tiles=(3,))
    assert lines(named(chosen(Tiled(layouts=rows), other), "batch 1: b")) == [
        "tiled tile=1 1 of None", "tiled tile=2 2 of None", "other tile=3 3 of None", "tiled tile=4 4 of None",
    ]  # fmt: skip


def test_equal_predictions_keep_the_order_of_the_families() -> None:
    first, second = Tiled("first", rows, tiles=(1,)), Tiled("second", rows, tiles=(1,))
    assert lines(named(chosen(first, second), "batch 1: b"))[0] == "first tile=1 1 of None"
    assert lines(named(chosen(second, first), "batch 1: b"))[0] == "second tile=1 1 of None"


def test_a_problem_with_one_candidate_stays() -> None:
    assert lines(named(chosen(Tiled(layouts=rows, tiles=(1,))), "batch 1: b")) == ["tiled tile=1 1 of None"]


def test_conversions_are_measured_too_and_name_the_tensors_that_they_convert() -> None:
    found = chosen(Tiled(layouts=lambda node: (LAST,) if node.name == "b" else (ROW,)))
    assert sorted(each.occurs for each in found.problems if each.problem.op.kind == "convert") == [
        ("batch 1: a to f32/channels_last",), ("batch 1: b to f32/row",),
    ]  # fmt: skip


def test_a_copy_to_an_output_is_measured_too() -> None:
    space = space_of("graph g batch=1 (%x: f32[2]) -> (%x) {\n}", Tiled())
    (copied,) = tuning_set([space], [Tiled()], TARGET, 3).problems
    assert (copied.problem.op.kind, copied.occurs) == ("identity", ("batch 1: output x",))


def slow_last(times: float) -> Tiled:
    return Tiled(seconds=lambda node, layout: 1e-6 * times if layout is LAST else 1e-6, conversion=1e-7)


def test_what_only_a_hopeless_alternative_needs_is_left_out_with_its_conversions() -> None:
    found = chosen(slow_last(4.5))
    layouts = {each.problem.outputs[0].format.layout for each in found.problems}
    assert layouts == {ROW}
    assert {refusal.reason for refusal in found.refusals} == {"predicted 4.5 us, over 4 times the 1.0 us of tiled"}
    assert sorted(refusal.what for refusal in found.refusals) == [
        "neg(f32[1,2,2,2] channels_last) -> f32[1,2,2,2] channels_last",
        "relu(f32[1,2,2,2] channels_last) -> f32[1,2,2,2] channels_last",
        "tanh(f32[1,2,2,2] channels_last) -> f32[1,2,2,2] channels_last",
    ]


def test_four_times_as_slow_is_not_hopeless_yet() -> None:
    found = chosen(slow_last(4.0))
    assert {each.problem.outputs[0].format.layout for each in found.problems} == {ROW, LAST}
    assert found.refusals == ()


def kept_last(conversion: float) -> TuningSet:
    """`b` may be in either layout, and all around it are row-major."""
    both = Tiled(layouts=lambda node: (ROW, LAST) if node.name == "b" else (ROW,), conversion=conversion)
    return chosen(both)


def test_a_layout_that_conversions_surround_is_left_out_with_them() -> None:
    """1 us in either layout, and 0.6 us to convert what is read, and again what is left."""
    found = kept_last(6e-7)
    assert {each.problem.outputs[0].format.layout for each in found.problems} == {ROW}
    (refusal,) = found.refusals
    assert refusal == Refusal(
        "tiled", "tanh(f32[1,2,2,2] channels_last) -> f32[1,2,2,2] channels_last",
        "predicted 1.0 us and 1.2 us of conversions, where another layout takes 1.0 us in all",
    )  # fmt: skip


def test_a_layout_whose_conversions_take_less_than_the_kernel_stays() -> None:
    found = kept_last(4e-7)
    assert {each.problem.outputs[0].format.layout for each in found.problems} == {ROW, LAST}
    assert found.refusals == ()


def test_a_layout_that_is_faster_by_itself_stays_whatever_conversions_take() -> None:
    """Those at the ends of a long chain are shared by all of it."""
    family = Tiled(seconds=lambda node, layout: 5e-7 if layout is LAST else 1e-6, conversion=1e-3)
    assert chosen(family).refusals == ()


def test_what_is_left_out_forces_conversions_on_its_neighbours() -> None:
    """`b` and `c` may be channels-last, `a` and `y` not: neither is worth it, for `c` ends at `y`."""
    either = ("b", "c")
    family = Tiled(layouts=lambda node: (ROW, LAST) if node.name in either else (ROW,), conversion=1.1e-6)
    found = chosen(family)
    assert {each.problem.outputs[0].format.layout for each in found.problems} == {ROW}


def test_the_hopeless_family_of_a_problem_is_left_out_where_another_is_not() -> None:
    slow = Tiled("slow", rows, seconds=lambda node, layout: 9e-6)
    found = named(chosen(Tiled(layouts=rows), slow), "batch 1: b")
    assert {trial.candidate.family for trial in found.trials} == {"tiled"}
    assert found.refusals == (Refusal("slow", "every candidate", "predicted 9.0 us, over 4 times the 1.0 us of tiled"),)


def test_nothing_is_hopeless_beside_a_view_that_takes_no_time() -> None:
    """A kernel that takes no longer than a few launches stays: the view may need a conversion."""
    text = 'graph g batch=1 (%x: f32[1,8,1,1]) -> (%y) {\n%y = reshape(%x) shape=[1,8] // "y"\n}'
    space = space_of(text, Tiled())
    (view,) = space.alternatives
    kernel = replace(view, family="tiled", steps=(replace(view.steps[0], view=False),), seconds=3e-7)
    free = replace(view, seconds=0.0)
    choice = replace(space.choices[0], problem=kernel.steps[0].problem)
    space = replace(space, alternatives=(free, kernel), choices=(*space.choices, choice))
    found = tuning_set([space], [Tiled()], TARGET, 3)
    assert ("batch 1: y",) in [each.occurs for each in found.problems]


def test_several_nodes_in_one_kernel_are_compared_with_the_nodes_one_by_one() -> None:
    space = space_of(CHAIN.format(batch=1), Tiled(layouts=rows))
    b = next(each for each in space.alternatives if each.region == ("b",))
    pair = Alternative(("a", "b"), "tiled", (replace(b.steps[0], inputs=("x",)),), 8.5e-6)
    other = replace(pair.steps[0].problem, accumulate=pair.steps[0].problem.outputs[0].format.dtype, target="pair")
    pair = replace(pair, steps=(replace(pair.steps[0], problem=other),))
    choice = replace(space.choices[0], problem=other)
    space = replace(space, alternatives=(*space.alternatives, pair), choices=(*space.choices, choice))
    found = tuning_set([space], [Tiled(layouts=rows)], TARGET, 3)
    assert [refusal.reason for refusal in found.refusals] == [
        "predicted 8.5 us, over 4 times the 2.0 us of one kernel a node"
    ]


def test_search_spaces_hold_the_optimised_graphs() -> None:
    spaces = search_spaces([graph(CHAIN.format(batch=n)) for n in (1, 8)], recipe(), SPEC, TARGET, [Tiled()])
    assert [(space.graph.batch, [node.covers for node in space.graph.nodes]) for space in spaces] == [
        (1, [("a", "b", "c", "y")]), (8, [("a", "b", "c", "y")]),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2])
def test_what_is_left_out_and_what_is_tried_are_all_there_is(limit: int) -> None:
    found = named(chosen(Tiled(layouts=rows), limit=limit), "batch 1: b")
    assert len(found.trials) == limit
    assert len(found.trials) + len(found.refusals) == 3


@settings(max_examples=40, deadline=None)
@given(
    tiles=st.lists(st.integers(1, 9), min_size=1, max_size=6, unique=True),
    swizzles=st.lists(st.integers(1, 4), max_size=2, unique=True),
    limit=st.integers(1, 7),
)
def test_trials_of_the_first_stage_come_first_each_stage_by_its_prediction(
    tiles: list[int], swizzles: list[int], limit: int
) -> None:
    family = Tiled(layouts=rows, tiles=tuple(tiles), largest=9, swizzles=tuple(swizzles))
    for each in (each for each in chosen(family, limit=limit).problems if each.problem.op.kind != "identity"):
        first: list[Trial] = [trial for trial in each.trials if trial.of is None]
        rest = [trial for trial in each.trials if trial.of is not None]
        assert each.trials == (*first, *rest)
        assert len(first) == min(limit, len(tiles))
        for stage in (first, rest):
            assert [trial.predicted for trial in stage] == sorted(trial.predicted for trial in stage)
        for trial in rest:
            assert trial.of is not None
            assert first[trial.of].candidate == trial.candidate.compiled
        assert len(rest) == len(first) * len(swizzles)
