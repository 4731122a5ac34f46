"""Slices that copy nothing: they are read where their input lies, and nothing notices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_place_plans import LAST_IO, PITCHING, Pitching, apart, kernels, places, planned, said
from planner_checks import graph

from bolt_build.families.base import Family
from bolt_build.planner.plan_engine import PlannedEngine

SLICES = """
    graph g batch=2 (%x: f32[2,24,3,3]) -> (%y, %z{out}) {{
      %a = relu(%x) // "a"
      %s = slice(%a) begin=[0,0,0,0] count=[2,{cut},3,3] step=[1,1,1,1] // "s"
      %t = slice(%a) begin=[0,{cut},0,0] count=[2,{rest},{rows},3] step=[1,1,1,1] // "t"
      %y = softmax(%s) axis=1 // "y"
      %z = {reads} // "z"
    }}"""


def sliced(family: Family = PITCHING, **parts: object) -> PlannedEngine:
    """Two slices of one tensor's channels, channels last."""
    text = SLICES.format(**{"cut": 8, "rest": 16, "rows": 3, "out": "", "reads": "tanh(%t)"} | parts)
    return planned(graph(text), io=LAST_IO, families=(family,))


def test_a_slice_of_channels_is_read_where_they_lie() -> None:
    engine = sliced()
    (plan,) = engine.plan.plans
    assert sorted(kernels(plan)) == ["a: activation", "s: view", "t: view", "y: softmax", "z: activation"]
    read = {step.name: [(t.location.at - plan.steps[0].outputs[0].location.at, t.pitch) for t in step.inputs]
            for step in plan.steps if step.name in "yz"}  # fmt: skip
    assert read == {"y": [(0, 24)], "z": [(32, 24)]}
    assert said(engine) == [
        ("batch 2: s", "copies nothing", "8 of 24 elements of each row are read where 'a' lies"),
        ("batch 2: t", "copies nothing", "16 of 24 elements of each row are read where 'a' lies"),
    ]


VIEWED = """
    graph g batch=2 (%x: f32[2,24,3,3]) -> (%y, %z) {{
      %a = relu(%x) // "a"
      %s = slice(%a) begin=[0,0,0,0] count=[2,8,3,3] step=[1,1,1,1] // "s"
      %t = slice(%a) begin=[0,8,0,0] count=[2,16,3,3] step=[1,1,1,1] // "t"
      %m = transpose(%s) perm=[0,2,3,1] // "m"
      %r = reshape(%m) shape={shape} // "r"
      %y = softmax(%r) axis=1 // "y"
      %z = tanh(%t) // "z"
    }}"""


def test_a_slice_is_read_where_it_lies_through_views_of_its_rows() -> None:
    """The columns of an image as a matrix, which attention reads."""
    engine = planned(graph(VIEWED.format(shape="[2,9,8]")), io=LAST_IO, families=(PITCHING,))
    (plan,) = engine.plan.plans
    assert {"m: view", "r: view", "s: view", "t: view"} <= set(kernels(plan))
    (read,) = [tensor for step in plan.steps if step.name == "y" for tensor in step.inputs]
    assert read.pitch == 24


def test_a_slice_is_copied_for_a_view_in_other_rows() -> None:
    engine = planned(graph(VIEWED.format(shape="[2,72]")), io=LAST_IO, families=(PITCHING,))
    assert said(engine)[0] == ("batch 2: s", "copied", "read in dense rows by 'r', another view")


class Dense(Pitching):
    """The same, but an activation reads dense rows."""

    step = staticmethod(
        lambda step: replace(apart(step), reads_apart=(0,) if step.problem.op.kind == "softmax" else ())
    )


@pytest.mark.parametrize(
    ("family", "parts", "reason"),
    [
        (Dense(), {}, "read in dense rows by 'z', activation of 'portable'"),
        (PITCHING, {"cut": 6, "rest": 18}, "begins at byte 24 of each row, which is no multiple of 16"),
        (PITCHING, {"rows": 2}, "takes no run of each row"),
        (PITCHING, {"out": ", %t"}, "a graph output"),
    ],
)
def test_a_slice_that_somebody_cannot_read_there_is_copied(
    family: Family, parts: dict[str, object], reason: str
) -> None:
    assert said(sliced(family, **parts))[1] == ("batch 2: t", "copied", reason)


