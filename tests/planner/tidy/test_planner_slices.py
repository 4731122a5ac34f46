"""Slices and concatenations of each other, as text: IR in, IR out, and what is said of it."""

from __future__ import annotations

import pytest
from drawn_concatenations import concatenations
from hypothesis import given, settings
from planner_checks import body, graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy.slices import MERGE_SLICES
from bolt_build.planner.pipeline import optimize

MERGED = {
    "a slice of a slice": (
        """
          %a = slice(%x) begin=[1,5] count=[3,3] step=[1,-2] // "a"
          %y = slice(%a) begin=[0,1] count=[2,2] step=[2,1] // "y"
        """,
        '%y = slice(%x) begin=[1,3] count=[2,2] step=[2,-2] @y  // "a", "y"',
        [("y", "merged", "a slice of the slice 'a'")],
    ),
    "a part without elements": (
        """
          %a = slice(%x) begin=[0,0] count=[0,6] step=[1,1] // "a"
          %b = relu(%x) // "b"
          %y = concat(%a, %b, %x) axis=0 // "y"
        """,
        '%b = relu(%x)  // "b"\n%y = concat(%b, %x) axis=0 @y  // "a", "y"',
        [("y", "merged", "without 1 part of no elements")],
    ),
    "a slice of one part of a concatenation": (
        """
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %c = concat(%a, %b) axis=0 // "c"
          %y = slice(%c) begin=[5,0] count=[2,6] step=[1,1] // "y"
        """,
        '%b = tanh(%x)  // "b"\n%y = slice(%b) begin=[1,0] count=[2,6] step=[1,1] @y  // "c", "y"',
        [("y", "merged", "a slice of the concat 'c'")],
    ),
    "a slice of some of its parts": (
        """
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %d = neg(%x) // "d"
          %c = concat(%a, %b, %d) axis=1 // "c"
          %y = slice(%c) begin=[0,6] count=[4,12] step=[1,1] // "y"
        """,
        '%b = tanh(%x)  // "b"\n%d = neg(%x)  // "d"\n%y = concat(%b, %d) axis=1 @y  // "c", "y"',
        [("y", "merged", "a slice of the concat 'c'")],
    ),
    "a concatenation of a concatenation": (
        """
          %a = relu(%x) // "a"
          %c = concat(%x, %a) axis=1 // "c"
          %y = concat(%a, %c, %x) axis=1 // "y"
        """,
        '%a = relu(%x)  // "a"\n%y = concat(%a, %x, %a, %x) axis=1 @y  // "c", "y"',
        [("y", "merged", "a concatenation of the concat 'c'")],
    ),
    "slices that are neighbours": (
        """
          %a = slice(%x) begin=[0,1] count=[4,2] step=[1,1] // "a"
          %b = slice(%x) begin=[0,3] count=[4,2] step=[1,1] // "b"
          %y = concat(%b, %a, %b) axis=1 // "y"
        """,
        (
            '%\'a.joined = slice(%x) begin=[0,1] count=[4,4] step=[1,1] @a.joined  // "a"\n'
            '%b = slice(%x) begin=[0,3] count=[4,2] step=[1,1]  // "b"\n'
            '%y = concat(%b, %\'a.joined) axis=1 @y  // "a", "y"'
        ),
        [("y", "merged", "'a' and 'b' are neighbours in 'x'")],
    ),
    "slices that are everything together": (
        """
          %r = relu(%x) // "r"
          %a = slice(%r) begin=[0,0] count=[3,6] step=[1,1] // "a"
          %b = slice(%r) begin=[3,0] count=[1,6] step=[1,1] // "b"
          %y = concat(%a, %b) axis=0 // "y"
        """,
        '%r = relu(%x)  // "r"\n%y = concat(%r) axis=0 @y  // "a", "b", "y"',
        [("y", "merged", "'a' and 'b' are neighbours in 'r'")],
    ),
}


def of(text: str) -> Graph:
    return graph(f"graph g batch=1 (%x: f32[4,6]) -> (%y) {{\n{text}\n}}")


@pytest.mark.parametrize("case", MERGED)
def test_copies_of_copies_become_one(case: str) -> None:
    text, after, decisions = MERGED[case]
    result = run(MERGE_SLICES, of(text))
    assert body(result.graph) == after
    assert said(result) == decisions


STAYS = {
    "parts of several inputs": (
        """
          %a = relu(%x) // "a"
          %c = concat(%x, %a) axis=0 // "c"
          %y = slice(%c) begin=[3,0] count=[2,6] step=[1,1] // "y"
        """,
        [("y", "declined", "it takes of 2 of the 2 inputs of 'c'")],
    ),
    "a concatenation along another axis": (
        """
          %c = concat(%x, %x) axis=0 // "c"
          %y = concat(%c, %c) axis=1 // "y"
        """,
        [],
    ),
    "a concatenation that others read": (
        """
          %c = concat(%x, %x) axis=1 // "c"
          %d = relu(%c) // "d"
          %y = concat(%c, %d) axis=1 // "y"
        """,
        [],
    ),
    "slices with a gap between them": (
        """
          %a = slice(%x) begin=[0,0] count=[4,2] step=[1,1] // "a"
          %b = slice(%x) begin=[0,3] count=[4,2] step=[1,1] // "b"
          %y = concat(%a, %b) axis=1 // "y"
        """,
        [],
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_is_no_copy_of_a_copy_stays(case: str) -> None:
    text, decisions = STAYS[case]
    before = of(text)
    result = run(MERGE_SLICES, before)
    assert result.graph == before
    assert said(result) == decisions


def test_a_split_that_is_put_together_again_is_gone() -> None:
    text, _, _ = MERGED["slices that are everything together"]
    assert body(optimize(of(text), POLICY).graph) == '%y = relu(%x)  // "r"'


@settings(max_examples=100, deadline=None)
@given(concatenations())
def test_whatever_is_merged_values_stay(before: Graph) -> None:
    run(MERGE_SLICES, before)
    same_values(before, optimize(before, POLICY).graph)
