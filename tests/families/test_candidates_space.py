"""The candidates of the tensor-core kernels: how many there are, why others are none, and their settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import graph_with
from gpu_products import conv, matmul
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import SINGLE, WGMMA_TILES, WgmmaTile
from bolt_build.families.cutlass.kinds.warps.warp import TILES, WarpTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind
from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.registry import KINDS
from bolt_build.targets import Gpu, Target, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
SLICED_TILES = (*TILES, *WGMMA_TILES)

# 3x3 convolutions: extent of the input, channels, filters, stride.
RESNET50 = (
    (56, 64, 64, 1), (56, 128, 128, 2), (28, 128, 128, 1), (28, 256, 256, 2), (14, 256, 256, 1), (14, 512, 512, 2),
    (7, 512, 512, 1),
)  # fmt: skip
VGG16 = (
    (224, 3, 64, 1), (224, 64, 64, 1), (112, 64, 128, 1), (112, 128, 128, 1), (56, 128, 256, 1), (56, 256, 256, 1),
    (28, 256, 512, 1), (28, 512, 512, 1), (14, 512, 512, 1),
)  # fmt: skip
REPVGG_A0 = (
    (224, 3, 48, 2), (112, 48, 48, 2), (56, 48, 48, 1), (56, 48, 96, 2), (28, 96, 96, 1), (28, 96, 192, 2),
    (14, 192, 192, 1), (14, 192, 1280, 2),
)  # fmt: skip


def gpu_of(target: Target) -> Gpu:
    assert target.gpu is not None
    return target.gpu


def conv_problem(
    extent: int, channels: int, filters: int, stride: int = 1, *, batch: int = 32, target: Target = H200
) -> KernelProblem:
    graph, node = graph_with(conv("c", (batch, channels, extent, extent), filters, (3, 3), stride))
    return FAMILY.propose(graph, node, target, DType.F16)[0][0].steps[0].problem


def matmul_problem(m: int, n: int, k: int) -> KernelProblem:
    graph, node = graph_with(matmul("m", (m, k), n, True, ()))
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def product(problem: KernelProblem) -> Product:
    return product_of(problem)


@pytest.mark.parametrize("layer", [*RESNET50, *VGG16, *REPVGG_A0], ids=lambda layer: "-".join(map(str, layer)))
def test_every_3x3_of_the_models_has_sixty_candidates_at_batch_32(layer: tuple[int, int, int, int]) -> None:
    problem = conv_problem(*layer)
    candidates, _ = FAMILY.candidates(problem, H200)
    assert len(candidates) >= 60
    assert len({candidate.digest for candidate in candidates}) == len(candidates)


@pytest.mark.parametrize("layer", RESNET50, ids=lambda layer: "-".join(map(str, layer)))
def test_candidates_stand_in_the_order_of_prediction(layer: tuple[int, int, int, int]) -> None:
    """But for the fastest of each kind, which are among the first six, or eight where there are as many."""
    problem = conv_problem(*layer)
    candidates, _ = FAMILY.candidates(problem, H200)
    seconds = [FAMILY.predict(problem, candidate, H200) for candidate in candidates]
    assert seconds[0] == min(seconds)
    assert [i for i in range(1, len(seconds)) if seconds[i] < seconds[i - 1]] in ([], [6], [7], [8])
    for kind in ("partial", "deep_cluster", "warpgroups", "warp_m", "resident"):
        of_kind = [c for c in candidates if kind in dict(c.parameters) and (kind == "partial" or "partial" not in
                   dict(c.parameters))]  # fmt: skip
        assert not of_kind or any(candidate in candidates[:8] for candidate in of_kind)


@given(st.sampled_from(SLICED_TILES), st.booleans())
def test_a_candidate_says_which_kernel_it_is(tile: WarpTile | WgmmaTile, partial: bool) -> None:
    kernel = Kernel(tile, partial)
    (kind,) = (kind for kind in KINDS if kind.reads(kernel.candidate()))
    assert isinstance(kind, ProductKind)
    assert kind.kernel_of(kernel.candidate()) == kernel


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 600), st.sampled_from((7, 16, 64, 96, 1000)), st.sampled_from((1, 9)))
def test_legal_kernels_fit_the_gpu(rows: int, channels: int, filters: int, taps: int) -> None:
    problem = conv_problem(8, 8, 8)
    depth = -(-channels // 8) * 8
    wanted = replace(product(problem), m=rows, n=filters, depth=depth, taps=taps)
    gpu = gpu_of(H200)
    for tile in SLICED_TILES:
        if tile.refuse(gpu, wanted) is not None:
            continue
        in_turns = isinstance(tile, WgmmaTile) and tile.schedule == "pingpong" and tile.k == 64
        assert tile.accumulators <= (192 if in_turns and taps == 1 else 128)
        if isinstance(tile, WgmmaTile):
            stages = tile.stages(gpu, wanted.residual)
            used = stages * (tile.m + tile.n) * tile.k * 2 + tile.store_bytes(wanted.residual)
            assert stages >= 3
            assert used + 3072 <= gpu.shared_memory
            assert tile.m % (64 * tile.warpgroups) == 0
            assert tile.accumulators <= {2: 192, 3: 96, 4: 64}.get(tile.warpgroups * tile.teams, 128)
            assert filters % 8 == 0
        else:
            assert tile.warps in (4, 8)
            assert tile.shared_bytes <= gpu.shared_memory


@settings(max_examples=60)
@given(
    st.sampled_from(SLICED_TILES), st.integers(1, 200), st.sampled_from((64, 96, 512)),
    st.integers(1, 400).map(lambda k: 8 * k), st.sampled_from((1, 9)),
)  # fmt: skip
def test_slices_are_alike_and_no_longer_than_the_depth(
    tile: WarpTile | WgmmaTile, rows: int, columns: int, depth: int, taps: int
) -> None:
    kind = "Gemm" if taps == 1 else "Conv"
    wanted = replace(product(conv_problem(8, 8, 8)), kernel=kind, m=rows, n=columns, depth=depth, taps=taps)
    for count in tile.counts(gpu_of(H200), wanted):
        steps = -(-depth // tile.k) * taps
        assert count * tile.blocks(rows, columns) <= 2 * gpu_of(H200).sms
        assert steps // count >= 4
        if kind == "Gemm":
            assert depth % count == 0
            assert depth // count % (64 if depth % 64 == 0 else 8) == 0
        else:
            assert steps % count == 0


def test_why_tiles_are_none() -> None:
    """Each rule of the hardware in its own words."""
    gpu, wide = gpu_of(H200), product(conv_problem(28, 256, 512))

    def tile(m: int, n: int, k: int, cooperative: bool = False, cluster: tuple[int, int] = (1, 1)) -> WgmmaTile:
        return WgmmaTile(m, n, k, cooperative, cluster)

    assert tile(128, 192, 64).refuse(gpu, wide) == (
        "its accumulators take 192 registers of a thread, over 128 do not stay in them"
    )
    assert tile(64, 256, 128).refuse(gpu, wide) == ("shared memory has room for 2 stages of its pipeline, 3 are needed")
    assert tile(64, 16, 64).refuse(gpu, wide) == ("a narrow tile reads the rows again for every 16 of 512 columns")
    assert tile(64, 128, 16).refuse(gpu, wide) == "steps of 16 are for few channels, here are 256"
    few = replace(wide, m=49)
    assert tile(64, 128, 64, cluster=(2, 1)).refuse(gpu, few) == "there are 1x4 tiles, fewer than in a cluster"
    assert tile(128, 128, 64).refuse(gpu, few) == "over half of its rows would be beyond the 49 of the product"
    assert WarpTile(128, 128, 32, 32, 32, 4).refuse(gpu, wide) == "is computed by 16 warps, 4 or 8 keep an SM busy"


@pytest.mark.parametrize(("n", "k"), [(768, 768), (2304, 768), (3072, 768), (768, 3072)])
def test_a_tile_of_three_warpgroups_is_tried_where_it_fills_the_waves(n: int, k: int) -> None:
    """Those of ViT-B/16 at batch 32: 6304 rows are 33 tiles of 192, times 4, 12 or 16 of 192 columns whole waves of
    132. So are tiles in turns and tiles together, and in clusters: tuning measures six unless told otherwise."""
    problem = matmul_problem(6304, n, k)
    tried = [dict(each.parameters) for each in FAMILY.candidates(problem, H200)[0][:6]]
    assert {"m": 192, "n": 192, "k": 64, "warpgroups": "cooperative"} in tried
    assert {"m": 128, "n": 128, "k": 64, "warpgroups": "pingpong"} in tried
    assert any(each.get("warpgroups") == "cooperative" and each["m"] != 192 for each in tried)
    assert any(each.get("warpgroups") == "pingpong" and "cluster" in each for each in tried)


def test_three_warpgroups_share_192_rows() -> None:
    gpu, wide = gpu_of(H200), product(matmul_problem(6304, 768, 768))
    tile = WgmmaTile(192, 192, 64, cooperative=True)
    assert (tile.warpgroups, tile.accumulators, tile.teams) == (3, 96, 1)
    assert tile.refuse(gpu, wide) is None
    assert tile.cxx(wide, gpu) == "bolt::cutlass_kernels::WarpgroupTile<192, 192, 64, true, 1, 1>"
    assert replace(tile, n=256).refuse(gpu, wide) == (
        "a thread would hold 128 sums, three warpgroups leave room for 96"
    )
    # Boxes of its residual take what a fourth stage would.
    assert (tile.stages(gpu, residual=False), tile.stages(gpu, residual=True)) == (4, 3)


def test_a_single_warpgroup_leaves_half_of_a_multiprocessor() -> None:
    """Two blocks of 113 KiB, each of which the system takes 1 KiB beside, are the 228 KiB of a multiprocessor."""
    gpu, image = gpu_of(H200), product(matmul_problem(197, 3072, 768))
    tile = WgmmaTile(64, 96, 64, cooperative=False, single=True)
    assert tile in SINGLE
    assert (tile.warpgroups, tile.teams, tile.accumulators) == (1, 1, 48)
    assert tile.cxx(image, gpu) == "bolt::cutlass_kernels::WarpgroupTile<64, 96, 64, false, 1, 1, 1>"
    assert str(Kernel(tile).candidate()) == "cutlass m=64 n=96 k=64 warpgroups=single"
    for each in SINGLE:
        stages = each.stages(gpu, residual=True)
        if each.refuse(gpu, image) is None:
            assert stages * each.stage_bytes + each.store_bytes(residual=True) + 2048 <= 113 * 1024
    assert tile.refuse(gpu, image) is None
    assert tile.refuse_whole(gpu, image) is None
    assert tile.refuse_whole(gpu, replace(image, m=32 * 197)) == (
        "3168 tiles are more than 2 blocks on each of 132 multiprocessors"
    )


def test_single_warpgroups_are_tried_at_batch_1_behind_tiles_in_turns() -> None:
    """Nothing is known yet of what they gain: without a lock a tile in turns is taken."""
    candidates = FAMILY.candidates(matmul_problem(197, 2304, 768), H200)[0]
    assert dict(candidates[0].parameters)["warpgroups"] == "pingpong"
    assert any(dict(each.parameters).get("warpgroups") == "single" for each in candidates[:6])


def test_why_tiles_do_not_suit_a_product() -> None:
    gpu, wide = gpu_of(H200), product(conv_problem(28, 256, 512))
    small = replace(wide, m=200, n=512)
    assert WGMMA_TILES[0].refuse_whole(gpu, small) == (
        "8 tiles leave most of 132 multiprocessors idle, smaller ones do not"
    )
    assert WGMMA_TILES[0].refuse_whole(gpu, replace(wide, m=128 * 34)) == (
        "136 tiles fill little more than half of 2 waves over 132 multiprocessors"
    )
    assert WGMMA_TILES[0].refuse_whole(gpu, wide) is None


def test_why_products_are_not_sliced() -> None:
    gpu, tile = gpu_of(H200), WGMMA_TILES[3]
    deep = product(conv_problem(7, 512, 512, batch=1))
    assert tile.refuse_slices(gpu, deep) is None
    assert (
        tile.refuse_slices(gpu, replace(deep, taps=1))
        == "a depth of 512 is too short for split-K, which pays from 1024 on"
    )
    assert tile.refuse_slices(gpu, replace(deep, m=32 * 49)) == "200 tiles fill 132 multiprocessors without split-K"
    prime = replace(deep, kernel="Gemm", taps=1, depth=8 * 137)
    assert tile.refuse_slices(gpu, prime) == "a depth of 1096 cannot be cut into equal slices of at least 4 steps of 64"


def test_few_deep_tiles_are_tried_in_slices() -> None:
    """One image through 512 channels of 7x7: eight tiles of 64 columns for 132 multiprocessors."""
    problem = conv_problem(7, 512, 512, batch=1)
    first = next(each for each in FAMILY.candidates(problem, H200)[0] if "partial" in dict(each.parameters))
    variants = FAMILY.variants(problem, first, H200)
    assert 1 <= len(variants) <= 4
    ((name, predicted),) = first.settings
    assert name == "slices"
    assert arguments(problem, first).endswith(f".slices = {predicted}}}")
    assert predicted not in {value for variant in variants for _, value in variant.settings}
    assert [variant.compiled for variant in variants] == [first.compiled] * len(variants)


def arguments(problem: KernelProblem, candidate: Candidate) -> str:
    """The C++ value of the kernel's shape and settings."""
    count = len(problem.inputs)
    names = tuple(f"x{i}" for i in range(count))
    prepare = tuple(name if problem.inputs[i].constant else None for i, name in enumerate(names))
    code = FAMILY.emit(problem, candidate, H200, StepExpressions(names, ("y",), prepare))
    return code.member_arguments.split("Arguments", 1)[1].split("}", 1)[0] + "}"


