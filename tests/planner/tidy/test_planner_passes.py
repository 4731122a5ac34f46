"""Passes as text: IR in, IR out, and what they say of it. Every run also compares all values (planner_checks.run)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from planner_checks import body, compare, graph, random_inputs, run, said, same_values
from planner_fakes import POLICY
from random_graphs import random_model

from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.tidy.constants import FOLD_CONSTANTS
from bolt_build.planner.passes.tidy.copies import REMOVE_COPIES
from bolt_build.planner.passes.tidy.dead import REMOVE_DEAD
from bolt_build.planner.passes.tidy.duplicates import MERGE_DUPLICATES
from bolt_build.planner.passes.tidy.moves import MERGE_MOVES
from bolt_build.planner.pipeline import optimize

# --- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("identity(%a)", "an identity"),
        ("reshape(%a) shape=[2,3,4]", "a reshape to the same shape"),
        ("transpose(%a) perm=[0,1,2]", "a transpose that keeps the order"),
        ("slice(%a) begin=[0,0,0] count=[2,3,4] step=[1,1,1]", "a slice of everything"),
        ("pad(%a) begin=[0,0,0] end=[0,0,0]", "a pad by nothing"),
        ("cast(%a) to=f32", "a cast to the same type"),
        ("pool(%a) mode=average kernel=[1]", "a pooling of single pixels"),
        ("concat(%a) axis=1", "a concatenation of one tensor"),
        ("clip(%a) alpha=-inf beta=inf", "a clip without bounds"),
    ],
)
def test_a_node_that_changes_nothing_goes_and_its_readers_read_its_input(node: str, why: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3,4]) -> (%y) {{
          %a = relu(%x) // "a"
          %b = {node} // "b"
          %y = tanh(%b) // "y"
        }}""")
    result = run(REMOVE_COPIES, before)
    assert body(result.graph) == '%a = relu(%x)  // "a"\n%y = tanh(%a)  // "y"'
    assert said(result) == [("b", "removed", why)]


def test_a_reversed_slice_and_a_real_transpose_stay() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[3,3]) -> (%y) {
          %a = slice(%x) begin=[2,0] count=[3,3] step=[-1,1] // "a"
          %y = transpose(%a) perm=[1,0] // "y"
        }""")
    result = run(REMOVE_COPIES, before)
    assert result.graph == before
    assert said(result) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("div(%a, %one)", "div with 1"),
        ("mul(%one, %a)", "mul with 1"),
        ("add(%a, %zero)", "add with 0"),
        ("sub(%a, %zero)", "sub with 0"),
        ("pow(%a, %one)", "pow with 1"),
    ],
)
def test_arithmetic_that_changes_nothing_is_removed(line: str, why: str) -> None:
    """Diffusion models divide by a scale of one behind each block."""
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3]) -> (%y) {{
          const %one: f32[1] {{1}}
          const %zero: f32[] {{0}}
          %a = relu(%x) // "a"
          %b = {line} // "b"
          %y = tanh(%b) // "y"
        }}""")
    result = run(REMOVE_COPIES, before)
    assert body(result.graph).splitlines() == ['%a = relu(%x)  // "a"', '%y = tanh(%a)  // "y"']
    assert said(result) == [("b", "removed", why)]


@pytest.mark.parametrize(
    "line", ["sub(%zero, %a)", "div(%one, %a)", "mul(%a, %ones)", "mul(%a, %deep)", "mul(%a, %two)", "max(%a, %one)"]
)
def test_arithmetic_that_changes_something_stays(line: str) -> None:
    """Also with a vector of ones, which is a weight, and a number of more axes, which makes another shape."""
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3]) -> (%y) {{
          const %one: f32[1] {{1}}
          const %two: f32[1] {{2}}
          const %zero: f32[] {{0}}
          const %ones: f32[3] {{1, 1, 1}}
          const %deep: f32[1,1,1] {{1}}
          %a = exp(%x) // "a"
          %y = {line} // "y"
        }}""")
    assert run(REMOVE_COPIES, before).graph == before


def test_an_output_that_is_a_copy_gives_its_name_to_what_it_copied() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%a) // "b"
          %c = neg(%b) // "c"
          %y = identity(%b) // "y"
        }""")
    result = run(REMOVE_COPIES, before)
    assert body(result.graph).splitlines() == [
        '%a = relu(%x)  // "a"',
        '%y = tanh(%a)  // "b"',
        '%c = neg(%y)  // "c"',
    ]
    assert said(result) == [("y", "removed", "an identity")]


