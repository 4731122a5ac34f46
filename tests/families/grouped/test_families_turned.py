"""Products by WGMMA and depthwise convolutions behind them whose halo lies in planes of channels: which tiles
there are, why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_depthwise_chains import averaged_step, expanded, step_of
from gpu_products import SILU

from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import chain_shape, tile_of, tiles
from bolt_build.families.grouped.neighbours.chain_tile import ChainShape
from bolt_build.families.grouped.neighbours.turned_tile import TurnedTile
from bolt_build.targets import Target, target_named

H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
FAMILY = Grouped()
LAYER = expanded("turned", (32, 112, 14, 14), 672, 5, epilogue=SILU)
CROWDED = "3 blocks of 99584 bytes of shared memory do not fit beside each other"
TILE = TurnedTile(rows=14, columns=14, at_once=7, across=3, parts=4, beside=1)


def refused(tile: TurnedTile, chain: ChainShape, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(chain, target.gpu)


def shape(
    extent: tuple[int, int], kernel: int = 3, stride: int = 1, batch: int = 2, pad: int | None = None
) -> ChainShape:
    pads = None if pad is None else ((pad, pad), (pad, pad))
    layer = expanded("turned", (batch, 24, *extent), 96, kernel, stride, epilogue=SILU, pads=pads)
    return chain_shape(step_of(layer).problem)


def test_a_candidate_states_its_tile_and_a_unit_instantiates_it() -> None:
    (problem, candidate) = (step_of(LAYER).problem, Candidate("grouped", TILE.parameters))
    assert str(candidate) == "grouped kind=turned rows=14 columns=14 at_once=7 across=3 parts=4 beside=1"
    assert tile_of(candidate) == TILE
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert '#include "bolt_grouped/turned_kernel.h"\n' in unit.text
    sizes = "112, bolt::grouped::Halves::rows, 14, 2, 14, 14, 2, 2, 2, 0, 7, 2, 3, 42, 4, 1, 1, 1, 8, 8"
    assert f"::TurnedTile<bolt::grouped::Window<5, 5, 1, 1, 1, 1>, {sizes}>" in unit.text


@pytest.mark.parametrize(("extent", "kernel", "stride", "tile", "halves", "runs", "left"), [
    ((14, 14), 5, 1, (14, 14), "rows", (2, 0), 2),
    ((14, 14), 3, 1, (14, 14), "rows", (2, 0), 1),
    ((28, 28), 5, 1, (14, 28), "rows", (4, 0), 2),
    ((56, 56), 3, 1, (14, 28), "rows", (4, 0), 1),
    ((7, 7), 5, 1, (7, 7), "images", (1, 0), 0),
    ((14, 14), 5, 2, (7, 7), "columns", (1, 1), 0),
    ((14, 14), 3, 2, (7, 7), "columns", (1, 1), 0),
    ((28, 28), 5, 2, (7, 14), "columns", (2, 2), 2),
    ((112, 112), 3, 2, (7, 14), "columns", (2, 2), 1),
])  # fmt: skip
def test_a_row_of_a_plane_has_what_windows_read(
    extent: tuple[int, int],
    kernel: int,
    stride: int,
    tile: tuple[int, int],
    halves: str,
    runs: tuple[int, int],
    left: int,
) -> None:
    """A 5x5 window over 14 columns reads 18. The last two are no pixels, and 16 are two times eight."""
    conv, turned = shape(extent, kernel, stride).conv, replace(TILE, rows=tile[0], columns=tile[1])
    assert (turned.halves(conv), turned.runs(conv), turned.left(conv)) == (halves, runs, left)


def test_tiles_have_rows_that_are_in_the_image() -> None:
    """Rows outside it are neither copied nor multiplied. Of two tiles of a 28x28 image each has 16 of the 18 in its
    halo, the upper one behind two above the image."""
    conv = shape((28, 28), 5).conv
    tile = replace(TILE, columns=28, at_once=4)
    assert tile.lines(conv) == ((16, 2), (16, 0))
    assert tile.products(conv) == 4
    assert replace(tile, rows=10).lines(conv) == ((12, 2), (14, 0), (10, 0))
    assert replace(TILE, rows=7, columns=7).lines(shape((7, 7), 5).conv) == ((14, 2),)


@pytest.mark.parametrize(("tile", "reason"), [
    (replace(TILE, across=1, parts=1), "1 blocks have but 512 channels"),
    (replace(TILE, parts=40), "672 channels leave some of 40 blocks without any"),
    (replace(TILE, at_once=14), "a product has up to 128 columns, not 224"),
    (replace(TILE, rows=28), "tiles have up to 16 rows and 32 columns, not 28 and 14"),
    (replace(TILE, across=4, parts=3), "takes 168 registers of a thread, 512 threads beside each other have 128"),
    (replace(TILE, across=1, parts=11, beside=3), CROWDED),
])  # fmt: skip
def test_a_tile_that_does_not_fit_has_a_reason(tile: TurnedTile, reason: str) -> None:
    assert refused(tile, chain_shape(step_of(LAYER).problem)) == reason


def test_results_wait_where_their_halo_was() -> None:
    """A window of two rows and columns without pads reads few more than there are results."""
    chain = shape((3, 9), 2, pad=0)
    assert refused(replace(TILE, rows=2, columns=8, at_once=3, across=1, parts=2), chain) is None
    assert refused(TILE, chain) is not None


@pytest.mark.parametrize(("layer", "reason"), [
    (expanded("turned", (2, 24, 56, 56), 144, dilation=2), "bands have neighbouring taps, and the window is dilated"),
    (expanded("turned", (2, 24, 56, 56), 144, 7), "bands have room for windows of 2 to 5 rows and columns"),
    (expanded("turned", (2, 24, 50), 144), "bands have room for windows of 2 to 5 rows and columns"),
    (expanded("turned", (2, 24, 56, 56), 144, stride=3), "windows step by one or two, down as across, not by 3 and 3"),
    (expanded("turned", (2, 24, 56, 56), 144, 2, pads=((2, 2), (2, 2))), "windows lie outside the image"),
])  # fmt: skip
def test_windows_that_planes_are_not_for(layer: object, reason: str) -> None:
    assert refused(TILE, chain_shape(step_of(layer).problem)) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [A100, T4])
def test_four_warps_multiply_together_on_hopper_alone(target: Target) -> None:
    assert refused(TILE, chain_shape(step_of(LAYER).problem), target) == "WGMMA comes with sm_90"


def test_a_block_has_two_small_images() -> None:
    conv = chain_shape(step_of(expanded("turned", (32, 160, 7, 7), 960)).problem).conv
    tile = replace(TILE, rows=7, columns=7, at_once=14, across=2, parts=8)
    assert (tile.images(conv), tile.blocks(conv), tile.products(conv)) == (2, 128, 1)
    assert tile.images(replace(conv, batch=1)) == 1


@pytest.mark.parametrize("extent", [(5, 5), (7, 7), (10, 10), (13, 17), (19, 19), (33, 20), (75, 75), (112, 112)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_images_of_any_extent_have_tiles(extent: tuple[int, int], kernel: int, stride: int) -> None:
    chain = shape(extent, kernel, stride, batch=32)
    legal = [tile for tile in tiles(chain) if isinstance(tile, TurnedTile) and refused(tile, chain) is None]
    assert legal
    assert all(tile.seconds(chain, H200) > 0 for tile in legal)


def test_means_of_images_that_are_one_tile_need_no_counter() -> None:
    whole, step = averaged_step(LAYER)
    assert whole.label
    sums = TILE.sums(chain_shape(step.problem))
    assert (sums.tiles, sums.rows, sums.counters) == (1, 1, 128)


def test_warps_go_through_the_channels_of_a_block_in_rounds() -> None:
    """1056 channels of 32 images are 17 times 16 for each of 128 blocks: eight warps have them in three rounds, in the
    shared memory of one."""
    chain = chain_shape(step_of(expanded("turned", (32, 176, 14, 14), 1056, 5, epilogue=SILU)).problem, H200)
    long = TurnedTile(rows=14, columns=14, at_once=7, across=2, parts=4, beside=1)
    short = replace(long, parts=9)
    assert (long.rounds(chain.conv), long.blocks(chain.conv), short.rounds(chain.conv)) == (3, 128, 1)
    assert long.shared_bytes(chain) == short.shared_bytes(chain)
    assert {long, short} <= set(tiles(chain))
    assert long.seconds(chain, H200) < short.seconds(chain, H200)


def test_predictions_grow_with_what_is_computed() -> None:
    small, large = (
        chain_shape(step_of(expanded("turned", (32, 112, 14, 14), channels, 5, epilogue=SILU)).problem, H200)
        for channels in (672, 1344)
    )
    assert TILE.seconds(small, H200) < replace(TILE, parts=8).seconds(large, H200)
