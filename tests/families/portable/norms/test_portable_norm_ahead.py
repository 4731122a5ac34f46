"""Slabs that registers hold one after the other, and images whose channels, or planes, are no whole loads: what a slab
of them is, what is offered, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from math import gcd

import pytest
from families_harness import graph_with
from families_layers import norm
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norms.norm_ahead import FORM, AheadTile
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("x", "r.weight(1)", "r.weight(2)"), ("y",), (None, "p.weight(1)", "p.weight(2)"))


def problem(*shape: int, groups: int, layout: Layout = Layout.CHANNELS_LAST, target: str = "h200") -> KernelProblem:
    """With a scale and a bias of each channel; each channel by itself where `groups` is 0."""
    op = Norm("variance", (1, 2, 3) if groups else (2, 3), 1e-5, max(groups, 1))
    graph, node = graph_with(replace(norm("n", op, shape, (shape[1], 1, 1)), precision=DType.F16))
    found = FAMILY.propose(graph, node, target_named(target), DType.F16)[0]
    return next(each.steps[0].problem for each in found if each.steps[0].problem.inputs[0].format.layout is layout)


def candidate(tile: HeldTile | AheadTile) -> Candidate:
    algorithm = "ahead" if isinstance(tile, AheadTile) else "held"
    return Candidate("portable", (("algorithm", algorithm), *tile.parameters), tile.settings)


def test_a_candidate_says_how_many_slabs_a_cluster_takes() -> None:
    """Which is no part of what is compiled."""
    tile = AheadTile(HeldTile(10, 8, 448, 12, 1), 8)
    stated = candidate(tile)
    assert str(stated) == "portable algorithm=ahead threads=448 loads=12 across=10 cluster=8 resident=1 slabs=8"
    assert FORM.tile_of(stated) == tile
    code = FAMILY.emit(problem(32, 320, 64, 64, groups=32), stated, H200, AT)
    shape = "bolt::portable::HeldShape<12, 448, 10, 8, 512, 10, 4096, 320, 1, 1>"
    assert code.call.startswith(f"bolt::portable::norm_in_registers_ahead<{shape}, ")
    assert ", 8, x, r.weight(1), r.weight(2), y, " in code.call


def test_positions_of_odd_channels_are_several_pixels() -> None:
    """8 pixels of 33 channels are 33 loads, 4 pixels of 90 channels 45."""
    for asked, pixels, loads in (
        (problem(32, 33, 112, 112, groups=3), 8, 33),
        (problem(32, 90, 56, 56, groups=9), 4, 45),
        (problem(32, 12, 8, 8, groups=0), 2, 3),
    ):
        nest = held_nest(asked)
        assert isinstance(nest, HeldNest)
        extent = asked.inputs[0].shape[1]
        assert (nest.repeats, nest.channels.extent, nest.along) == (pixels, 8 * loads, Loop(extent, (1, 1, 1, 0)))
        assert nest.statistics == extent // nest.group
        assert nest.many * pixels == asked.inputs[0].shape[2] * asked.inputs[0].shape[3]
    code = FAMILY.emit(problem(32, 33, 112, 112, groups=3), candidate(HeldTile(33, 8, 480, 14, 1)), H200, AT)
    shape = "bolt::portable::HeldShape<14, 480, 33, 8, 196, 11, 1568, 264, 1, 1, 33, 0>"
    assert code.call.startswith(f"bolt::portable::norm_in_registers<{shape}, bolt::portable::NormOperands::fixed, ")


def test_planes_of_odd_extents_are_runs_of_loads() -> None:
    """32 planes of 57 x 57 elements have one statistic, and 12996 loads."""
    asked = problem(32, 96, 57, 57, groups=3, layout=Layout.ROW)
    nest = held_nest(asked)
    assert isinstance(nest, HeldNest)
    assert (nest.many, nest.planes, nest.statistics) == (12996, 32, 1)
    code = FAMILY.emit(asked, candidate(AheadTile(HeldTile(1, 4, 416, 8, 1), 3)), H200, AT)
    assert "HeldShape<8, 416, 1, 4, 3249, 8, 12996, 8, 2, 1, 0, 3249>" in code.call
    assert ", {32, 3249, 1, 1, 0}, 3, x, " in code.call, "the loop over planes, with their scales and biases"


def test_planes_of_whole_loads_that_have_one_statistic_are_no_slabs_in_shared_memory() -> None:
    """Ten planes of 64 x 64 elements: each load is of one plane."""
    asked = problem(16, 320, 64, 64, groups=32, layout=Layout.ROW)
    nest = held_nest(asked)
    assert isinstance(nest, HeldNest)
    assert (nest.many, nest.planes, nest.plane, nest.slabs(8)) == (5120, 10, 4096, 512)
    first = str(FAMILY.candidates(asked, H200)[0][0])
    assert any(f"algorithm={each} " in first for each in ("ahead", "held", "both"))


def first_of(*shape: int) -> str:
    """What is predicted to be fastest for images in 32 groups."""
    asked = problem(*shape, groups=32)
    return str(min(FAMILY.candidates(asked, H200)[0], key=lambda each: FAMILY.predict(asked, each, H200)))


def test_slabs_of_single_blocks_are_taken_ahead_and_those_of_clusters_are_not() -> None:
    """Blocks of a cluster wait for each other at each slab, and ask for nothing meanwhile."""
    found = [str(each) for each in FAMILY.candidates(problem(32, 1280, 16, 16, groups=32), H200)[0]]
    ahead, held = (
        next(at for at, each in enumerate(found) if f"algorithm={name} " in each) for name in ("ahead", "held")
    )
    assert ahead < held
    assert "cluster=1 " in found[ahead]
    assert re.search("algorithm=(held|both) .* cluster=8 ", first_of(32, 320, 64, 64))
    few = [str(each) for each in FAMILY.candidates(problem(2, 64, 14, 14, groups=32), H200)[0]]
    assert not any("algorithm=ahead" in each for each in few)


REFUSED = [
    (AheadTile(HeldTile(10, 8, 448, 12, 1), 1), "h200", "a block takes 2 to 32 slabs one after the other, not 1"),
    (AheadTile(HeldTile(10, 8, 448, 11, 1), 8), "h200", "512 positions of a block are 12 loads of a thread, not 11"),
    (
        AheadTile(HeldTile(10, 1, 512, 81, 1), 8),
        "h200",
        "81 loads of a thread are more than the 384 bytes that it holds",
    ),
    (AheadTile(HeldTile(10, 8, 448, 12, 1), 8), "a100", "blocks form clusters from sm_90 on"),
    (
        AheadTile(HeldTile(10, 8, 448, 12, 1), 8),
        "t4",
        "ahead: copies to shared memory run beside a block's work from sm_80 on",
    ),
]


@pytest.mark.parametrize(("tile", "target", "reason"), REFUSED)
def test_what_is_not_taken_ahead_has_a_reason(tile: AheadTile, target: str, reason: str) -> None:
    """Of 32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    asked = problem(32, 320, 64, 64, groups=32, target=target)
    assert FAMILY.refuse(asked, candidate(tile), target_named(target)) == reason