def test_slices_lie_where_a_concatenation_has_their_input_and_side_by_side_are_one() -> None:
    """As in cross-stage blocks: the second half is computed with and concatenated behind both."""
    engine = planned(
        graph("""
        graph g batch=2 (%x: f32[2,16,3,3]) -> (%y) {
          %a = relu(%x) // "a"
          %s = slice(%a) begin=[0,8,0,0] count=[2,8,3,3] step=[1,1,1,1] // "s"
          %b = tanh(%s) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %y = softmax(%c) axis=1 // "y"
        }"""),
        io=LAST_IO,
        families=(PITCHING,),
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "s: view", "b: activation", "c: view", "y: softmax"]
    lies = {t.value: (t.location.at, t.pitch) for step in plan.steps for t in step.outputs}
    begin = lies["c"][0]
    assert {name: (lies[name][0] - begin, lies[name][1]) for name in "asb"} == {
        "a": (0, 24),
        "s": (32, 24),
        "b": (64, 24),
    }


def test_a_slice_of_whole_rows_is_a_view() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,8]) -> (%y, %z) {
          %a = relu(%x) // "a"
          %t = slice(%a) begin=[0,0] count=[2,8] step=[1,1] // "t"
          %b = slice(%a) begin=[2,0] count=[2,8] step=[1,1] // "b"
          %y = softmax(%t) axis=1 // "y"
          %z = tanh(%b) // "z"
        }""")
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "t: view", "b: view", "y: softmax", "z: activation"]
    found = places(plan)
    assert [found[name] for name in "atb"] == ["arena 0-128", "arena 0-64", "arena 64-128"]


@pytest.mark.parametrize(
    ("slice", "kind"),
    [
        ("begin=[1,0] count=[2,3] step=[1,1]", "slice"),  # begins at byte 12
        ("begin=[0,0] count=[4,2] step=[1,1]", "slice"),  # pieces of rows
        ("begin=[3,0] count=[4,3] step=[-1,1]", "slice"),
        ("begin=[0,0] count=[3,3] step=[1,1]", "view"),
    ],
)
def test_any_other_slice_is_copied(slice: str, kind: str) -> None:
    engine = planned(
        graph(f"""
        graph g batch=1 (%x: f32[4,3]) -> (%y) {{
          %a = softmax(%x) axis=0 // "a"
          %s = slice(%a) {slice} // "s"
          %y = softmax(%s) axis=1 // "y"
        }}""")
    )
    assert kernels(engine.plan.plans[0])[1] == f"s: {kind}"


def test_a_slice_of_the_callers_input_is_read_there() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          %s = slice(%x) begin=[1,0] count=[2,4] step=[1,1] // "s"
          %y = softmax(%s) axis=1 // "y"
        }""")
    )
    assert places(engine.plan.plans[0]) == {"s": "input 16-48", "y": "output 0-32"}


def test_an_output_that_is_a_slice_is_copied_to_the_caller() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          %a = softmax(%x) axis=0 // "a"
          %y = slice(%a) begin=[1,0] count=[2,4] step=[1,1] // "y"
        }""")
    )
    assert kernels(engine.plan.plans[0]) == ["a: softmax", "y: view", "y@output0: identity"]


ROWS = """
    graph g batch=1 (%x: f32[{images},6,24]) -> (%y, %z) {{
      %a = relu(%x) // "a"
      %s = slice(%a) begin=[0,{first},8] count=[{images},2,8] step=[1,1,1] // "s"
      %t = slice(%a) begin=[0,4,0] count=[{images},2,24] step=[1,1,1] // "t"
      %y = softmax(%s) axis=2 // "y"
      %z = tanh(%t) // "z"
    }}"""


def test_a_part_of_some_rows_is_read_where_they_lie() -> None:
    """As attention reads the patches of one image among others, columns of one product."""
    engine = planned(graph(ROWS.format(images=1, first=3)), families=(PITCHING,))
    (plan,) = engine.plan.plans
    assert sorted(kernels(plan)) == ["a: activation", "s: view", "t: view", "y: softmax", "z: activation"]
    read = {step.name: [(t.location.at - plan.steps[0].outputs[0].location.at, t.pitch) for t in step.inputs]
            for step in plan.steps if step.name in "yz"}  # fmt: skip
    assert read == {"y": [(4 * (3 * 24 + 8), 24)], "z": [(4 * 4 * 24, 0)]}


def test_parts_of_some_rows_of_several_images_are_copied() -> None:
    engine = planned(graph(ROWS.format(images=2, first=3)), families=(PITCHING,))
    assert [each for each in said(engine) if each[0].endswith(" s")] == [
        ("batch 1: s", "copied", "takes no run of each row")
    ]
