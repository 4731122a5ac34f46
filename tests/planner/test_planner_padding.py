"""What a recipe says of padding, as kernels are left by it: which are legal, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import graph
from planner_fakes import recipe

from bolt_build.digest import canonical_json, decode, encode
from bolt_build.families import load
from bolt_build.families.base import KernelProblem
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine, search_spaces
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.space import SearchSpace
from bolt_build.schema.recipe import IoSpec, LayerSpec, PaddingPolicy, Recipe, TargetSpec
from bolt_build.targets import target_named

LAST = IoSpec("model", "channels_last")
"""As kernels read images, so that nothing is converted."""


def of(mode: str = "auto", alignment: int = 8, **layers: str) -> Recipe:
    found = recipe(LAST, tuple(map(LayerSpec, layers)))
    return replace(found, policy=replace(found.policy, padding=PaddingPolicy(mode, alignment, tuple(layers.items()))))


def conv(channels: int, window: int = 3) -> str:
    """One convolution, whose input nobody can store padded: it is the graph's."""
    return f"""
        graph g batch=32 (%x: f16[32,{channels},20,26]) -> (%y) {{
          const %w: f16[32,{channels},{window},{window}] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "y"
        }}"""


TWO = """
    graph g batch=32 (%x: f16[32,46,20,26]) -> (%y, %z) {
      const %w: f16[32,46,3,3] #
      const %v: f16[32,46,3,3] #
      %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "y"
      %z = conv(%x, %v) pads_begin=[1,1] pads_end=[1,1] | relu // "z"
    }"""


def space(text: str, asked: Recipe, target: str = "h200", precision: str = "fp16") -> SearchSpace:
    chosen = target_named(target)
    (found,) = search_spaces([graph(text)], asked, TargetSpec(target, precision), chosen, load(chosen))
    return found


def planned(text: str, asked: Recipe) -> PlannedEngine:
    chosen = target_named("h200")
    return plan_engine([graph(text)], asked, TargetSpec("h200", "fp16"), chosen, load(chosen))


def loads(found: SearchSpace) -> set[int | str]:
    """Elements that the kernels of CUTLASS load at once."""
    every = (c for choice in found.choices if choice.family == "cutlass" for c in choice.candidates)
    return {dict(candidate.parameters).get("loads", 8) for candidate in every}


def said(found: SearchSpace) -> list[tuple[str, str, str]]:
    return [(each.subject, each.action, each.reason) for each in found.decisions if each.stage == "padding"]


@pytest.mark.parametrize(
    ("asked", "channels", "left"),
    [
        (of("auto"), 46, {2, 8}), (of("never"), 46, {2}), (of("always"), 46, {8}), (of("always", 4), 46, {8}),
        (of("always", 2), 46, {2, 8}), (of("always", 4), 44, {4, 8}), (of("always"), 44, {8}), (of("never"), 44, {4}),
    ],
)  # fmt: skip
def test_kernels_load_what_the_recipe_lets_them(asked: Recipe, channels: int, left: set[int]) -> None:
    assert loads(space(conv(channels), asked)) == left


def legal(channels: int) -> dict[int, int]:
    """How many kernels of CUTLASS the convolution has, by the elements that they load at once."""
    every = [
        c for choice in space(conv(channels), of()).choices if choice.family == "cutlass" for c in choice.candidates
    ]
    found = [int(dict(candidate.parameters).get("loads", 8)) for candidate in every]
    return {size: found.count(size) for size in found}


def test_the_plan_says_whose_kernels_were_limited_and_how_many_are_left() -> None:
    ((_, _, unpadded),) = said(space(conv(46), of("never")))
    ((subject, action, padded),) = said(space(conv(46), of("always")))
    assert (subject, action) == ("y", "padded channels")
    left = legal(46)
    every = sum(left.values())
    assert unpadded == f"policy.padding.mode is never: {left[2]} of {every} kernels of 'cutlass' are left"
    assert padded == f"policy.padding.mode is always: {left[8]} of {every} kernels of 'cutlass' are left"


def test_what_is_left_out_has_its_reason() -> None:
    target = target_named("h200")
    (family,) = (each for each in load(target) if each.name == "cutlass")
    (problem,) = {c.problem for c in space(conv(46), of()).choices if c.family == "cutlass" and c.problem.epilogue}
    never, always = (
        {each.reason for each in family.candidates(replace(problem, padding=padding), target)[1]} for padding in (0, 8)
    )
    assert "copies the input to 48 channels, and the recipe wants nothing padded" in never
    assert "loads 2 elements at once, and the recipe wants channels padded to a multiple of 8" in always
    for candidate in family.candidates(problem, target)[0]:
        wide = "loads" not in dict(candidate.parameters)
        assert (family.refuse(replace(problem, padding=0), candidate, target) is None) is not wide
        assert (family.refuse(replace(problem, padding=8), candidate, target) is None) is wide


