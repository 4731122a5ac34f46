"""Pairs of few channels, of which each warp computes whole rows by itself: which products suit, what is predicted, and
the C++ of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_tiles import candidate_of, ranked, tile_of
from pair_graphs import A100, FAMILY, H200, problem, proposed, two

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.cutlass.kinds.kind import gpu_of
from bolt_build.families.cutlass.kinds.warps.thin_chain import ThinChainTile, refuse_chain
from bolt_build.families.cutlass.product_chain import ProductChain, chain_of
from bolt_build.graph.ir import Graph
from bolt_build.targets import Gpu

GPU = gpu_of(H200)
TILE = ThinChainTile(40, 160, 40, 32, 12)


def mlp(channels: int, extent: int = 56, batch: int = 32) -> Graph:
    """1x1 convolutions to four times the channels and back, with GELU between."""
    between = 4 * channels
    return two(
        "", x=f"{batch},{channels},{extent},{extent}", w=f"{between},{channels},1,1", v=f"{channels},{between},1,1",
        stages=(" | gelu", ""),
    )  # fmt: skip


def thin(given: KernelProblem) -> list[ThinChainTile]:
    return [tile for _, tile in ranked(given, H200)[0] if isinstance(tile, ThinChainTile)]


# Which there are.


def test_tiles_have_exactly_the_columns_and_registers_for_their_warps() -> None:
    given = problem(mlp(40))
    found = thin(given)
    assert {(tile.rows, tile.warps) for tile in found} == {
        (16, 8), (16, 12), (16, 16), (16, 20), (32, 8), (32, 12),
    }  # fmt: skip
    for tile in found:
        assert (tile.k, tile.n0, tile.n1) == (40, 160, 40)
        assert tile.registers * 32 * tile.warps <= GPU.registers
        assert tile_of(given, candidate_of(tile)) == tile
    assert str(candidate_of(TILE)) == "cutlass k=40 n=160 n1=40 rows=32 warps=12"
    assert str(TILE) == "32 rows of 40 to 160 to 40 columns, 12 warps"


def test_channels_that_are_no_multiple_of_eight_are_read_as_their_copy_has_them() -> None:
    for alternative in proposed(two("", x="32,33,56,56", w="64,33,1,1", v="40,64,1,1"))[0]:
        assert {(tile.k, tile.n0, tile.n1) for tile in thin(alternative.steps[0].problem)} == {(40, 64, 40)}


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (two(), "rows of single warps are of no larger windows than 1x1"),
        (two("", w="160,48,1,1", v="104,160,1,1"), "a warp keeps 96 channels at most, here are 48 and 104"),
        (two("", w="40,48,1,1", v="48,40,1,1"), "takes 16 columns at once between the products, 40 is no multiple"),
    ],
)
def test_what_is_not_thin_says_why(of: Graph, reason: str) -> None:
    assert refuse_chain(GPU, chain_of(problem(of))) == reason


def test_gpus_whose_launches_do_not_overlap_have_none() -> None:
    assert refuse_chain(gpu_of(A100), chain_of(problem(mlp(40)))) == "rows of single warps need launches that overlap"


CHAIN = chain_of(problem(mlp(96)))


@pytest.mark.parametrize(
    ("tile", "gpu", "chain", "reason"),
    [
        (replace(TILE, warps=16), GPU, CHAIN, "a thread would need 148 registers, 16 warps leave it 128"),
        (ThinChainTile(96, 768, 96, 16, 8), GPU, CHAIN, "both weights are 298368 bytes, a block has 232448"),
        (TILE, GPU, chain_of(problem(mlp(40, 1, 1))), None),
    ],
)  # fmt: skip
def test_tiles_that_do_not_fit_say_why(tile: ThinChainTile, gpu: Gpu, chain: ProductChain, reason: str | None) -> None:
    assert tile.refuse(gpu, chain) == reason


# What is predicted.


@pytest.mark.parametrize(("channels", "extent"), [(24, 64), (40, 56), (48, 56), (64, 56)])
def test_mlps_of_first_stages_are_thin(channels: int, extent: int) -> None:
    """And sooner done than by two kernels."""
    (alternative,), _ = proposed(mlp(channels, extent))
    given = alternative.steps[0].problem
    assert min(ranked(given, H200)[0], key=lambda each: each[0])[1] in thin(given)
    apart = [FAMILY.predict(each, FAMILY.candidates(each, H200)[0][0], H200) for each in alternative.apart]
    assert alternative.seconds < 0.9 * sum(apart)


def test_a_single_image_is_no_work_for_so_many_warps() -> None:
    """Weights of all blocks take longer to come than warpgroups take for their one tile each."""
    found = ranked(problem(mlp(64, batch=1)), H200)[0]
    assert not isinstance(min(found, key=lambda each: each[0])[1], ThinChainTile)


def test_activations_between_are_counted_where_single_warps_share_tiles() -> None:
    """GELU of 128 columns a row takes as long as the rest of such a kernel."""
    of = {function: mlp(32) if function == "gelu" else relu(32) for function in ("gelu", "relu")}
    took = {
        function: min(seconds for seconds, tile in ranked(problem(graph), H200)[0] if hasattr(tile, "shared"))
        for function, graph in of.items()
    }
    assert took["gelu"] > 1.2 * took["relu"]


def relu(channels: int) -> Graph:
    wide = 4 * channels
    return two("", x=f"32,{channels},56,56", w=f"{wide},{channels},1,1", v=f"{channels},{wide},1,1")


# C++.


def test_a_thin_pair_is_called_and_instantiated() -> None:
    given, space = problem(mlp(40)), "bolt::cutlass_kernels"
    candidate = candidate_of(TILE)
    at = StepExpressions(
        ("r.arena(0)", *(f"r.weight({i})" for i in range(1, 5))), ("r.output(0)",),
        (None, *(f"p.weight({i})" for i in range(1, 5))),
    )  # fmt: skip
    code = FAMILY.emit(given, candidate, H200, at)
    tile = f"{space}::ThinPair<40, 160, 40, 32, 12>"
    between = f"{space}::Epilogue<{space}::Map<bolt::portable::Gelu>>"
    assert code.member_type == f"{space}::PairGemm<{tile}, {between}, {space}::Epilogue<>, {space}::AsItIs>"
    assert code.call == "kernel.run(r, r.arena(0), nullptr, r.output(0));"
    (unit,) = FAMILY.units([(given, candidate)], H200)
    assert unit.text == (
        '#include "bolt_cutlass/units/gemm_thin_pair_kernel.h"\n\n'
        f"template void {space}::launch_gemm(\n    {tile},\n"
        f"    const {space}::GemmArguments&, const {space}::SecondArguments&,\n"
        f"    const {between}&,\n    const {space}::Epilogue<>&, void*);\n"
    )
    assert (FAMILY.include_dir / "bolt_cutlass" / "units" / "gemm_thin_pair_kernel.h").is_file()
