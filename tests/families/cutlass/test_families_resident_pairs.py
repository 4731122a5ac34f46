"""Pairs whose first weights stay in registers: what lies between, which products suit, and the C++ of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tiles import candidate_of, ranked, tile_of
from pair_graphs import A100, FAMILY, H200, problem, two

from bolt_build.families.base import StepExpressions
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_chain import WgmmaChainTile
from bolt_build.families.cutlass.kinds.warps.warp_chain import WarpChainTile
from bolt_build.families.cutlass.kinds.windows.resident_chain import ResidentChainTile, refuse_chain
from bolt_build.families.cutlass.product_chain import ProductChain, chain_of
from bolt_build.graph.ir import Array, Graph
from bolt_build.targets import Gpu

TILE = ResidentChainTile(8, 4, 256)
SAME = "pads_begin=[1,1] pads_end=[1,1]"
RESNET = {"x": "32,64,56,56", "w": "64,64,3,3", "v": "256,64,1,1"}


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def pair(first: str = SAME, **shapes: str) -> ProductChain:
    return chain_of(problem(two(first, **{**RESNET, **shapes})))


# What lies between the products.


def stored_transposed(sums: Array) -> Array:
    """The halves of a box, from [64, pixels] sums in the registers of 128 threads: as PTX says that wgmma leaves them
    and that stmatrix.x4.trans stores four 8 x 8 matrices, at the addresses that the kernel gives its lanes."""
    box = np.full(sums.size, np.nan, np.float32)
    for warp, first in np.ndindex(4, sums.shape[1] // 16):
        for lane in range(32):
            place = (lane // 16 * 8 + lane % 8) * 64 + ((warp * 2 + lane // 8 % 2) ^ (lane % 8)) * 8 + first * 16 * 64
            # This lane's address is that of a matrix's row; transposed, that is a column of what registers hold.
            matrix, column = divmod(lane, 8)
            rows = slice(warp * 16 + matrix % 2 * 8, warp * 16 + matrix % 2 * 8 + 8)
            box[place : place + 8] = sums[rows, first * 16 + matrix // 2 * 8 + column]
    return box


def right_factor(box: Array, step: int) -> Array:
    """[16, pixels]: what an instruction reads of rows of 64 halves, swizzled over 128 bytes, from 16 * `step` on."""
    pixel, channel = np.indices((box.size // 64, 16))
    channel = channel + step * 16
    return box[pixel * 64 + (channel // 8 ^ pixel % 8) * 8 + channel % 8].T


def boxes_of_weights(weights: Array, group: int) -> Array:
    """[64, 64] of [outputs, depth], zero beyond: eight rows of an image of eight columns."""
    outputs, depth = weights.shape
    image = weights.reshape(outputs // 8, 8, depth)[group * 8 : group * 8 + 8]
    found = np.zeros((8, 8, 64), np.float32)
    found[: image.shape[0], :, :depth] = image
    return found.reshape(64, 64)


@settings(max_examples=30, deadline=None)
@given(rows=st.sampled_from((4, 8, 14)), between=st.integers(1, 8), outputs=st.integers(1, 32), seed=st.integers(0, 99))
def test_what_is_stored_transposed_is_the_right_factor_of_the_second_product(
    rows: int, between: int, outputs: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    sums = random.integers(-8, 8, (64, rows * 8)).astype(np.float32)
    sums[between * 8 :] = 0
    weights = random.integers(-8, 8, (outputs * 8, between * 8)).astype(np.float32)
    box = stored_transposed(sums)
    wanted = weights @ sums[: between * 8]
    for group in range(-(-outputs // 8)):
        left = boxes_of_weights(weights, group)
        found = sum(left[:, step * 16 : step * 16 + 16] @ right_factor(box, step) for step in range(4))
        there = wanted[group * 64 : group * 64 + 64]
        np.testing.assert_array_equal(found[: len(there)], there)
        assert not found[len(there) :].any()


# Which products suit.


@pytest.mark.parametrize(
    ("shapes", "steps", "n1"),
    [
        (RESNET, 4, 256), ({**RESNET, "v": "64,64,1,1"}, 4, 64),
        ({"x": "32,48,56,56", "w": "46,48,3,3", "v": "72,46,1,1"}, 3, 128),
    ],
)  # fmt: skip
def test_windows_side_by_side_over_few_channels_have_them_first(shapes: dict[str, str], steps: int, n1: int) -> None:
    found, _ = ranked(problem(two(SAME, **shapes)), H200)
    kinds = {ResidentChainTile, WgmmaChainTile} | (set() if n1 == 256 else {WarpChainTile})
    assert {type(tile) for _, tile in found[: len(kinds)]} == kinds
    tiles = [tile for _, tile in found if isinstance(tile, ResidentChainTile)]
    assert {(tile.steps, tile.n1) for tile in tiles} == {(steps, n1)}
    assert {tile.rows for tile in tiles} == {4, 8, 14}
    for tile in tiles:
        candidate = candidate_of(tile)
        assert tile_of(problem(two(SAME, **shapes)), candidate) == tile
        assert FAMILY.variants(problem(two(SAME, **shapes)), candidate, H200) == ()


def test_why_products_are_none() -> None:
    good = pair()
    assert refuse_chain(gpu(), good) is None
    assert A100.gpu is not None
    assert refuse_chain(A100.gpu, good) == "needs WGMMA"
    single = pair("", w="64,64,1,1")
    reason = "weights stay in registers for larger windows than 1x1"
    assert refuse_chain(gpu(), single) == reason
    wide = pair(w="72,64,3,3", v="256,72,1,1")
    reason = "keeps 64 columns at most beside weights in registers, here are 72"
    assert refuse_chain(gpu(), wide) == reason
    reason = "keeps second weights of 256 columns at most, here are 264"
    assert refuse_chain(gpu(), replace(good, second=replace(good.second, n=264))) == reason


def test_why_tiles_are_none() -> None:
    def refused(tile: ResidentChainTile, of: ProductChain) -> str | None:
        return tile.refuse(gpu(), of)

    assert refused(TILE, pair()) is None
    strided = pair("strides=[2,2] pads_begin=[1,1] pads_end=[1,1]")
    assert refused(TILE, strided) == "takes convolutions with a stride and a dilation of one"
    fewer = pair(x="32,48,56,56", w="64,48,3,3")
    assert refused(TILE, fewer) == "multiplies 64 channels a tap, here are 48"
    low = pair(x="32,64,4,56")
    assert refused(TILE, low) == "half of its rows would be beyond the 4 of an image"
    residual = ProductChain(pair().first, replace(pair().second, residual=True))
    high = replace(TILE, rows=24)
    assert refused(high, residual) == "weights and accumulators take 240 registers of a thread, which has 208"
    taller = replace(TILE, rows=16)
    assert refused(taller, residual) is None
    short = replace(gpu(), shared_memory=taller.least_bytes(residual.first, residual=True) - 1)
    reason = "needs 220160 bytes of shared memory, a block has 220159"
    assert taller.refuse(short, residual) == reason


def test_the_fastest_is_memory_bound_and_small_batches_take_low_tiles() -> None:
    def best(batch: int) -> tuple[float, ResidentChainTile]:
        of = problem(two(SAME, **{**RESNET, "x": f"{batch},64,56,56"}))
        found = [(s, tile) for s, tile in ranked(of, H200)[0] if isinstance(tile, ResidentChainTile)]
        return min(found, key=lambda each: each[0])

    assert best(1)[1].rows == 4
    assert best(32)[1].rows > 4
    moved = problem(two(SAME, **RESNET)).nbytes
    assert moved / H200.bandwidth < best(32)[0] < 2 * moved / H200.bandwidth


# C++.


def emitted(of: Graph, tile: ResidentChainTile) -> tuple[str, str, str]:
    """Member type, its arguments, and the source that instantiates the kernel."""
    wanted = problem(of)
    names = tuple(f"x{i}" for i in range(len(wanted.inputs)))
    prepare = tuple(name if wanted.inputs[i].constant else None for i, name in enumerate(names))
    code = FAMILY.emit(wanted, candidate_of(tile), H200, StepExpressions(names, ("y",), prepare))
    (unit,) = FAMILY.units([(wanted, candidate_of(tile))], H200)
    return str(code.member_type), code.member_arguments, unit.text


def test_the_kernel_and_its_weights_in_words() -> None:
    tile = ResidentChainTile(14, 2, 128)
    assert str(candidate_of(tile)) == "cutlass rows=14 n1=128 steps=2 resident=turns"
    assert str(tile) == "14x8 pixels in turns, weights of 32 channels in registers, then 128"
    assert str(TILE) == "8x8 pixels in turns, weights of 64 channels in registers, then 256"
    member, arguments, text = emitted(two(SAME, x="2,24,28,28", w="46,24,3,3", v="72,46,1,1"), tile)
    space = "bolt::cutlass_kernels"
    epilogue = f"{space}::Epilogue<{space}::Map<bolt::portable::Relu>>"
    cxx = f"{space}::ResidentPair<14, 2, 128, 3, 3>"
    assert member == f"{space}::PairConv<{cxx}, {epilogue}, {epilogue}, {space}::AsItIs>"
    # 24 channels, of which 32 are multiplied; 46 columns between become 48 of the second's depth.
    first = (
        f"{space}::ResidentFilter{{{space}::Filter{{.outputs = 46, .channels = 24, .rows = 3, .taps = 3, .to_taps = 3, "
        f".to_channels = 24}}, {space}::Fragments{{.outputs = 46, .taps_h = 3, .taps_w = 3, .depth = 24, .groups = 1, "
        f".steps = 2}}}}"
    )
    second = f"{space}::Filter{{.outputs = 72, .channels = 46, .rows = 1, .taps = 1, .to_taps = 1, .to_channels = 48}}"
    assert first in arguments
    assert second in arguments
    assert text == (
        '#include "bolt_cutlass/units/conv_resident_pair_kernel.h"\n\n'
        f"template void {space}::launch_conv(\n    {cxx},\n"
        f"    const {space}::ConvArguments&, const {space}::SecondArguments&,\n"
        f"    const {epilogue}&,\n    const {epilogue}&, void*);\n"
    )
