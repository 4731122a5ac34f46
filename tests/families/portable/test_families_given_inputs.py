"""Moves of a model's inputs read them in the model's element type: what moves them converts them."""

from __future__ import annotations

import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.graph.ir import Graph, Layout
from bolt_build.targets import target_named

H200 = target_named("h200")


def read_as(given: Graph, node: str) -> set[tuple[DType, DType]]:
    """The types of input and output in which the portable family offers a node, rows in front."""
    (family,) = (each for each in load(H200) if each.name == "portable")
    (found,) = (each for each in given.nodes if each.name == node)
    alternatives, _ = family.propose(given, found, H200, DType.F16)
    problems = [step.problem for each in alternatives for step in each.steps]
    return {
        (problem.inputs[0].format.dtype, problem.outputs[0].format.dtype)
        for problem in problems
        if problem.inputs[0].format.layout is Layout.ROW
    }


PATCHES = """
    graph g batch=2 (%x: f32[2,3,32,32]) -> (%y) {
      %c = reshape(%x) shape=[2,3,2,16,2,16] // "cut"
      %y = transpose(%c) perm=[0,2,4,1,3,5] // "moved"
    }"""
BEHIND = """
    graph g batch=2 (%x: f32[2,3,32,32]) -> (%z) {
      %r = relu(%x) // "relu"
      %c = reshape(%r) shape=[2,3,2,16,2,16] // "cut"
      %y = transpose(%c) perm=[0,2,4,1,3,5] // "moved"
      %z = relu(%y) // "last"
    }"""


@pytest.mark.parametrize(
    ("text", "cut", "moved"),
    [
        (PATCHES, {(DType.F16, DType.F16), (DType.F32, DType.F32)}, (DType.F32, DType.F16)),
        (BEHIND, {(DType.F16, DType.F16)}, None),
    ],
    ids=["of an input", "of what was computed"],
)
def test_what_moves_an_input_converts_it(
    text: str, cut: set[tuple[DType, DType]], moved: tuple[DType, DType] | None
) -> None:
    given = graph(text)
    assert read_as(given, "cut") == cut
    found = read_as(given, "moved")
    assert (moved in found) is (moved is not None)
    assert (DType.F16, DType.F16) in found
