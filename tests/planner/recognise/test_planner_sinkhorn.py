"""Sinkhorn's iterations that an exporter unrolled become one operator."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.sinkhorn import Sinkhorn
from bolt_build.graph.text import format_graph, parse_graph
from bolt_build.planner.passes.recognise.sinkhorn import RECOGNISE_SINKHORN

WORDS = "recognised sinkhorn iterations"


def unrolled(
    *axes: int, shape: tuple[int, ...] = (2, 5, 4, 4), epsilon: str | None = "0.001", outs: str = "%y"
) -> Graph:
    """Positive numbers, divided by their sums over each of `axes` and an epsilon, the one behind the other."""
    lines, value = ['%p = exp(%x) // "p"', f"const %eps: f32[] {{{epsilon or 1}}}"], "p"
    for at, axis in enumerate(axes):
        lines.append(f'%s{at} = reduce(%{value}) mode=sum axes=[{axis}] // "s{at}"')
        if epsilon is not None:
            lines.append(f'%t{at} = add(%s{at}, %eps) // "t{at}"')
        lines.append(f'%d{at} = div(%{value}, %{"s" if epsilon is None else "t"}{at}) // "d{at}"')
        value = f"d{at}"
    lines.append(f'%y = neg(%{value}) // "y"')
    text = "\n          ".join(lines)
    return graph(f"""
        graph g batch=2 (%x: f32[{",".join(map(str, shape))}]) -> ({outs}) {{
          {text}
        }}""")


def made(after: Graph) -> list[str]:
    return [line.split("  //")[0].split(" @")[0] for line in body(after).splitlines()]


def test_turns_of_columns_and_rows_are_one_operator() -> None:
    result = run(RECOGNISE_SINKHORN, unrolled(2, 3, 2, 3, 2))
    assert made(result.graph) == ["%p = exp(%x)", "%d4 = sinkhorn(%p) turns=5 epsilon=0.001", "%y = neg(%d4)"]
    assert said(result) == [("d4", WORDS, "5 turns of columns and rows divided by their sums")]


def test_rows_may_begin_and_matrices_need_not_be_square() -> None:
    result = run(RECOGNISE_SINKHORN, unrolled(3, 2, 3, 2, shape=(2, 3, 7, 5)))
    assert made(result.graph)[1] == "%d3 = sinkhorn(%p) turns=4 rows_first=true epsilon=0.001"


def test_the_epsilon_may_be_missing_and_there_may_be_one_matrix() -> None:
    result = run(RECOGNISE_SINKHORN, unrolled(1, 0, 1, shape=(2, 6), epsilon=None))
    assert made(result.graph)[1] == "%d2 = sinkhorn(%p) turns=3 rows_first=true"


def test_two_turns_are_two_normalisations() -> None:
    before = unrolled(3, 2)
    assert run(RECOGNISE_SINKHORN, before).graph is before


def test_doubles_stay_divisions_and_sums() -> None:
    text = format_graph(unrolled(2, 3, 2, 3)).replace("f32", "f64")
    before = parse_graph(text)
    assert run(RECOGNISE_SINKHORN, before).graph is before


@pytest.mark.parametrize("axes", [(2, 2, 2, 2), (3, 1, 3, 1), (1, 0, 1, 0)], ids=["columns", "others", "batches"])
def test_what_takes_no_turns_stays(axes: tuple[int, ...]) -> None:
    before = unrolled(*axes)
    assert run(RECOGNISE_SINKHORN, before).graph is before


def test_large_matrices_stay_with_the_reason() -> None:
    before = unrolled(2, 3, 2, 3, shape=(2, 1, 9, 8))
    result = run(RECOGNISE_SINKHORN, before)
    assert result.graph is before
    words = "sinkhorn: matrices of 9x8 have more than the 64 elements that a thread keeps"
    assert said(result) == [("d3", "declined", words)]


def test_they_begin_behind_what_is_read_in_between() -> None:
    result = run(RECOGNISE_SINKHORN, unrolled(2, 3, 2, 3, 2, outs="%y, %d0"))
    assert "%d4 = sinkhorn(%d0) turns=4 rows_first=true epsilon=0.001" in made(result.graph)


def test_many_turns_leave_rows_and_columns_that_sum_to_one() -> None:
    given = np.exp(np.random.default_rng(0).normal(size=(3, 4, 4))).astype(np.float32)
    (found,) = Sinkhorn(40).evaluate([given])
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(found.sum(-2), 1, rtol=1e-4)
