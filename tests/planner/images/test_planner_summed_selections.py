"""Selections that are added up one by one are a sum over their axes."""

from __future__ import annotations

from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.planner.passes.images.summed_selections import SUM_SELECTIONS


def pooled(rows: int = 2, columns: int = 3, last: str = "", reader: str = "") -> Graph:
    """As torch.export writes adaptive pooling of [2,3,5,rows,4,columns]; `last`: what replaces the last selection."""
    lines, terms = [], []
    for i in range(rows):
        for j in range(columns):
            lines += [f"%r{i}{j} = gather(%x, %i{i}) axis=3", f"%s{i}{j} = gather(%r{i}{j}, %i{j}) axis=4"]
            terms.append(f"%s{i}{j}")
    if last:
        lines[-1] = f"{terms[-1]} = {last}"
    total = terms[0]
    for index, term in enumerate(terms[1:]):
        name = "%y" if term is terms[-1] else f"%a{index}"
        lines.append(f'{name} = add({total}, {term}) // "{name[1:]}"')
        total = name
    constants = [f"const %i{i}: i64[] {{{i}}}" for i in range(max(rows, columns))]
    body = "\n          ".join([*constants, *lines, *([reader] if reader else [])])
    more = ", %z" if reader else ""
    return graph(f"""
        graph g batch=2 (%x: f32[2,3,5,{rows},4,{columns}]) -> (%y{more}) {{
          {body}
        }}""")


def test_windows_along_two_axes_are_one_sum() -> None:
    result = run(SUM_SELECTIONS, pooled())
    assert said(result) == [("y", "summed up over 2 axes", "it adds up 6 selections")]
    assert [node.op for node in result.graph.nodes] == [Reduce("sum", (3, 5), False)]


def test_what_is_added_twice_or_left_out_stays() -> None:
    result = run(SUM_SELECTIONS, pooled(last="gather(%r12, %i0) axis=4"))
    assert said(result)[0] == ("y", "declined", "its 6 terms are not all that 'x' has along [3, 5]")
    assert said(run(SUM_SELECTIONS, pooled(last="relu(%s00)"))) == []
    assert said(run(SUM_SELECTIONS, pooled(1, 3))) == []  # few


def test_a_part_of_the_sum_that_something_else_reads_is_no_selection() -> None:
    assert said(run(SUM_SELECTIONS, pooled(reader="%z = relu(%a2)"))) == [
        ("a2", "declined", "its 4 terms are not all that 'x' has along [3, 5]")
    ]
