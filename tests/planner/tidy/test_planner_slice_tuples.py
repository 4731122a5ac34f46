"""Slices along the first axis that tuples of one number name."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_op
from bolt_build.planner.passes.tidy.slice_tuples import SLICE_TUPLES


def gathered(indices: str, shape: str, batch_dims: int = 0) -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[6,2,3]) -> (%y) {{
          const %i: i64[{shape}] {{{indices}}}
          %y = gather_nd(%x, %i) batch_dims={batch_dims} // "y"
        }}""")


@pytest.mark.parametrize(
    ("indices", "shape", "begin", "count", "step"),
    [
        ("-1", "1,1", 5, 1, 1), ("-2", "1", 4, 1, 1), ("2,3,4", "3,1", 2, 3, 1), ("1,3,-1", "3,1", 1, 3, 2),
        ("0,1,2,3", "2,2,1", 0, 4, 1),
    ],
)  # fmt: skip
def test_a_run_of_slices_is_one(indices: str, shape: str, begin: int, count: int, step: int) -> None:
    result = run(SLICE_TUPLES, gathered(indices, shape))
    slice_, back = result.graph.nodes
    assert format_op(slice_.op) == ("slice", f" begin=[{begin},0,0] count=[{count},2,3] step=[{step},1,1]")
    lead = shape.split(",")[:-1]
    assert format_op(back.op) == ("reshape", f" shape=[{','.join((*lead, '2', '3'))}]")
    assert said(result) == [("y", "made a slice", f"'i' names {count} of the first axis")]


@pytest.mark.parametrize(
    ("indices", "shape"),
    [("3,2", "2,1"), ("0,0", "2,1"), ("0,1,3", "3,1"), ("0,1", "1,2")],
)
def test_other_indices_stay(indices: str, shape: str) -> None:
    before = gathered(indices, shape)
    assert run(SLICE_TUPLES, before).graph == before
