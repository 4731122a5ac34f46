"""Heads that are cut out of an image's channels, and images that are made of heads, are moved once."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said
from planner_fakes import POLICY

from bolt_build.planner.passes.images.image_moves import MOVE_IMAGES
from bolt_build.planner.pipeline import optimize
from bolt_build.targets import target_named


def test_heads_of_a_convolution_are_moved_from_channels_last() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,5]) -> (%y) {
          const %w: f32[12,8,1,1] #
          %c = conv(%x, %w) // "c"
          %cut = reshape(%c) shape=[2,3,4,15] // "cut"
          %y = transpose(%cut) perm=[0,1,3,2] // "y"
        }""")
    result = run(MOVE_IMAGES, before)
    assert body(result.graph).splitlines()[1:] == [
        "%'y.image = transpose(%c) perm=[0,2,3,1]",
        "%'y.image.1 = reshape(%'y.image) shape=[2,15,3,4]",
        '%y = transpose(%\'y.image.1) perm=[0,2,1,3] @y  // "cut", "y"',
    ]
    assert said(result) == [("y", "moved once", "read with channels last")]


def test_what_is_moved_from_an_image_to_an_image_is_moved_twice() -> None:
    """Nodes of the second move are called otherwise than those of the first."""
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,6]) -> (%z) {
          const %w: f32[4,8,1,1] #
          const %v: f32[8,1,3,3] #
          %c = conv(%x, %w) // "c"
          %cut = reshape(%c) shape=[2,1,4,18] // "cut"
          %y = transpose(%cut) perm=[0,1,3,2] // "y"
          %z = conv(%y, %v) // "z"
        }""")
    result = run(MOVE_IMAGES, before)
    assert len({node.name for node in result.graph.nodes}) == len(result.graph.nodes) == 6


def test_channels_behind_pixels_need_no_move_at_all() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,5]) -> (%y) {
          const %w: f32[12,8,1,1] #
          %c = conv(%x, %w) // "c"
          %p = pool(%c) mode=max kernel=[1,1] // "p"
          %cut = reshape(%p) shape=[2,3,4,15] // "cut"
          %y = transpose(%cut) perm=[0,3,1,2] // "y"
        }""")
    result = run(MOVE_IMAGES, before)
    assert [node.op.kind for node in result.graph.nodes] == ["conv", "pool", "transpose", "reshape"]


def test_an_image_that_heads_become_is_stored_with_channels_last() -> None:
    before = graph("""
        graph g batch=2 (%h: f32[2,3,15,4]) -> (%y) {
          const %w: f32[5,12,1,1] #
          %t = transpose(%h) perm=[0,1,3,2] // "t"
          %i = reshape(%t) shape=[2,12,3,5] // "i"
          %y = conv(%i, %w) // "y"
        }""")
    result = run(MOVE_IMAGES, before)
    assert body(result.graph).splitlines()[:-1] == [
        "%'i.image = transpose(%h) perm=[0,2,1,3]",
        "%'i.image.1 = reshape(%'i.image) shape=[2,3,5,12]",
        '%i = transpose(%\'i.image.1) perm=[0,3,1,2] @i  // "t", "i"',
    ]
    assert said(result) == [("i", "moved once", "stored with channels last")]


NO_IMAGE = """
          %c = relu(%x) // "c"
          %cut = reshape(%c) shape=[2,2,4,15] // "cut"
          %y = transpose(%cut) perm=[0,1,3,2] // "y"
"""
PLANES = """
          %c = conv(%x, %w) // "c"
          %y = reshape(%c) shape=[2,3,4,15] // "y"
"""
READ_TWICE = """
          %c = conv(%x, %w) // "c"
          %cut = reshape(%c) shape=[2,3,4,15] // "cut"
          %r = relu(%cut) // "r"
          %t = transpose(%cut) perm=[0,1,3,2] // "t"
          %y = matmul(%r, %t) // "y"
"""
LEAVES_THE_GRAPH = """
          %h = reshape(%x) shape=[2,2,4,15] // "h"
          %t = transpose(%h) perm=[0,1,3,2] // "t"
          %y = reshape(%t) shape=[2,8,3,5] // "y"
"""


@pytest.mark.parametrize("lines", [NO_IMAGE, PLANES, READ_TWICE, LEAVES_THE_GRAPH])
def test_other_moves_stay(lines: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,8,3,5]) -> (%y) {{
          const %w: f32[12,8,1,1] #
{lines}
        }}""")
    assert run(MOVE_IMAGES, before).graph is before


def test_a_channel_shuffle_stays_one_movement_between_images() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,3,5]) -> (%y) {
          const %w: f32[12,8,1,1] #
          const %v: f32[4,12,1,1] #
          %c = conv(%x, %w) // "c"
          %p = pool(%c) mode=max kernel=[1,1] // "p"
          %s = reshape(%p) shape=[2,2,6,3,5] // "s"
          %t = transpose(%s) perm=[0,2,1,3,4] // "t"
          %u = reshape(%t) shape=[2,12,3,5] // "u"
          %y = conv(%u, %v) // "y"
        }""")
    after = optimize(before, POLICY, target_named("h200"), "fp16").graph
    assert "transpose" not in [node.op.kind for node in after.nodes]
