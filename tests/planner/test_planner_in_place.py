"""Concatenations and slices that copy nothing: what lies within what, and that no kernel notices."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from drawn_concatenations import concatenations
from hypothesis import given, settings
from hypothesis import strategies as st
from in_place_plans import HOST, LAST_IO, PITCHING, ROW_IO, STORING, Pitching, Storing, kernels, places, planned, said
from planner_checks import graph

from bolt_build.families.base import Family
from bolt_build.graph.ir import Graph
from bolt_build.planner import in_place
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.schema.recipe import IoSpec


def test_the_inputs_of_a_concatenation_are_written_where_its_output_lies() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[1,4,3,4]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %y = softmax(%c) axis=1 // "y"
        }""")
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "b: activation", "c: view", "y: softmax"]
    assert places(plan) == {"a": "arena 0-192", "b": "arena 192-384", "c": "arena 0-384", "y": "output 0-384"}
    assert said(engine) == [("batch 1: c", "copies nothing", "its 2 inputs are written where it lies")]


def test_also_in_the_callers_buffer() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[3,4]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %y = concat(%a, %b) axis=0 // "y"
        }""")
    )
    assert places(engine.plan.plans[0]) == {"a": "output 0-48", "b": "output 48-96", "y": "output 0-96"}


def test_concatenations_of_concatenations_lie_within_each_other() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[1,4,2,2]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %d = neg(%c) // "d"
          %e = concat(%d, %c) axis=1 // "e"
          %y = softmax(%e) axis=1 // "y"
        }""")
    )
    found = places(engine.plan.plans[0])
    assert [found[name] for name in "abcde"] == [
        "arena 128-192", "arena 192-256", "arena 128-256", "arena 0-128", "arena 0-256",
    ]  # fmt: skip


