"""Products and depthwise convolutions whose halo lies in registers: which tiles there are, why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_depthwise_chains import averaged_step, depthwise, expanded, step_of
from gpu_products import SILU

from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import chain_shape, tile_of, tiles
from bolt_build.families.grouped.neighbours.chain_tile import ChainShape
from bolt_build.families.grouped.neighbours.strips_tile import StripsTile
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.targets import Target, target_named

H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
FAMILY = Grouped()
LAYER = expanded("strips", (32, 24, 56, 56), 144, epilogue=SILU)
TILE = StripsTile(width=7, rows=7, octets=1, across=9, parts=2, beside=1)


def refused(tile: StripsTile, chain: ChainShape, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(chain, target.gpu)


def test_a_candidate_states_its_tile_and_a_unit_instantiates_it() -> None:
    (problem, candidate) = (step_of(LAYER).problem, Candidate("grouped", TILE.parameters))
    assert str(candidate) == "grouped kind=strips width=7 rows=7 octets=1 across=9 parts=2 beside=1"
    assert tile_of(candidate) == TILE
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert '#include "bolt_grouped/strips_kernel.h"\n' in unit.text
    assert "::StripsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 24, 1, 7, true, 1, 9, 1, 8, 8>" in unit.text


@pytest.mark.parametrize(("width", "extent", "beside", "exact"), [
    (7, 56, 1, True), (8, 56, 1, True), (4, 56, 2, False), (8, 60, 1, False), (4, 83, 3, False),
])  # fmt: skip
def test_tiles_beside_each_other_share_columns_that_both_expand(
    width: int, extent: int, beside: int, exact: bool
) -> None:
    """Of 30 results of 32 columns each one at a side is another tile's."""
    chain = chain_shape(step_of(expanded("strips", (2, 24, 56, extent), 144)).problem)
    tile = replace(TILE, width=width)
    assert (tile.tiles_beside(chain.conv), tile.exact(chain.conv)) == (beside, exact)


@pytest.mark.parametrize(("pads", "beside"), [(((1, 1), (1, 1)), 1), (((1, 1), (1, 2)), 2), (((1, 2), (1, 2)), 2)])
def test_results_beyond_eight_strips_are_of_another_tile(
    pads: tuple[tuple[int, int], tuple[int, int]], beside: int
) -> None:
    """Where padding makes more columns than an image has."""
    chain = chain_shape(step_of(expanded("strips", (2, 24, 56, 56), 144, pads=pads)).problem)
    assert TILE.tiles_beside(chain.conv) == beside


def test_strips_that_end_with_the_image_but_not_with_the_output_are_not_exact() -> None:
    chain = chain_shape(step_of(expanded("strips", (2, 32, 10, 12), 32, 2)).problem)
    assert chain.conv.out == (9, 11)
    assert not replace(TILE, width=2).exact(chain.conv)


@pytest.mark.parametrize(("tile", "reason"), [
    (replace(TILE, rows=8), "7 tiles of an image are an odd number, and a block would have some of two images"),
    (replace(TILE, parts=1), "1 blocks have but 72 channels"),
    (replace(TILE, parts=3), "144 channels leave some of 3 blocks without any"),
    (replace(TILE, octets=2, parts=1), "takes 241 registers of a thread, 288 threads beside each other have 168"),
    (
        replace(TILE, rows=28, across=6, parts=3, beside=2),
        "2 blocks of 202944 bytes of shared memory do not fit beside each other",
    ),
])  # fmt: skip
def test_a_tile_that_does_not_fit_has_a_reason(tile: StripsTile, reason: str) -> None:
    assert refused(tile, chain_shape(step_of(LAYER).problem)) == reason


def test_strips_that_are_no_whole_steps_are_refused() -> None:
    chain = chain_shape(step_of(expanded("strips", (32, 24, 56, 56), 144, stride=2)).problem)
    assert refused(TILE, chain) == "strips of 7 columns are no whole steps of 2"


def test_what_makes_something_of_zero_has_strips_too() -> None:
    """What lies outside the image is masked behind it."""
    stage = (EpilogueOp(Activation("sigmoid")),)
    assert (
        refused(TILE, chain_shape(step_of(expanded("strips", (32, 24, 56, 56), 144, epilogue=stage)).problem)) is None
    )


@pytest.mark.parametrize(("extent", "width"), [(19, 3), (38, 5), (48, 6)])
def test_images_of_other_sizes_have_strips_that_end_with_them(extent: int, width: int) -> None:
    """Eight of 3 columns are 24 for 19; eight of 4 would be 32."""
    chain = chain_shape(step_of(expanded("strips", (32, 24, extent, extent), 144)).problem)
    of_one = [t for t in tiles(chain) if isinstance(t, StripsTile) and t.tiles_beside(chain.conv) == 1]
    assert min(tile.width for tile in of_one) == width


@pytest.mark.parametrize(("layer", "reason"), [
    (expanded("strips", (2, 24, 56, 56), 144, dilation=2), "strips keep neighbouring rows, and the window is dilated"),
    (expanded("strips", (2, 24, 56, 56), 144, 7), "registers hold windows of 2 to 5 rows and columns"),
    (expanded("strips", (2, 24, 50), 144), "registers hold windows of 2 to 5 rows and columns"),
])  # fmt: skip
def test_windows_that_strips_are_not_for(layer: object, reason: str) -> None:
    assert refused(TILE, chain_shape(step_of(layer).problem)) == reason  # type: ignore[arg-type]


def test_a_t4_has_no_such_products_and_an_a100_has() -> None:
    chain = chain_shape(step_of(LAYER).problem)
    assert refused(TILE, chain, T4) == "products of sixteen channels come with sm_80"
    assert refused(TILE, chain, A100) is None


def test_chains_without_a_product_in_front_have_no_strips() -> None:
    chain = chain_shape(step_of(depthwise("strips", (32, 144, 56, 56), 24)).problem)
    assert not any(isinstance(tile, StripsTile) for tile in tiles(chain))


@pytest.mark.parametrize(("extent", "rows", "blocks"), [(14, 14, 1), (14, 7, 1), (56, 7, 4)])
def test_means_are_of_two_tiles_of_an_image_or_of_two_images(extent: int, rows: int, blocks: int) -> None:
    _, step = averaged_step(expanded("strips", (4, 24, extent, extent), 144))
    tile = replace(TILE, width=2 if extent == 14 else 7, rows=rows)
    assert tile.sums(chain_shape(step.problem)).tiles == blocks


def test_predictions_are_those_of_tiles() -> None:
    problem, candidate = step_of(LAYER).problem, Candidate("grouped", TILE.parameters)
    assert FAMILY.refuse(problem, candidate, H200) is None
    assert FAMILY.predict(problem, candidate, H200) == TILE.seconds(chain_shape(problem, H200), H200)