def test_there_are_no_more_slabs_than_images_have() -> None:
    asked = problem(2, 64, 14, 14, groups=0)
    reason = "there are 2 slabs, of which a block takes 3"
    assert FAMILY.refuse(asked, candidate(AheadTile(HeldTile(8, 1, 256, 7, 1), 3)), H200) == reason


def test_images_that_are_no_whole_loads_begin_anywhere_in_one() -> None:
    """They have a load more: 3003 elements of 21 channels, and three planes of 57 x 57 elements."""
    pixels, planes = problem(5, 21, 13, 11, groups=3), problem(32, 96, 57, 57, groups=32, layout=Layout.ROW)
    of_pixels, of_planes = held_nest(pixels), held_nest(planes)
    assert isinstance(of_pixels, HeldNest)
    assert isinstance(of_planes, HeldNest)
    assert (of_pixels.length, of_pixels.many, of_pixels.repeats) == (3003, 18, 8)
    assert (of_planes.length, of_planes.many, of_planes.plane) == (9747, 1220, 3249)
    code = FAMILY.emit(pixels, candidate(HeldTile(21, 2, 96, 3, 1)), H200, AT)
    assert "HeldShape<3, 96, 21, 2, 9, 7, 18, 168, 1, 1, 21, 0, 3003>" in code.call
    code = FAMILY.emit(planes, candidate(HeldTile(1, 1, 320, 4, 2)), H200, AT)
    assert "HeldShape<4, 320, 1, 1, 1220, 8, 1220, 8, 2, 2, 0, 3249, 9747>" in code.call


def test_images_that_no_registers_hold_have_a_reason() -> None:
    wide = {str(each.reason) for each in FAMILY.candidates(problem(2, 1031, 8, 8, groups=0), H200)[1]}
    why = "channels repeat after 1031 loads, a block has 512 threads at most"
    assert {f"held: {why}", f"ahead: {why}"} <= wide
    part = FAMILY.refuse(problem(32, 33, 112, 112, groups=3), candidate(HeldTile(11, 8, 480, 5, 1)), H200)
    assert part == "33 channels of 8 pixels are a slab, not 88 elements"


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 300), st.integers(1, 90))
@settings(max_examples=25, deadline=None)
def test_each_element_is_in_one_load(each: int, groups: int, images: int, side: int) -> None:
    channels = each * groups
    asked = problem(images, channels, 8, side, groups=groups)
    offered = FAMILY.candidates(asked, H200)[0]
    for first in offered:
        for stated in (first, *FAMILY.variants(asked, first, H200)):
            assert FAMILY.refuse(asked, stated, H200) is None
            if "algorithm=ahead" not in str(stated):
                continue
            tile, nest = FORM.tile_of(stated), held_nest(asked)
            assert isinstance(nest, HeldNest)
            held = tile.held
            assert nest.slabs(held.width) * held.width * nest.many == asked.outputs[0].type.elements
            assert held.threads // held.across * held.loads * held.cluster >= nest.many
            assert nest.repeats == 8 // gcd(channels, 8)
            assert held.resident * (tile.shared(nest, 2) + 1024) <= 228 << 10
