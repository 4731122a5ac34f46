"""Slices, concatenations and pads that put pieces of one tensor together are one gather of rows."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Pad, Reshape
from bolt_build.planner.passes.images.gathered_pieces import GATHER_PIECES
from bolt_build.targets import target_named

_SHIFT = """
          %a = slice(%x) begin=[0,1,0,0,0] count=[2,3,2,4,5] step=[1,1,1,1,1]
          %b = pad(%a) begin=[0,0,0,0,0] end=[0,1,0,0,0] mode=constant value=0
          %c = slice(%x) begin=[0,0,2,0,0] count=[2,3,2,4,5] step=[1,1,1,1,1]
          %d = pad(%c) begin=[0,1,0,0,0] end=[0,0,0,0,0] mode=constant value=0
          %e = slice(%x) begin=[0,0,4,0,0] count=[2,4,4,4,5] step=[1,1,1,1,1]"""


def shift(last: str = "%y = concat(%b, %d, %e) axis=2", body: str = _SHIFT, more: str = "") -> Graph:
    """TSM: of 8 channels two come from the next of 4 frames, and two from the one before."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,8,4,5]) -> (%y{more}) {{{body}
          {last} // "y"
        }}""")


def test_a_shift_of_channels_along_frames_is_a_gather_of_planes() -> None:
    result = run(GATHER_PIECES, shift())
    assert said(result) == [("y", "gathered pieces of 'x'", "6 steps put them together")]
    # Two channels stay beside each other wherever they go: 16 rows, and one of zeros behind them.
    assert [node.op for node in result.graph.nodes] == [
        Reshape((2, 16, 40)), Pad((0, 0, 0), (0, 1, 0)), Gather(1), Reshape((2, 4, 8, 4, 5)),
    ]  # fmt: skip


def test_assignments_that_keep_the_border_need_no_zeros() -> None:
    """S2-MLP moves a part of the channels, which lie last, by a row: the first one stays."""
    result = run(
        GATHER_PIECES,
        graph("""
        graph g batch=2 (%x: f32[2,4,3,32]) -> (%y) {
          %a = slice(%x) begin=[0,0,0,0] count=[2,3,3,16] step=[1,1,1,1]
          %b = slice(%x) begin=[0,0,0,0] count=[2,1,3,16] step=[1,1,1,1]
          %c = concat(%b, %a) axis=1
          %d = slice(%x) begin=[0,0,0,16] count=[2,4,3,16] step=[1,1,1,1]
          %y = concat(%c, %d) axis=3 // "y"
        }"""),
    )
    assert [node.op for node in result.graph.nodes] == [Reshape((2, 24, 16)), Gather(1), Reshape((2, 4, 3, 32))]


def test_zeros_of_a_constant_are_zeros() -> None:
    """What exporters fill before they assign to slices."""
    body = _SHIFT.replace(
        "%b = pad(%a) begin=[0,0,0,0,0] end=[0,1,0,0,0] mode=constant value=0",
        "const %z: f32[2,1,2,4,5] {" + ", ".join(["0"] * 80) + "}\n          %b = concat(%a, %z) axis=1",
    )
    assert len(said(run(GATHER_PIECES, shift(body=body)))) == 1


@pytest.mark.parametrize("part", ["%b", "%d"])
def test_parts_that_others_have_stay(part: str) -> None:
    assert said(run(GATHER_PIECES, shift(more=f", {part}"))) == []


def test_what_only_turns_around_stays() -> None:
    """torch.roll along two axes: other passes move windows by what it does."""
    assert said(run(GATHER_PIECES, graph("""
        graph g batch=1 (%x: f32[1,4,4,32]) -> (%y) {
          %a = slice(%x) begin=[0,1,0,0] count=[1,3,4,32] step=[1,1,1,1]
          %b = slice(%x) begin=[0,0,0,0] count=[1,1,4,32] step=[1,1,1,1]
          %c = concat(%a, %b) axis=1
          %d = slice(%c) begin=[0,0,1,0] count=[1,4,3,32] step=[1,1,1,1]
          %e = slice(%c) begin=[0,0,0,0] count=[1,4,1,32] step=[1,1,1,1]
          %y = concat(%d, %e) axis=2
        }"""))) == []  # fmt: skip


def test_pixels_that_move_one_by_one_stay() -> None:
    """A shift along columns leaves no row whole."""
    body = _SHIFT.replace("begin=[0,1,0,0,0] count=[2,3,2,4,5]", "begin=[0,0,0,0,1] count=[2,4,2,4,4]")
    body = body.replace("end=[0,1,0,0,0]", "end=[0,0,0,0,1]").replace("count=[2,3,2,4,5]", "count=[2,4,2,4,4]")
    body = body.replace("begin=[0,1,0,0,0] end=[0,0,0,0,0]", "begin=[0,0,0,0,1] end=[0,0,0,0,0]")
    assert said(run(GATHER_PIECES, shift(body=body))) == []


def test_hosts_keep_slices() -> None:
    assert GATHER_PIECES.pays_on is not None
    assert GATHER_PIECES.pays_on(target_named("t4"), "fp16")
    assert not GATHER_PIECES.pays_on(target_named("host"), "fp32")


def test_pieces_without_elements_stay() -> None:
    parts = ", ".join(["%a"] * 5)
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,8,4,5]) -> (%y) {{
          %z = concat(%x, %x, %x) axis=1
          %u = concat(%z, %x) axis=1
          %w = concat(%u, %x) axis=1
          %a = slice(%w) begin=[0,0,0,0,0] count=[2,20,8,4,0] step=[1,1,1,1,1]
          %b = concat({parts}) axis=2
          %y = concat(%b, %b) axis=2
        }}""")
    assert run(GATHER_PIECES, before).graph == before
