"""A pooling whose window is the whole image is a reduction."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.images.whole_windows import REDUCE_WHOLE_WINDOWS


@pytest.mark.parametrize(("mode", "found"), [("average", "mean"), ("max", "max")])
@pytest.mark.parametrize(("image", "axes"), [("7,5", "2,3"), ("4,7,5", "2,3,4"), ("9", "2")])
def test_a_window_of_the_whole_image_is_a_reduction(mode: str, found: str, image: str, axes: str) -> None:
    result = run(REDUCE_WHOLE_WINDOWS, graph(f"""
        graph g batch=2 (%x: f32[2,3,{image}]) -> (%y) {{
          %y = pool(%x) mode={mode} kernel=[{image}] // "y"
        }}"""))  # fmt: skip
    assert said(result) == [("y", f"made a {found} of its pooling", "its window is the whole image")]
    assert body(result.graph) == f'%y = reduce(%x) mode={found} axes=[{axes}]  // "y"'


@pytest.mark.parametrize(("mode", "found"), [("average", "mean"), ("max", "max")])
def test_a_window_of_all_depths_is_a_reduction_and_a_pooling(mode: str, found: str) -> None:
    """As heads of networks for videos have it."""
    result = run(REDUCE_WHOLE_WINDOWS, graph(f"""
        graph g batch=2 (%x: f32[2,3,16,5,6]) -> (%y) {{
          %y = pool(%x) mode={mode} kernel=[16,2,3] // "y"
        }}"""))  # fmt: skip
    assert said(result) == [("y", f"made a {found} of a part of its pooling", "its window is all of axis 2")]
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds == ["reduce", "pool"]


@pytest.mark.parametrize("window", ["kernel=[6,4]", "kernel=[7,4]", "kernel=[7,4] pads_begin=[0,1] pads_end=[0,1]"])
def test_others_stay(window: str) -> None:
    result = run(REDUCE_WHOLE_WINDOWS, graph(f"""
        graph g batch=2 (%x: f32[2,3,7,5]) -> (%y) {{
          %y = pool(%x) mode=average {window} // "y"
        }}"""))  # fmt: skip
    assert said(result) == []


def test_windows_that_see_one_row_of_pixels_twice_stay() -> None:
    """One stands a row above the image, the other a row below it: the result has two rows."""
    before = graph("""
        graph g batch=2 (%x: f32[2,3,1,4]) -> (%y) {
          %y = pool(%x) mode=max kernel=[2,4] pads_begin=[1,0] pads_end=[1,0] // "y"
        }""")
    result = run(REDUCE_WHOLE_WINDOWS, before)
    assert result.graph == before