def test_settings_are_arguments_of_the_same_kernel() -> None:
    problem = conv_problem(28, 512, 512)
    plain = Kernel(WGMMA_TILES[0]).candidate()
    variants = FAMILY.variants(problem, plain, H200)
    assert [dict(variant.settings) for variant in variants] == [
        {"swizzle": 2}, {"swizzle": 4}, {"along": "m"}, {"swizzle": 4, "along": "m"},
    ]  # fmt: skip
    assert ".swizzle" not in arguments(problem, plain)
    assert arguments(problem, variants[3]).endswith(".swizzle = 4, .along = 1}")
    units = {unit.name for variant in (plain, *variants) for unit in FAMILY.units([(problem, variant)], H200)}
    assert len(units) == 1


def test_tiles_of_one_wave_have_one_order() -> None:
    problem = conv_problem(14, 256, 256, batch=1)
    assert FAMILY.variants(problem, Kernel(WGMMA_TILES[0]).candidate(), H200) == ()


def test_sums_of_slices_serve_every_epilogue() -> None:
    silent = matmul_problem(32, 1000, 2048)
    graph, node = graph_with(conv("c", (32, 2048, 1, 1), 1000, (1, 1)))
    rectified = FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem
    kernel = Kernel(WGMMA_TILES[2], partial=True).candidate()
    units = {FAMILY.units([(problem, kernel)], H200)[0] for problem in (silent, rectified)}
    (unit,) = units
    assert "const bolt::cutlass_kernels::Partial&" in unit.text
    whole = Kernel(WGMMA_TILES[2]).candidate()
    assert len({FAMILY.units([(problem, whole)], H200)[0].name for problem in (silent, rectified)}) == 2