@pytest.mark.parametrize(
    ("outputs", "source", "obstacle"),
    [
        ("%y", "%x", "'y' is a graph output and 'x' is a graph input"),
        ("%y", "%c", "'y' is a graph output and 'c' is a constant"),
        ("%a, %y", "%a", "'y' and 'a' are both graph outputs"),
    ],
)
def test_an_output_that_nothing_can_write_directly_stays_a_copy(outputs: str, source: str, obstacle: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2]) -> ({outputs}) {{
          const %c: f32[2] {{1, 2}}
          %a = relu(%x) // "a"
          %y = identity({source}) // "y"
        }}""")
    result = run(REMOVE_COPIES, before)
    assert said(result) == [("y", "declined", f"an identity, but {obstacle}")]
    assert result.graph == before


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ("where(%no, %b, %a)", "%y = neg(%a)"),
        ("where(%yes, %a, %b)", "%y = neg(%a)"),
        ("where(%some, %a, %a)", "%y = neg(%a)"),
    ],
)
def test_a_choice_that_is_none_is_what_it_takes(choice: str, left: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,2]) -> (%y) {{
          const %no: bool[2,1] {{false, false}}
          const %yes: bool[1] {{true}}
          const %some: bool[2,1] {{true, false}}
          const %b: f32[] {{3}}
          %a = relu(%x)
          %c = {choice}
          %y = neg(%c)
        }}""")
    result = run(REMOVE_COPIES, before)
    assert body(result.graph).splitlines()[-1].startswith(left)
    assert [why for _, _, why in said(result)] == ["a choice whose condition is the same everywhere"]


@pytest.mark.parametrize("choice", ["where(%some, %a, %b)", "where(%no, %a, %b)"], ids=["both", "a number"])
def test_a_choice_of_both_or_of_what_must_be_repeated_stays(choice: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,2]) -> (%y) {{
          const %no: bool[2,1] {{false, false}}
          const %some: bool[2,1] {{true, false}}
          const %b: f32[] {{3}}
          %a = relu(%x)
          %c = {choice}
          %y = neg(%c)
        }}""")
    assert run(REMOVE_COPIES, before).graph is before


# --- constants, dead code, duplicates, moves ----------------------------------------------------------------------


def test_constants_fold_through_a_chain_and_keep_their_names() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,2]) -> (%y) {
          const %c: f32[4] {1, 2, 3, 4}
          const %d: f32[] {2}
          %a = mul(%c, %d) // "a"
          %b = reshape(%a) shape=[2,2] // "b"
          %y = add(%x, %b) // "y"
        }""")
    result = run(FOLD_CONSTANTS, before)
    assert body(result.graph) == '%y = add(%x, %b)  // "y"'
    np.testing.assert_array_equal(result.graph.constant("b"), [[2, 4], [6, 8]])
    why = "all of its inputs are constant"
    assert said(result) == [("a", "folded", why), ("b", "folded", why)]


def test_folding_that_would_bloat_the_weights_is_declined() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1024,1024]) -> (%y) {
          const %c: f32[1024,1] #
          const %d: f32[1,1024] #
          %a = add(%c, %d) // "a"
          %y = mul(%x, %a) // "y"
        }""")
    result = run(FOLD_CONSTANTS, before)
    assert said(result) == [("a", "declined", "folding would store 4194304 bytes in place of 8192")]


def test_dead_nodes_go_and_what_only_they_read_goes_too() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y) {
          %y = relu(%x) // "y"
          %a = tanh(%x) // "a"
          %b = neg(%a) // "b"
        }""")
    result = run(REMOVE_DEAD, before)
    assert body(result.graph) == '%y = relu(%x)  // "y"'
    assert said(result) == [("b", "removed", "nobody reads its output"), ("a", "removed", "nobody reads its output")]


