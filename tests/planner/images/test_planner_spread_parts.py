"""Parts of a concatenation that an expand repeats are multiplied once an image."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.images.spread_parts import SPREAD_PARTS

PARTS, PLAIN = "%x, %e, %f", "conv(%c, %w, %b)"


def pooled(parts: str = PARTS, product: str = PLAIN, filters: int = 3, outputs: str = "%y") -> Graph:
    """Frames, and a mean and a deviation of all of them beside each."""
    images = "%x: f32[2,4,7], %m: f32[2,4,1], %d: f32[2,2,1], %r: f32[1,4,7]"
    return graph(f"""
        graph g batch=2 ({images}) -> ({outputs}) {{
          const %w: f32[{filters},10,1] #
          const %h: f32[4,5,1] #
          const %b: f32[{filters}] #
          %e = expand(%m) shape=[2,4,7] // "e"
          %f = expand(%d) shape=[2,2,7] // "f"
          %c = concat({parts}) axis=1 // "c"
          %y = {product} // "y"
        }}""")


def test_what_is_alike_at_every_position_is_multiplied_once() -> None:
    """Pooled statistics of ECAPA-TDNN."""
    result = run(SPREAD_PARTS, pooled())
    apart = "strides=[1] pads_begin=[0] pads_end=[0] dilations=[1]"
    assert body(result.graph).splitlines() == [
        f"%'y.positions = conv(%x, %'w.positions, %b) {apart}",
        "%'y.images.parts = concat(%m, %d) axis=1",
        f"%'y.images = conv(%'y.images.parts, %'w.images) {apart}",
        '%y = add(%\'y.positions, %\'y.images) @y  // "c", "y"',
    ]
    assert said(result) == [("y", "multiplies", "'m', 'd' once an image, not at every position")]


def test_parts_between_others_and_strides() -> None:
    result = run(SPREAD_PARTS, pooled("%e, %x, %f", "conv(%c, %w) strides=[2]"))
    assert [node.op.kind for node in result.graph.nodes] == ["conv", "concat", "conv", "binary"]
    assert result.graph.type("y.images").shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("product", "filters", "outputs", "reason"),
    [
        (PLAIN, 4, "%y", "6 channels that are repeated are not 2 times the 4 that a sum would move again"),
        ("conv(%c, %h) groups=2", 3, "%y", "'y' has groups"),
        ("conv(%c, %w) pads_begin=[1]", 3, "%y", "'y' pads what it reads with zeros"),
        (PLAIN, 3, "%y, %c", "'c' is a graph output"),
        (f"{PLAIN} | relu", 3, "%y", "'y' already has an epilogue"),
    ],
)
def test_what_keeps_parts_together(product: str, filters: int, outputs: str, reason: str) -> None:
    before = pooled(product=product, filters=filters, outputs=outputs)
    result = run(SPREAD_PARTS, before)
    assert (result.graph, said(result)) == (before, [("y", "declined", reason)])


@pytest.mark.parametrize("parts", ["%x, %x, %f", "%e, %f, %e"])
def test_what_nothing_multiplies_stays(parts: str) -> None:
    before = pooled(parts, product="relu(%c)")
    assert (said(run(SPREAD_PARTS, before)), run(SPREAD_PARTS, before).graph) == ([], before)


def test_what_images_share_or_repeat_alone_stays() -> None:
    """An expand along the batch, and a concatenation that has nothing but repeated parts."""
    shared = '%s = expand(%r) shape=[2,4,7] // "s"\n          %c = concat(%x, %s, %z) axis=1'
    for lines in (shared, "%c = concat(%e, %f, %e) axis=1"):
        before = graph(f"""
            graph g batch=2 (%x: f32[2,4,7], %z: f32[2,2,7], %m: f32[2,4,1], %d: f32[2,2,1], %r: f32[1,4,7]) -> (%y) {{
              const %w: f32[3,10,1] #
              %e = expand(%m) shape=[2,4,7] // "e"
              %f = expand(%d) shape=[2,2,7] // "f"
              {lines} // "c"
              %y = conv(%c, %w) // "y"
            }}""")
        result = run(SPREAD_PARTS, before)
        assert (result.graph, said(result)) == (before, [])