def test_a_cluster_is_part_of_the_kernel() -> None:
    problem = conv_problem(56, 64, 64)
    kernel = Kernel(WgmmaTile(128, 64, 64, False, (2, 1))).candidate()
    assert dict(kernel.parameters)["cluster"] == "2x1"
    (unit,) = FAMILY.units([(problem, kernel)], H200)
    assert "WarpgroupTile<128, 64, 64, false, 2, 1>" in unit.text


def test_what_padding_and_copies_cost() -> None:
    plain = conv_problem(28, 128, 128)
    found = FAMILY.expense(plain)
    assert (found.nbytes, found.flops, found.why) == (plain.nbytes, plain.flops, "")
    padded = conv_problem(28, 12, 64)
    found = FAMILY.expense(padded)
    assert found.flops - padded.flops == 2 * (32 * 28 * 28) * 64 * 4 * 9
    copy = 32 * 28 * 28 * 16 * 2
    x = padded.inputs[0].nbytes
    weights = (64 * 16 * 9 - 64 * 12 * 9) * 2
    assert found.nbytes == padded.nbytes + 2 * copy + weights
    assert found.why == f"weights padded from 6912 to 9216 values; input of {x} bytes copied to {copy}"


def test_other_gpus_have_no_tiles_of_warpgroups() -> None:
    problem = conv_problem(56, 64, 64, target=A100)
    candidates, refusals = FAMILY.candidates(problem, A100)
    assert all("warpgroups" not in dict(candidate.parameters) for candidate in candidates)
    reasons = {refusal.reason for refusal in refusals if refusal.what == f"tile {WGMMA_TILES[0]}"}
    assert reasons == {"needs WGMMA"}


def test_windows_further_apart_than_the_copy_engine_steps_are_left_to_other_kernels() -> None:
    """The patches of a vision transformer: windows of 16 x 16 that do not overlap."""
    graph, node = graph_with(conv("patches", (2, 3, 224, 224), 768, (16, 16), 16, ((0, 0), (0, 0))))
    problem = FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem
    candidates, refusals = FAMILY.candidates(problem, H200)
    assert candidates
    assert not any("warpgroups" in dict(candidate.parameters) for candidate in candidates)
    reason = "the stride is 16, TMA takes 8 at most"
    assert reason in {refusal.reason for refusal in refusals}
