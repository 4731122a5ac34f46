"""Inverted residuals whose halo lies in registers: which tiles there are, why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_depthwise_chains import expanded, inverted, step_of
from gpu_products import SILU

from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import chain_shape, tile_of, tiles
from bolt_build.families.grouped.neighbours.chain_tile import ChainShape
from bolt_build.families.grouped.neighbours.inverted_strips_tile import InvertedStripsTile
from bolt_build.targets import Target, target_named

H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
FAMILY = Grouped()
LAYER = inverted("whole", (32, 24, 56, 56), 144, 24)
TILE = InvertedStripsTile(width=2, rows=4, octets=1, across=2, beside=4)


def refused(tile: InvertedStripsTile, chain: ChainShape, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(chain, target.gpu)


def test_a_candidate_states_its_tile_and_a_unit_instantiates_it() -> None:
    problem, candidate = step_of(LAYER).problem, Candidate("grouped", TILE.parameters)
    assert str(candidate) == "grouped kind=inverted_strips width=2 rows=4 octets=1 across=2 beside=4"
    assert tile_of(candidate) == TILE
    assert FAMILY.refuse(problem, candidate, H200) is None
    (unit,) = FAMILY.units([(problem, candidate)], H200)
    assert '#include "bolt_grouped/inverted_strips_kernel.h"\n' in unit.text
    window = "bolt::grouped::Window<3, 3, 1, 1, 1, 1>"
    assert f"::InvertedStripsTile<{window}, 24, 1, 2, false, 4, 1, 2, 4, 3, 8, 8>" in unit.text


def test_it_is_offered_beside_slabs_and_not_without_a_product_behind() -> None:
    chain = chain_shape(step_of(LAYER).problem)
    assert TILE in tiles(chain)
    assert {type(tile).__name__ for tile in tiles(chain)} == {"InvertedTile", "InvertedStripsTile"}
    without = chain_shape(step_of(expanded("strips", (32, 24, 56, 56), 144)).problem)
    assert not any(isinstance(tile, InvertedStripsTile) for tile in tiles(without))


@pytest.mark.parametrize(("tile", "reason"), [
    (replace(TILE, rows=8), "takes 308 registers of a thread, 256 threads beside each other have 240"),
    (replace(TILE, across=4, beside=3), "takes 212 registers of a thread, 384 threads beside each other have 168"),
])  # fmt: skip
def test_a_tile_that_does_not_fit_has_a_reason(tile: InvertedStripsTile, reason: str) -> None:
    assert refused(tile, chain_shape(step_of(LAYER).problem)) == reason


def test_warps_without_channels_are_refused() -> None:
    chain = chain_shape(step_of(inverted("whole", (32, 24, 56, 56), 40, 24)).problem)
    assert refused(replace(TILE, across=6, beside=1), chain) == "40 channels are less than 6 warps take"
    assert refused(replace(TILE, across=4, beside=2), chain) is None


def test_many_results_have_no_room_in_registers() -> None:
    chain = chain_shape(step_of(inverted("whole", (32, 24, 14, 14), 96, 104)).problem)
    assert refused(replace(TILE, width=1, rows=1), chain) == "sums of 104 results take more registers than there are"


def test_tiles_of_two_images_may_be_one_block() -> None:
    """Seven tiles of an image are an odd number: a block has the last of one and the first of the next."""
    chain = chain_shape(step_of(inverted("whole", (3, 24, 28, 14), 72, 24)).problem)
    tile = replace(TILE, width=2)
    assert (tile.strips.tiles_of_image(chain.conv), tile.blocks(chain.conv)) == (7, 11)
    assert refused(tile, chain) is None


def test_sums_are_stored_in_the_place_of_the_input() -> None:
    """Of two warps 4 rows of 32 positions of 24 results are 24 KB; of eight a row at once is."""
    chain = chain_shape(step_of(LAYER).problem)
    assert TILE.shared_bytes(chain) == 4 * 4 * 2 * 32 * 24
    assert replace(TILE, across=8, beside=1).shared_bytes(chain) == 4 * 8 * 32 * 24


@pytest.mark.parametrize(("layer", "reason"), [
    (inverted("whole", (2, 24, 56, 56), 144, 24, dilation=2),
     "strips keep neighbouring rows, and the window is dilated"),
    (inverted("whole", (2, 24, 56, 56), 144, 24, 7), "registers hold windows of 2 to 5 rows and columns"),
])  # fmt: skip
def test_windows_that_strips_are_not_for(layer: object, reason: str) -> None:
    assert refused(TILE, chain_shape(step_of(layer).problem)) == reason  # type: ignore[arg-type]


def test_a_t4_has_no_such_products_and_an_a100_has() -> None:
    chain = chain_shape(step_of(LAYER).problem)
    assert refused(TILE, chain, T4) == "products of sixteen channels come with sm_80"
    assert refused(TILE, chain, A100) is None


def test_operations_are_those_on_the_halo_too() -> None:
    """Six rows of the input are expanded for four of the output, and 16 columns for 14."""
    problem = step_of(LAYER).problem
    assert FAMILY.expense(problem, Candidate("grouped", TILE.parameters)).flops > problem.flops


def test_predictions_know_special_functions() -> None:
    chain = chain_shape(step_of(LAYER).problem, H200)
    with_silu = chain_shape(step_of(inverted("whole", (32, 24, 56, 56), 144, 24, epilogue=SILU)).problem, H200)
    assert TILE.seconds(chain, H200) < TILE.seconds(with_silu, H200)
