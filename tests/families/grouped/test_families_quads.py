"""Products by WGMMA and depthwise convolutions behind them, of which four lanes have a row: which tiles there are,
why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_depthwise_chains import averaged_step, expanded, step_of
from gpu_products import SILU

from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import chain_shape, tile_of, tiles
from bolt_build.families.grouped.neighbours.chain_tile import ChainShape
from bolt_build.families.grouped.neighbours.quads_tile import QuadsTile
from bolt_build.targets import Target, target_named

H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
FAMILY = Grouped()
LAYER = expanded("quads", (32, 24, 56, 56), 144, epilogue=SILU)
TILE = QuadsTile(each=4, at_once=2, rows=28, across=1, parts=3, beside=4)


def refused(tile: QuadsTile, chain: ChainShape, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(chain, target.gpu)


def quads(chain: ChainShape) -> list[QuadsTile]:
    return [tile for tile in tiles(chain) if isinstance(tile, QuadsTile)]


def test_a_candidate_states_its_tile_and_a_unit_instantiates_it() -> None:
    (problem, candidate) = (step_of(LAYER).problem, Candidate("grouped", TILE.parameters))
    assert str(candidate) == "grouped kind=quads each=4 at_once=2 rows=28 across=1 parts=3 beside=4"
    assert tile_of(candidate) == TILE
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert '#include "bolt_grouped/quads_kernel.h"\n' in unit.text
    assert "::QuadsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 32, 1, 4, false, 2, 1, 4, 8, 8>" in unit.text


@pytest.mark.parametrize(("each", "extent", "beside", "exact"), [
    (4, 16, 1, True), (4, 14, 1, False), (4, 28, 2, False), (7, 28, 1, True), (4, 56, 4, False), (8, 56, 2, False),
    (5, 19, 1, False), (3, 32, 3, False), (3, 33, 4, False),
])  # fmt: skip
def test_tiles_beside_each_other_share_columns_that_both_expand(
    each: int, extent: int, beside: int, exact: bool
) -> None:
    """Of 14 results of 16 columns each one at a side is another tile's, but not at the image's."""
    chain = chain_shape(step_of(expanded("quads", (2, 24, 56, extent), 144)).problem)
    tile = replace(TILE, each=each)
    assert (tile.tiles_beside(chain.conv), tile.exact(chain.conv)) == (beside, exact)


@pytest.mark.parametrize(("tile", "reason"), [
    (replace(TILE, parts=2), "2 blocks have but 128 channels"),
    (replace(TILE, parts=8), "144 channels leave some of 8 blocks without any"),
    (replace(TILE, each=3, at_once=1), "a product has up to 64 columns, a multiple of eight, not 12"),
    (replace(TILE, each=8, at_once=3), "a product has up to 64 columns, a multiple of eight, not 96"),
    (replace(TILE, each=8), "takes 158 registers of a thread, 512 threads beside each other have 128"),
    (replace(TILE, rows=56), "4 blocks of 66560 bytes of shared memory do not fit beside each other"),
])  # fmt: skip
def test_a_tile_that_does_not_fit_has_a_reason(tile: QuadsTile, reason: str) -> None:
    assert refused(tile, chain_shape(step_of(LAYER).problem)) == reason


def test_columns_and_rows_are_whole_steps() -> None:
    chain = chain_shape(step_of(expanded("quads", (32, 24, 56, 56), 144, stride=2)).problem)
    assert refused(replace(TILE, at_once=1), chain) == "4 columns and 1 rows are no whole steps"
    assert all(tile.each % 2 == 0 and tile.at_once % 2 == 0 for tile in quads(chain))


@pytest.mark.parametrize(("layer", "reason"), [
    (expanded("quads", (2, 24, 56, 56), 144, dilation=2), "lanes keep neighbouring rows, and the window is dilated"),
    (expanded("quads", (2, 24, 56, 56), 144, 7), "registers hold windows of 2 to 5 rows and columns"),
    (expanded("quads", (2, 24, 50), 144), "registers hold windows of 2 to 5 rows and columns"),
])  # fmt: skip
def test_windows_that_quads_are_not_for(layer: object, reason: str) -> None:
    assert refused(TILE, chain_shape(step_of(layer).problem)) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [A100, T4])
def test_four_warps_multiply_together_on_hopper_alone(target: Target) -> None:
    assert refused(TILE, chain_shape(step_of(LAYER).problem), target) == "WGMMA comes with sm_90"


def test_blocks_have_equal_parts_of_the_channels() -> None:
    """672 channels are 42 warps of 16: four blocks have 11 or fewer of their 12 warps' worth."""
    chain = chain_shape(step_of(expanded("quads", (32, 112, 14, 14), 672, 5)).problem)
    tile = QuadsTile(each=4, at_once=2, rows=14, across=3, parts=4, beside=1)
    assert tile.share(chain.conv) == 11
    assert refused(tile, chain) is None
    assert tile.blocks(chain.conv) == 128


def test_no_row_outside_the_image_is_kept() -> None:
    """A window of five rows reaches two rows beyond a side."""
    chain = chain_shape(step_of(expanded("quads", (32, 112, 14, 14), 672, 5)).problem)
    tile = QuadsTile(each=4, at_once=2, rows=14, across=3, parts=4, beside=1)
    assert tile.read_rows(chain.conv) == 14
    assert replace(tile, rows=7).read_rows(chain.conv) == 12


def test_images_of_any_width_have_quads_that_end_with_them() -> None:
    for extent, each in ((7, 2), (10, 3), (12, 3), (19, 5), (20, 5), (24, 6), (28, 7)):
        chain = chain_shape(step_of(expanded("quads", (32, 24, extent, extent), 144)).problem)
        assert min(t.each for t in quads(chain) if t.tiles_beside(chain.conv) == 1) == each


def test_means_of_images_that_are_one_tile_need_no_counter() -> None:
    whole, step = averaged_step(expanded("quads", (32, 112, 14, 14), 672, 5, epilogue=SILU))
    assert whole.label
    tile = QuadsTile(each=4, at_once=2, rows=14, across=3, parts=4, beside=1)
    sums = tile.sums(chain_shape(step.problem))
    assert (sums.tiles, sums.rows, sums.counters) == (1, 1, 128)


def test_predictions_grow_with_what_is_computed() -> None:
    small, large = (
        chain_shape(step_of(expanded("quads", (32, 24, 56, 56), 144, window, epilogue=SILU)).problem, H200)
        for window in (3, 5)
    )
    tile = replace(TILE, beside=3)
    assert tile.seconds(small, H200) < tile.seconds(large, H200)