def test_odd_channels_that_may_not_be_padded_are_left_to_other_families() -> None:
    found = space(conv(47), of("never"))
    assert {each.family for each in found.alternatives} == {"portable"}
    ((subject, action, reason),) = said(found)
    assert (subject, action) == ("y", "left channels as they are")
    assert reason == f"policy.padding.mode is never: 0 of {legal(47)[8]} kernels of 'cutlass' are left"
    (reason,) = {each.reason for each in found.refusals if each.family == "cutlass"}
    assert reason == ("no legal candidate: copies the input to 48 channels, and the recipe wants nothing padded")


@pytest.mark.parametrize("channels", [3, 48, 64])
@pytest.mark.parametrize("mode", ["always", "never"])
def test_where_it_changes_nothing_problems_are_what_they_are_without_it(channels: int, mode: str) -> None:
    """Whole loads, and an image's channels, which are gathered from rows of windows: what was measured stays true."""
    found, auto = space(conv(channels), of(mode)), space(conv(channels), of())
    assert said(found) == []
    assert [choice.problem.digest for choice in found.choices] == [choice.problem.digest for choice in auto.choices]


@pytest.mark.parametrize("mode", ["always", "never"])
def test_on_the_host_nothing_is_padded(mode: str) -> None:
    found, auto = space(conv(46), of(mode), "host", "fp32"), space(conv(46), of(), "host", "fp32")
    assert (found.alternatives, found.choices) == (auto.alternatives, auto.choices)


def test_a_target_that_pads_nothing_says_so_where_it_is_wanted() -> None:
    target = target_named("host")
    said = {
        mode: [
            (each.subject, each.action, each.reason)
            for each in plan_engine(
                [graph(conv(46))], of(mode), TargetSpec("host", "fp32"), target, load(target)
            ).plan.decisions
            if each.stage == "pad-channels"
        ]
        for mode in ("auto", "never", "always")
    }
    assert said == {
        "auto": [], "never": [],
        "always": [
            ("batch 32", "declined", "policy.padding.mode is always, but kernels of 'host' read fp32 as it is"),
        ],
    }  # fmt: skip


def test_layers_are_limited_by_themselves() -> None:
    engine = planned(TWO, of("auto", 8, z="never", nowhere="always"))
    left, every = legal(46)[2], sum(legal(46).values())
    text = {step.name: describe_problem(step.problem) for step in engine.plan.plans[0].steps}
    assert (text["y"].endswith("channels_last"), text["z"].endswith("channels_last unpadded")) == (True, True)
    assert [(d.subject, d.action, d.reason) for d in engine.plan.decisions if d.stage == "padding"] == [
        ("layers[0]", "set padding never", "'z' matches 1 node"),
        ("layers[1]", "declined", "'nowhere' matches no node of the optimised graph"),
        (
            "z", "left channels as they are",
            f"layers['z'].padding is never: {left} of {every} kernels of 'cutlass' are left",
        ),
    ]  # fmt: skip


def test_kernels_are_called_by_what_they_compute() -> None:
    target = target_named("h200")
    (family,) = (each for each in load(target) if each.name == "cutlass")
    (choice,) = (each for each in space(conv(46), of("never")).choices if each.family == "cutlass")
    units = family.units([(choice.problem, candidate) for candidate in choice.candidates], target)
    sizes = [dict(candidate.parameters) for candidate in choice.candidates]
    assert {unit.label for unit in units} == {
        f"conv tile {each['m']}x{each['n']}x{each['k']} in {each['stages']} stages, 2 elements a load | relu"
        for each in sizes
    }
    assert len(units) == len(sizes) > 1


def test_a_problem_without_a_wish_has_the_digest_that_it_had_before_there_were_any() -> None:
    (problem,) = {c.problem for c in space(conv(46), of()).choices if c.family == "cutlass"}
    assert "padding" not in canonical_json(problem).replace("pads_begin", "").replace("pads_end", "")
    for padding in (None, 0, 8):
        each = replace(problem, padding=padding)
        assert decode(KernelProblem, encode(each)) == each
    assert len({replace(problem, padding=padding).digest for padding in (None, 0, 2, 8)}) == 4
