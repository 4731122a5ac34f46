"""Gathers of one number along the first axis, and of everything in order."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.tidy.ordered_gathers import RESHAPE_GATHERS
from bolt_build.planner.passes.tidy.slice_gathers import SLICE_GATHERS

GATHER = """
    graph g batch=2 (%x: f32[3,2,4]) -> (%y) {{
      const %i: {index}
      %y = gather(%x, %i) axis={axis} // "y"
    }}"""


@pytest.mark.parametrize(
    ("index", "begin", "shape"),
    [("i64[] {1}", 1, "[2,4]"), ("i64[] {-1}", 2, "[2,4]"), ("i32[1] {0}", 0, "[1,2,4]")],
)
def test_one_number_takes_a_slice(index: str, begin: int, shape: str) -> None:
    result = run(SLICE_GATHERS, graph(GATHER.format(index=index, axis=0)))
    assert body(result.graph) == (
        f"%'y.taken = slice(%x) begin=[{begin},0,0] count=[1,2,4] step=[1,1,1]\n"
        f'%y = reshape(%\'y.taken) shape={shape}  // "y"'
    )
    assert said(result) == [("y", "made a slice", "'i' is one number")]


CLIPS = """
    graph g batch=2 (%x: f32[6,4,5,5]) -> (%y) {{
      const %i: {index}
      %c = reshape(%x) shape=[{clips},{frames},4,5,5] // "c"
      %y = {how} // "y"
    }}"""


@pytest.mark.parametrize(
    ("how", "index", "begin"),
    [
        ("gather(%c, %i) axis=1", "i64[] {2}", 2),
        ("gather(%c, %i) axis=1", "i64[] {-2}", 1),
        ("gather(%c, %i) axis=1", "i64[1] {0}", 0),
        ("slice(%c) begin=[0,2,0,0,0] count=[2,1,4,5,5] step=[1,1,1,1,1]", "i64[] {0}", 2),
    ],
)
def test_a_frame_of_each_clip_is_a_slice_of_the_batch(how: str, index: str, begin: int) -> None:
    before = graph(CLIPS.format(how=how, index=index, clips=2, frames=3))
    result = run(SLICE_GATHERS, before)
    slices = [node.op for node in result.graph.nodes if isinstance(node.op, Slice)]
    assert slices == [Slice((begin, 0, 0, 0), (2, 4, 5, 5), (3, 1, 1, 1))]
    assert said(result) == [("y", "made a slice", "takes one of 3 images that 'x' has")]
    x = {"x": np.arange(600, dtype=np.float32).reshape(6, 4, 5, 5)}
    assert np.array_equal(evaluate(before, x)["y"], evaluate(result.graph, x)["y"])


@pytest.mark.parametrize(
    ("how", "index"),
    [
        ("gather(%c, %i) axis=1", "i64[2] {0, 2}"),
        ("gather(%c, %i) axis=2", "i64[] {1}"),
        ("slice(%c) begin=[0,1,0,0,0] count=[2,1,3,5,5] step=[1,1,1,1,1]", "i64[] {0}"),
    ],
)
def test_several_frames_and_parts_of_one_stay(how: str, index: str) -> None:
    before = graph(CLIPS.format(how=how, index=index, clips=2, frames=3))
    assert run(SLICE_GATHERS, before).graph == before


@pytest.mark.parametrize(
    "how", ["gather(%x, %rows) axis=0", "gather_nd(%x, %each) batch_dims=0", "gather_nd(%x, %pairs) batch_dims=0"]
)
def test_everything_in_order_is_a_reshape(how: str) -> None:
    result = run(
        RESHAPE_GATHERS,
        graph(f"""
        graph g batch=2 (%x: f32[2,2]) -> (%y) {{
          const %rows: i64[1,2] {{0, 1}}
          const %each: i64[1,2,1] {{0, 1}}
          const %pairs: i64[2,2,2] {{0, 0, 0, 1, 1, 0, 1, 1}}
          %y = {how}
        }}"""),
    )
    assert body(result.graph).startswith("%y = reshape(%x)")


@pytest.mark.parametrize(("index", "axis"), [("i64[2] {0, 2}", 0), ("i64[] {1}", 1)])
def test_other_gathers_stay(index: str, axis: int) -> None:
    before = graph(GATHER.format(index=index, axis=axis))
    assert run(SLICE_GATHERS, before).graph == before


def test_an_index_that_is_data_stays() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[3,2,4], %i: i64[]) -> (%y) {
          %y = gather(%x, %i) axis=0 // "y"
        }""")
    assert SLICE_GATHERS.run(before, POLICY).graph == before
