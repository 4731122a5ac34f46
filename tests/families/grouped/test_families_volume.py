"""Depthwise convolutions over volumes: legal tiles, what candidates state and emit, and where they are ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Layer, graph_with
from gpu_products import conv
from proposed import one_problem

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds.volume import VolumeTile, apart, live, step
from bolt_build.families.grouped.shape import Depths, shape_of
from bolt_build.targets import target_named

FAMILY, H200 = Grouped(), target_named("h200")
LAYER = conv("volume", (32, 108, 16, 28, 28), 108, (3, 3, 3), groups=108)
WIDE = conv("wide", (4, 32, 32, 64, 64), 32, (7, 7, 7), groups=32)
TILE = VolumeTile(2, 16, 7, 2, 7, 3, held=True)


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


@pytest.mark.parametrize(
    ("tile", "layer", "why"),
    [
        (TILE, LAYER, None),
        (replace(TILE, lanes=2, down=2, across=1), LAYER, "blocks have 32 to 512 threads, not 4"),
        (TILE, WIDE, "weights and sums take 864 registers of a thread, 224 threads have not as many"),
        (replace(TILE, held=False), WIDE, None),
        (
            replace(TILE, across=4, down=4),
            conv("small", (1, 32, 4, 7, 7), 32, (3, 3, 3), groups=32),
            "over half of the positions would be beyond the 7x7 of an image",
        ),
    ],
)
def test_tiles_are_legal_or_say_why_not(tile: VolumeTile, layer: Layer, why: str | None) -> None:
    assert H200.gpu is not None
    assert tile.refuse(shape_of(problem_of(layer)), H200.gpu) == why


def test_every_problem_has_a_kernel() -> None:
    for channels, extents in ((1, (2, 1, 1)), (7, (1, 3, 2)), (5, (9, 1, 40))):
        layer = conv("small", (1, channels, *extents), channels, (3, 3, 3), groups=channels)
        if channels > 1:
            assert FAMILY.candidates(problem_of(layer), H200)[0]


def test_windows_with_gaps_and_strides_share_planes_of_the_input() -> None:
    found = [
        (apart(d), step(d), live(d)) for d in (Depths(9, 9, 3, *sides, 1) for sides in ((1, 1), (2, 1), (2, 3), (2, 4)))
    ]
    assert found == [(1, 1, 3), (1, 2, 2), (3, 2, 2), (2, 1, 3)]


def test_a_candidate_states_its_tile_and_emits_it() -> None:
    problem, candidate = problem_of(LAYER), candidate_of(TILE, 4)
    assert (
        str(candidate)
        == "grouped kind=volume vector=2 lanes=16 each=7 across=2 down=7 stages=3 weights=registers run=4"
    )
    assert FAMILY.refuse(problem, candidate, H200) == f"{candidate} is none of its candidates"
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "weights", "bias"))
    code = FAMILY.emit(problem, candidate, H200, at)
    tile = (
        "bolt::grouped::VolumeTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, bolt::grouped::Depths<16, 16, 3, 1, 1, 1>, "
        "2, 16, 7, 2, 7, 3, 32, 512, true, 4, 4>"
    )
    assert code.member_type == f"bolt::grouped::Conv<{tile}>"
    assert "bolt::grouped::Planes{.outputs = 108, .taps = 27, .to_outputs = 128}" in code.member_arguments
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/volume_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )


@pytest.mark.parametrize("layer", [LAYER, WIDE], ids=lambda layer: layer.label)
def test_is_predicted_to_beat_depths_as_channels(layer: Layer) -> None:
    """The same window over images with a group for each channel's depths, without the step that moves them."""
    batch, channels, depth, *extents = layer.inputs[0].shape
    taps = layer.inputs[1].shape[2:]
    stacked = conv("stacked", (batch * depth, channels * taps[0], *extents), channels, taps[1:], groups=channels)
    seconds = [
        min(a.seconds for a in FAMILY.propose(*graph_with(each), H200, each.precision)[0]) for each in (layer, stacked)
    ]
    assert seconds[0] < seconds[1] / 1.5