def test_equal_nodes_become_one_also_with_their_sides_exchanged() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2], %z: f32[2]) -> (%y) {
          %a = add(%x, %z) // "a"
          %b = add(%z, %x) // "b"
          %c = sub(%x, %z) // "c"
          %d = sub(%z, %x) // "d"
          %e = mul(%a, %b) // "e"
          %f = mul(%c, %d) // "f"
          %y = add(%e, %f) // "y"
        }""")
    result = run(MERGE_DUPLICATES, before)
    assert "%e = mul(%a, %a)" in body(result.graph)
    assert "%f = mul(%c, %d)" in body(result.graph)
    assert said(result) == [("b", "merged", "computes the same as 'a'")]


def test_equal_contents_of_two_constants_do_not_make_nodes_equal() -> None:
    """The next weights that are loaded may tell them apart."""
    before = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y) {
          const %c: f32[2] {1, 2}
          const %d: f32[2] {1, 2}
          %a = add(%x, %c) // "a"
          %b = add(%x, %d) // "b"
          %y = mul(%a, %b) // "y"
        }""")
    result = run(MERGE_DUPLICATES, before)
    assert result.graph == before


def test_equal_outputs_stay_apart() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2]) -> (%a, %b) {
          %a = relu(%x) // "a"
          %b = relu(%x) // "b"
        }""")
    result = run(MERGE_DUPLICATES, before)
    assert said(result) == [("b", "declined", "computes the same as 'a', but 'b' and 'a' are both graph outputs")]


@pytest.mark.parametrize("keeps", ["true", "false"])
def test_a_reduction_that_keeps_its_axes_and_one_that_does_not_are_one(keeps: str) -> None:
    other, shape = ("false", "[2,4]") if keeps == "true" else ("true", "[2,1,4]")
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3,4]) -> (%a, %y) {{
          %a = reduce(%x) mode=mean axes=[1] keepdims={keeps} // "a"
          %b = reduce(%x) mode=mean axes=[1] keepdims={other} // "b"
          %c = reduce(%x) mode=max axes=[1] keepdims={keeps} // "c"
          %d = reshape(%c) shape={shape} // "d"
          %y = mul(%b, %d) // "y"
        }}""")
    result = run(MERGE_DUPLICATES, before)
    assert f'%b = reshape(%a) shape={shape}  // "b"' in body(result.graph)
    assert "%c = reduce(%x)" in body(result.graph)
    assert said(result) == [("b", "merged", "computes the same numbers as 'a'")]
    inputs = random_inputs(before, 0)
    compare({"y": evaluate(result.graph, inputs)["y"]}, evaluate(before, inputs), 1e-6)


def test_moves_of_moves_merge_and_what_undoes_itself_goes() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,3,4]) -> (%y, %z) {
          %a = reshape(%x) shape=[6,4] // "a"
          %y = reshape(%a) shape=[24] // "y"
          %b = transpose(%x) perm=[2,0,1] // "b"
          %c = transpose(%b) perm=[1,2,0] // "c"
          %z = relu(%c) // "z"
        }""")
    result = run(MERGE_MOVES, before)
    assert body(result.graph).splitlines()[0] == '%y = reshape(%x) shape=[24] @y  // "a", "y"'
    assert said(result) == [
        ("y", "merged", "a reshape of the reshape 'a'"),
        ("c", "merged", "a transpose of the transpose 'b'"),
    ]
    result = run(REMOVE_COPIES, result.graph)
    assert body(result.graph).splitlines()[1] == '%z = relu(%x)  // "z"'


def test_a_transpose_of_a_pooled_image_is_a_reshape() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,8,1,1]) -> (%y) {
          %a = transpose(%x) perm=[0,2,3,1] // "a"
          %y = relu(%a) // "y"
        }""")
    result = run(MERGE_MOVES, before)
    assert body(result.graph).splitlines()[0] == '%a = reshape(%x) shape=[2,1,1,8]  // "a"'
    assert said(result) == [("a", "made a reshape", "the transpose moves only extents of 1")]


# --- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_pipeline_keeps_every_surviving_value_of_random_models(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(random_model(seed), path)
    before = load_model(path).bind(2, ())
    after = optimize(before, POLICY).graph
    assert after.outputs == before.outputs
    same_values(before, after, seeds=(seed,), tolerance=1e-4)
    assert optimize(before, POLICY).graph == after
