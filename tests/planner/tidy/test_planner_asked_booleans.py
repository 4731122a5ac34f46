"""Booleans that are asked whether any or all of them hold are no numbers between."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.tidy.asked_booleans import ASK_BOOLEANS


def lines(of: Graph) -> list[str]:
    return [line.split("  //")[0].split(" @")[0].strip() for line in body(of).splitlines()]


def asking(text: str) -> Graph:
    return graph(f"""
        graph g batch=2 (%m: bool[2,3,5]) -> (%y) {{
          const %zero: i64[] {{0}}
          const %one: i64[1] {{1}}
          %c = cast(%m) to=i64 // "c"
          {text}
        }}""")


@pytest.mark.parametrize(("mode", "what"), [("max", "any"), ("min", "all")])
def test_the_greatest_and_the_least_of_booleans_stay_booleans(mode: str, what: str) -> None:
    result = run(
        ASK_BOOLEANS,
        asking(f"""%r = reduce(%c) mode={mode} axes=[2] keepdims=false // "r"
        %b = cast(%r) to=bool // "b"
        %y = ask(%b) question=not // "y\""""),
    )
    assert said(result) == [("r", "asked", f"whether {what} of 'm' hold")]
    assert lines(result.graph) == [
        f"%b = reduce(%m) mode={mode} axes=[2] keepdims=false",
        "%y = ask(%b) question=not",
    ]


def test_a_number_that_is_wanted_is_one_of_what_is_left() -> None:
    result = run(ASK_BOOLEANS, asking('%y = reduce(%c) mode=max axes=[2] keepdims=false // "y"'))
    assert lines(result.graph) == [
        "%'y.asked = reduce(%m) mode=max axes=[2] keepdims=false",
        "%y = cast(%'y.asked) to=i64",
    ]


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("compare(%s, %zero) question=greater", True),
        ("compare(%zero, %s) question=less", True),
        ("compare(%s, %one) question=greater_equal", True),
        ("compare(%s, %zero) question=equal", False),
        ("compare(%one, %s) question=greater", False),
    ],
)
def test_a_count_is_asked_for_no_number(question: str, holds: bool) -> None:
    result = run(
        ASK_BOOLEANS,
        asking(f"""%s = reduce(%c) mode=sum axes=[1,2] // "s"
        %y = {question} // "y\""""),
    )
    found = lines(result.graph)
    assert "cast" not in body(result.graph)
    assert found[0].endswith("reduce(%m) mode=max axes=[1,2]")
    assert len(found) == (1 if holds else 2)
    mask = np.zeros((2, 3, 5), bool)
    mask[1, 2, 4] = True
    assert [bool(each) for each in ((mask.sum((1, 2)) > 0) == holds)] == [not holds, holds]


@pytest.mark.parametrize(
    "question",
    [
        "compare(%s, %one) question=greater",
        "compare(%s, %one) question=equal",
        "cast(%s) to=f32",
    ],
)
def test_other_questions_are_asked_of_the_count(question: str) -> None:
    before = asking(f"""%s = reduce(%c) mode=sum axes=[1,2] // "s"
        %y = {question} // "y\"""")
    result = run(ASK_BOOLEANS, before)
    assert said(result) == []
    assert lines(result.graph) == lines(before)


@pytest.mark.parametrize("question", ["nan", "inf", "positive_inf"])
@pytest.mark.parametrize(("given", "asked"), [("f32", "f64"), ("f16", "f32")])
def test_numbers_are_asked_in_their_own_type(question: str, given: str, asked: str) -> None:
    result = run(
        ASK_BOOLEANS,
        graph(f"""
        graph g batch=2 (%x: {given}[2,3]) -> (%y) {{
          %c = cast(%x) to={asked} // "c"
          %y = ask(%c) question={question} // "y"
        }}"""),
    )
    assert lines(result.graph) == [f"%y = ask(%x) question={question}"]
    assert said(result) == [("y", "asked", "'x' as it is, which 'c' makes wider")]


@pytest.mark.parametrize(("given", "asked"), [("f32", "f16"), ("f16", "bf16"), ("bf16", "f16")])
def test_numbers_that_become_infinite_in_a_type_are_asked_in_it(given: str, asked: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: {given}[2,3]) -> (%y) {{
          %c = cast(%x) to={asked} // "c"
          %y = ask(%c) question=inf // "y"
        }}""")
    assert run(ASK_BOOLEANS, before).graph is before
