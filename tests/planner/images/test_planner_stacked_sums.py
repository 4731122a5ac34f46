"""Sums over an axis that images are stacked along become sums of the images."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.images.stacked_sums import ADD_STACKED


def test_branches_and_their_gates_are_added_up() -> None:
    before = graph("""
        graph g batch=2 (%a: f32[2,4,3,3], %b: f32[2,4,3,3], %g: f32[2,2,4,1,1]) -> (%s, %y) {
          %a5 = reshape(%a) shape=[2,1,4,3,3] // "a5"
          %b5 = reshape(%b) shape=[2,1,4,3,3] // "b5"
          %x = concat(%a5, %b5) axis=1 // "x"
          %s = reduce(%x) mode=sum axes=[1] keepdims=false // "s"
          %m = mul(%x, %g) // "m"
          %y = reduce(%m) mode=sum axes=[1] keepdims=false // "y"
        }""")
    result = run(ADD_STACKED, before)
    assert [node.op.kind for node in result.graph.nodes] == [
        "binary", "slice", "reshape", "binary", "slice", "reshape", "binary", "binary",
    ]  # fmt: skip
    assert body(result.graph).splitlines()[0] == '%s = add(%a, %b)  // "s"'
    assert said(result) == [
        ("s", "added up", "2 tensors of a stack, one by one"),
        ("y", "added up", "2 tensors of a stack, one by one"),
    ]


def test_runs_of_channels_are_added_up() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,12,3,3]) -> (%y) {
          %x5 = reshape(%x) shape=[2,3,4,3,3] // "x5"
          %y = reduce(%x5) mode=sum axes=[1] keepdims=false // "y"
        }""")
    result = run(ADD_STACKED, before)
    assert [node.op.kind for node in result.graph.nodes] == ["slice", "slice", "slice", "binary", "binary"]


def test_an_image_that_all_gates_of_a_stack_are_for_is_read_by_each_product() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,3,3], %g: f32[2,2,4,1,1]) -> (%y) {
          %x5 = reshape(%x) shape=[2,1,4,3,3] // "x5"
          %m = mul(%x5, %g) // "m"
          %y = reduce(%m) mode=sum axes=[1] keepdims=false // "y"
        }""")
    after = run(ADD_STACKED, before).graph
    assert [node.inputs[0] for node in after.nodes if node.op == Binary("mul")] == ["x", "x"]


@pytest.mark.parametrize("axis", [0, 1, 2, 4])
@pytest.mark.parametrize(
    ("mode", "functions"), [("mean", ["add", "mul"]), ("max", ["max"]), ("min", ["min"]), ("sum", ["add"])]
)
def test_means_and_extremes_of_a_stack_are_those_of_its_tensors(axis: int, mode: str, functions: list[str]) -> None:
    """As branches meet in FractalNet: torch.stack puts them behind each other along a new axis."""
    shape = [2, 4, 3, 3]
    shape.insert(axis, 1)
    stacked = str(shape).replace(" ", "")
    before = graph(f"""
        graph g batch=2 (%a: f32[2,4,3,3], %b: f32[2,4,3,3]) -> (%y) {{
          %p = reshape(%a) shape={stacked} // "p"
          %q = reshape(%b) shape={stacked} // "q"
          %x = concat(%p, %q) axis={axis} // "x"
          %m = reduce(%x) mode={mode} axes=[{axis}] keepdims=false // "m"
          %y = relu(%m) // "y"
        }}""")
    result = run(ADD_STACKED, before)
    assert [node.op for node in result.graph.nodes[:-1]] == [Binary(function) for function in functions]
    same_values(before, result.graph)
    assert said(result) == [("m", "added up", "2 tensors of a stack, one by one")]


CHANNELS = '%x5 = reshape(%x) shape=[2,3,4,3,3] // "x5"\n'


@pytest.mark.parametrize("how", ["mode=prod axes=[1]", "mode=sum axes=[2]"])
def test_what_is_no_sum_over_a_stack_is_none_of_it(how: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,12,3,3]) -> (%y) {{
          {CHANNELS}
          %y = reduce(%x5) {how} keepdims=false // "y"
        }}""")
    result = run(ADD_STACKED, before)
    assert (result.graph, said(result)) == (before, [])


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (CHANNELS + '%y = reduce(%x5) mode=sum axes=[1] keepdims=true // "y"',
         "its sum keeps the axis of the stack"),
        ('%x5 = reshape(%x) shape=[2,6,2,3,3] // "x5"\n %y = reduce(%x5) mode=sum axes=[1] keepdims=false // "y"',
         "a stack of 6 tensors; at most 4 are added up one by one"),
        (CHANNELS + '%t = relu(%x5) // "t"\n %y = reduce(%t) mode=sum axes=[1] keepdims=false // "y"',
         "'t' is no stack of images, or of runs of channels"),
        ('%x5 = reshape(%x) shape=[2,3,2,6,3] // "x5"\n %y = reduce(%x5) mode=sum axes=[1] keepdims=false // "y"',
         "'x5' is no stack of images, or of runs of channels"),
    ],
)  # fmt: skip
def test_other_sums_stay_and_say_why(lines: str, reason: str) -> None:
    before = graph(f"graph g batch=2 (%x: f32[2,12,3,3]) -> (%y) {{\n{lines}\n}}")
    result = run(ADD_STACKED, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", reason)]


def test_a_product_that_others_read_is_not_computed_twice() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,3], %g: f32[2,2,4,1,1]) -> (%y, %z) {
          %x5 = reshape(%x) shape=[2,2,4,3,3] // "x5"
          %m = mul(%x5, %g) // "m"
          %y = reduce(%m) mode=sum axes=[1] keepdims=false // "y"
          %z = relu(%m) // "z"
        }""")
    result = run(ADD_STACKED, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "'m' is read by 2 nodes")]