DECLINED = {
    "a graph input": (
        "(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %c = concat(%x, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("copies 1 of 2 inputs", "'x': a graph input"),
    ),
    "a graph output": (
        "(%x: f32[4,4]) -> (%y, %a) {\n %a = relu(%x)\n %c = concat(%a, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("declined", "'a': a graph output"),
    ),
    "a constant": (
        ("(%x: f32[4,4]) -> (%y) {\n const %k: f32[2,4] #\n %a = relu(%x)\n"
        ' %c = concat(%a, %k) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'k': a constant"),
    ),
    "twice in one": (
        "(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %c = concat(%a, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("copies 1 of 2 inputs", "'a': already a part of another concatenation, or of this one"),
    ),
    "a slice of something else": (
        ("(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %b = softmax(%x) axis=0\n"
            " %s = slice(%b) begin=[1,0] count=[2,4] step=[1,1]\n"
        ' %c = concat(%a, %s) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'s': itself a part of another tensor"),
    ),
    "misaligned": (
        ("(%x: f32[3,3]) -> (%y) {\n %a = relu(%x)\n %b = tanh(%x)\n"
        ' %c = concat(%a, %b) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'b': would begin at byte 36, which is no multiple of 16"),
    ),
    "in pieces": (
        ("(%x: f32[3,4]) -> (%y) {\n %a = relu(%x)\n %b = tanh(%x)\n"
        ' %c = concat(%a, %b) axis=1 // "c"\n %y = softmax(%c) axis=1'),
        ("declined", "'a': stored in dense rows by 'portable'; 'b': stored in dense rows by 'onednn'"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DECLINED)
def test_what_cannot_be_written_in_place_is_copied(case: str) -> None:
    text, expected = DECLINED[case]
    assert said(planned(graph(f"graph g batch=1 {text}\n}}"))) == [("batch 1: c", *expected)]


BRANCHES = """
    graph g batch=2 (%x: f32[2,8,3,3]) -> (%y) {{
      %a = relu(%x) // "a"
      %b = {b} // "b"
      %c = concat(%a, %b) axis=1 // "c"
      {more}
      %y = softmax({of}) axis=1 // "y"
    }}"""


def branches(b: str = "tanh(%x)", more: str = "", of: str = "%c", family: Family = PITCHING) -> PlannedEngine:
    """Two branches that meet, channels last, by kernels that can store rows apart."""
    return planned(graph(BRANCHES.format(b=b, more=more, of=of)), io=LAST_IO, families=(family,))


def test_channels_that_lie_innermost_are_stored_between_each_other() -> None:
    engine = branches()
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "b: activation", "c: view", "y: softmax"]
    parts = {t.value: t for step in plan.steps for t in step.outputs}
    assert [(parts[name].location.at, parts[name].pitch, parts[name].reach) for name in "abc"] == [
        (0, 16, 1120), (32, 16, 1120), (0, 0, 1152),
    ]  # fmt: skip
    assert (parts["a"].onnx, parts["c"].onnx) == (None, "c")
    assert said(engine) == [("batch 2: c", "copies nothing", "its 2 inputs are written where it lies")]


def test_rows_lie_apart_no_further_than_kernels_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they store is smaller than what it becomes a part of, so that their own limits do not say it."""
    monkeypatch.setattr(in_place, "FARTHEST", 1152)
    too_far = "'a', 'b': rows lie apart over 1152 bytes or more, beyond the reach of kernels"
    assert said(branches()) == [("batch 2: c", "declined", too_far)]
    monkeypatch.setattr(in_place, "FARTHEST", 1153)
    assert said(branches())[0][1] == "copies nothing"


@pytest.mark.parametrize(
    ("b", "more", "last", "expected"),
    [
        (
            "tanh(%x)", "%d = neg(%a)\n %m = neg(%c)\n %e = concat(%m, %d) axis=1", "%e",
            ("copies 1 of 2 inputs", "'a': read in dense rows by 'd'"),
        ),
        (
            "neg(%a)", "%d = tanh(%a)\n %e = concat(%c, %d) axis=1", "%e",
            ("copies 1 of 3 inputs", "'a': read in dense rows by 'b' and 1 other steps"),
        ),
        ("neg(%x)", "%e = concat(%c, %a) axis=1", "%e", ("copies 2 of 3 inputs", "'a': read twice by this")),
        (
            "slice(%x) begin=[0,0,0,0] count=[2,3,3,3] step=[1,1,1,1]", "", "%c",
            ("declined", "'a', 'b': a part of rows of 44 bytes, which is no multiple of 16"),
        ),
    ],
)  # fmt: skip
def test_rows_that_must_be_dense_are_copied(b: str, more: str, last: str, expected: tuple[str, str]) -> None:
    concats = [found for found in said(branches(b, more, last, STORING)) if found[0] in ("batch 2: c", "batch 2: e")]
    assert concats[0][1:] == expected


FLAT = """
    graph g batch=2 (%x: f32[2,8,3,3]) -> (%y, %d) {
      %a = relu(%x) // "a"
      %b = tanh(%a) // "b"
      %c = concat(%a, %b) axis=1 // "c"
      %d = tanh(%c) // "d"
      %e = slice(%d) begin=[0,0,0,0] count=[2,4,3,3] step=[1,1,1,1] // "e"
      %f = concat(%a, %b, %e) axis=1 // "f"
      %y = softmax(%f) axis=1 // "y"
    }"""
NESTED = FLAT.replace("concat(%a, %b, %e)", "concat(%c, %e)")


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_a_dense_block_is_one_buffer_that_grows(text: str) -> None:
    """Each concatenation extends the one before, whether it names all of its inputs or that one; those who read what
    was there before read the first channels of each row."""
    engine = planned(graph(text), io=LAST_IO, families=(Pitching(),))
    (plan,) = engine.plan.plans
    assert [step.name for step in plan.steps if step.view] == ["c", "f"]
    lies = {t.value: (t.location.at, t.pitch) for step in plan.steps for t in step.outputs}
    begin = lies["f"][0]
    assert {name: (lies[name][0] - begin, lies[name][1]) for name in "abcef"} == {
        "a": (0, 20), "b": (32, 20), "c": (0, 20), "e": (64, 20), "f": (0, 0),
    }  # fmt: skip
    reads = {step.name: [t.pitch for t in step.inputs] for step in plan.steps}
    assert (reads["b"], reads["d"], reads["y"]) == ([20], [20], [0])
    assert [action for _, action, _ in said(engine)] == ["copies nothing", "copied", "copies nothing"]


def test_a_concatenation_that_is_read_in_dense_rows_is_made_beside_the_buffer_that_grows() -> None:
    engine = planned(graph(FLAT), io=LAST_IO, families=(Storing(),))
    (plan,) = engine.plan.plans
    assert [step.name for step in plan.steps if step.view] == []
    assert said(engine) == [
        ("batch 2: c", "declined", "'a': read in dense rows by 'b' and 1 other steps; 'b': read in dense rows by 'f'"),
        ("batch 2: e", "copied", "written where a concatenation lies"),
        (
            "batch 2: f",
            "copies 2 of 3 inputs",
            "'a': read in dense rows by 'b' and 1 other steps; 'b': read in dense rows by 'c'",
        ),
    ]


@pytest.mark.parametrize("families", [HOST, (Pitching(),)])
def test_rows_of_another_length_than_the_concatenation_s_are_copied(families: Sequence[Family]) -> None:
    """With one channel the same bytes are both layouts. `s` is stored in rows of one channel; read in rows of two
    pixels it would be a part of each row of `y`."""
    engine = planned(
        graph("""
    graph g batch=1 (%x: f32[1,2,1,2]) -> (%y) {
      %a = concat(%x, %x) axis=0 // "a"
      %s = slice(%a) begin=[0,0,0,0] count=[2,1,1,2] step=[1,1,1,1] // "s"
      %y = concat(%s, %s) axis=3 // "y"
    }"""),
        io=LAST_IO,
        families=families,
    )
    assert ("batch 1: y", "declined", "'s': stored as rows of 1 elements by 's'") in said(engine)


FAMILIES: tuple[Sequence[Family], ...] = HOST, (Pitching(),), (Storing(),)


@settings(max_examples=100, deadline=None)
@given(concatenations(), st.sampled_from([1, 3]), st.sampled_from([ROW_IO, LAST_IO]), st.sampled_from(FAMILIES))
def test_whatever_lies_within_what_values_stay_right(
    of: Graph, queues: int, io: IoSpec, families: Sequence[Family]
) -> None:
    planned(of, queues, io, families)
