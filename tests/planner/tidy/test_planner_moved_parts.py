"""Parts along one axis that lie behind each other along another, and attention of heads that were moved so."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.text import format_op
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.passes.tidy.moved_parts import MOVE_PARTS
from bolt_build.planner.pipeline import optimize


def cut(name: str, source: str, shape: tuple[int, int, int], axis: int, parts: int, along: int, first: int = 0) -> str:
    """Statements of a tensor cut in parts along one axis, which are put together along another."""
    extent = (shape[axis] - first) // parts
    count = [extent if each == axis else size for each, size in enumerate(shape)]
    lines = []
    for part in range(parts):
        begin = [first + part * extent if each == axis else 0 for each in range(3)]
        what = f"begin={begin} count={count} step=[1,1,1]".replace(" ,", ",").replace(", ", ",")
        lines.append(f'%{name}{part} = slice(%{source}) {what} // "{name}{part}"')
    inputs = ", ".join(f"%{name}{part}" for part in range(parts))
    return "\n".join([*lines, f'%{name} = concat({inputs}) axis={along} // "{name}"'])


def moved(*statements: str) -> Graph:
    return graph("\n".join(["graph g batch=2 (%x: f32[2,5,12]) -> (%y) {", *statements, "}"]))


@pytest.mark.parametrize(
    ("axis", "parts", "along", "first", "ops"),
    [
        (2, 3, 0, 0, ["reshape [2,5,3,4]", "transpose [2,0,1,3]", "reshape [6,5,4]"]),
        (2, 3, 1, 0, ["reshape [2,5,3,4]", "transpose [0,2,1,3]", "reshape [2,15,4]"]),
        (0, 2, 2, 0, ["reshape [2,1,5,12]", "transpose [1,2,0,3]", "reshape [1,5,24]"]),
        (2, 2, 0, 4, ["slice [2,5,8]", "reshape [2,5,2,4]", "transpose [2,0,1,3]", "reshape [4,5,4]"]),
    ],
)
def test_parts_are_moved_by_a_transpose(axis: int, parts: int, along: int, first: int, ops: list[str]) -> None:
    result = run(MOVE_PARTS, moved(cut("y", "x", (2, 5, 12), axis, parts, along, first)))
    texts = [format_op(node.op) for node in result.graph.nodes]
    assert [f"{kind} {text.split('count=' if kind == 'slice' else '=')[1].split()[0]}" for kind, text in texts] == ops
    assert said(result) == [("y", "made a transpose", f"{parts} parts along axis {axis} lie along {along}")]


@pytest.mark.parametrize(
    "statements",
    [
        cut("y", "x", (2, 5, 12), 2, 3, 2),
        cut("y", "x", (2, 5, 12), 2, 3, 0).replace("%y1, %y2", "%y2, %y1"),
        cut("y", "x", (2, 5, 12), 2, 3, 0).replace("begin=[0,0,8]", "begin=[0,0,6]"),
    ],
)
def test_other_parts_stay(statements: str) -> None:
    before = moved(statements)
    assert run(MOVE_PARTS, before).graph == before


def test_attention_reads_heads_in_front_of_the_batch_where_they_lie() -> None:
    """Heads are parts of rows behind each other along the batch, and go back behind the attention."""
    lines = [cut(name, source, (2, 5, 12), 2, 3, 0) for name, source in (("h", "q"), ("i", "k"), ("j", "v"))]
    before = graph("\n".join([
        "graph g batch=2 (%q: f32[2,5,12], %k: f32[2,5,12], %v: f32[2,5,12]) -> (%y) {", *lines,
        '%s = matmul(%h, %i) transpose_b=true // "s"', '%p = softmax(%s) axis=2 // "p"', '%o = matmul(%p, %j) // "o"',
        cut("y", "o", (6, 5, 4), 0, 3, 2), "}",
    ]))  # fmt: skip
    found = run(RECOGNISE_ATTENTION, run(MOVE_PARTS, before).graph)
    after = optimize(found.graph, POLICY).graph
    (node,) = after.nodes
    assert isinstance(node.op, Attention)
    assert (node.op.heads, node.inputs) == (3, ("q", "k", "v"))
    assert not any(isinstance(each.op, Transpose) for each in after.nodes)
