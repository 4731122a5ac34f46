"""Convolutions over patches become products, where windows neither overlap nor leave anything out."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.rows.patches import MULTIPLY_PATCHES
from bolt_build.targets import target_named


def patched(*, strides: str = "8,10", pads: str = "0,0", dilations: str = "1,1", shape: str = "2,3,16,30") -> Graph:
    window = f"strides=[{strides}] pads_begin=[{pads}] pads_end=[{pads}] dilations=[{dilations}] groups=1"
    return graph(f"""
        graph g batch=2 (%x: f32[{shape}]) -> (%y) {{
          const %w: f32[5,3,8,10]
          const %b: f32[5]
          %c = conv(%x, %w, %b) {window} // "c"
          %y = relu(%c) // "y"
        }}""")


def test_patches_are_moved_beside_each_other_and_multiplied() -> None:
    before = patched()
    result = run(MULTIPLY_PATCHES, before)
    assert [line.partition(" = ")[2].partition("(")[0] for line in body(result.graph).splitlines()] == [
        "reshape", "transpose", "reshape", "matmul", "reshape", "transpose", "relu",
    ]  # fmt: skip
    assert said(result) == [("c", "made a product", "of patches of 8x10")]
    old, new = before.constant("w"), result.graph.constant("w.patches")
    assert old is not None
    assert new is not None
    assert new.shape == (240, 5)
    np.testing.assert_array_equal(new[(1 * 8 + 3) * 10 + 4], old[:, 1, 3, 4])


def test_patches_of_a_volume_are_too() -> None:
    """The first convolution of a vision transformer of videos or scans."""
    window = "strides=[2,8,8] pads_begin=[0,0,0] pads_end=[0,0,0] dilations=[1,1,1] groups=1"
    before = graph(f"""
        graph g batch=2 (%x: f32[2,3,4,16,24]) -> (%y) {{
          const %w: f32[5,3,2,8,8]
          const %b: f32[5]
          %y = conv(%x, %w, %b) {window} // "y"
        }}""")
    result = run(MULTIPLY_PATCHES, before)
    assert said(result) == [("y", "made a product", "of patches of 2x8x8")]
    x = np.random.RandomState(1).standard_normal((2, 3, 4, 16, 24)).astype(np.float32)
    np.testing.assert_allclose(evaluate(result.graph, {"x": x})["y"], evaluate(before, {"x": x})["y"], atol=1e-3)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (patched(pads="1,1", shape="2,3,14,28"), "its windows leave the image"),
        (patched(shape="2,3,16,31"), "images of 16x31 are no whole patches of 8x10"),
        (patched(dilations="1,2"), "the convolution is grouped or dilated"),
    ],
)
def test_other_windows_are_declined(before: Graph, why: str) -> None:
    result = run(MULTIPLY_PATCHES, before)
    assert result.graph == before
    assert said(result) == [("c", "declined", why)]


def test_windows_that_overlap_are_convolutions() -> None:
    before = patched(strides="4,5")
    assert run(MULTIPLY_PATCHES, before).graph == before


def test_it_pays_where_products_read_tiles_by_tma() -> None:
    pays = MULTIPLY_PATCHES.pays_on
    assert pays is not None
    assert pays(target_named("h200"), "fp16")
    assert not pays(target_named("h200"), "fp32")
    assert not pays(target_named("a100"), "fp16")
    assert not pays(target_named("host"), "fp32")
