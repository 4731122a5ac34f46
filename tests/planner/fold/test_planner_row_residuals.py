"""What is added to the rows of a convolution's image, added to the image."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold.row_residuals import ADD_TO_IMAGES
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.targets import target_named

MOVES = ("%t = transpose(%c) perm=[0,2,3,1]", "%r = reshape(%t) shape=[2,20,6]")


def behind(*lines: str, outputs: str = "%y") -> Graph:
    """A depthwise convolution %c of %x, rows %h and these nodes."""
    made = "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)
    return graph(f"""
        graph g batch=2 (%x: f32[2,6,4,5], %h: f32[2,20,6]) -> ({outputs}) {{
          const %w: f32[6,1,1,1]
          const %u: f32[6,6]
          const %rows: f32[20,6]
          %c = conv(%x, %w) groups=6 // "c"
          {made}
        }}""")


@pytest.mark.parametrize("sum_", ["%y = add(%r, %h)", "%y = add(%h, %r)"])
def test_a_residual_of_rows_is_added_to_the_image(sum_: str) -> None:
    result = run(ADD_TO_IMAGES, behind(*MOVES, sum_))
    conv, *lines = body(result.graph).splitlines()
    assert conv.startswith("%c = conv(%x, %w)")
    assert lines == [
        "%'h.pixels = reshape(%h) shape=[2,4,5,6] @y.pixels",
        "%'h.image = transpose(%'h.pixels) perm=[0,3,1,2] @y.image",
        """%'y.image = add(%c, %'h.image) @y.sum  // "y\"""",
        "%'y.pixels = transpose(%'y.image) perm=[0,2,3,1] @y.rows",
        "%y = reshape(%'y.pixels) shape=[2,20,6]",
    ]
    assert said(result) == [("y", "added to the image", "that 'c' makes, whose kernel can do it")]
    fused = run(FUSE_EPILOGUES, result.graph).graph
    assert not [node for node in fused.nodes if node.op.kind == "binary"]


def test_pixels_may_be_one_axis_before_they_are_moved() -> None:
    lines = ("%t = reshape(%c) shape=[2,6,20]", "%r = transpose(%t) perm=[0,2,1]", "%y = add(%r, %h)")
    assert said(run(ADD_TO_IMAGES, behind(*lines))) == [
        ("y", "added to the image", "that 'c' makes, whose kernel can do it")
    ]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ((*MOVES, "%y = mul(%r, %h)"), "%y"),
        ((*MOVES, "%y = add(%r, %rows)"), "%y"),
        ((*MOVES, "%y = add(%r, %h)"), "%y, %t"),
        (("%t = transpose(%c) perm=[0,3,2,1]", "%r = reshape(%t) shape=[2,20,6]", "%y = add(%r, %h)"), "%y"),
        (("%r = reshape(%c) shape=[2,20,6]", "%y = add(%r, %h)"), "%y"),
    ],
    ids=["no sum", "a constant", "read between", "columns first", "no pixels"],
)
def test_other_rows_are_left_alone(lines: tuple[str, ...], outputs: str) -> None:
    before = behind(*lines, outputs=outputs)
    result = run(ADD_TO_IMAGES, before)
    assert result.graph == before
    assert said(result) == []


def test_a_product_takes_the_rows_itself() -> None:
    before = behind(*MOVES, "%m = matmul(%h, %u)", "%y = add(%r, %m)")
    result = run(ADD_TO_IMAGES, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", "the product in front of it takes the rows of 'c'")]


@pytest.mark.parametrize(("target", "precision", "pays"), [("h200", "fp16", True), ("host", "fp32", False)])
def test_it_is_for_kernels_that_have_channels_last(target: str, precision: str, pays: bool) -> None:
    assert ADD_TO_IMAGES.pays_on is not None
    assert ADD_TO_IMAGES.pays_on(target_named(target), precision) is pays
