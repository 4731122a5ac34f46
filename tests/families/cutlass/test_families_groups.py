"""Convolutions with groups as products side by side on Hopper: which tiles suit, how they are predicted, and what is
emitted for them."""

from __future__ import annotations

from families_harness import graph_with
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import pairs, together, turns
from gpu_groups import group_trials
from gpu_products import GELU, RESIDUAL, conv
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GROUP_TILES, GroupedWgmma, GroupTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.families.cutlass.registry import KINDS, kind_of
from bolt_build.families.grouped.family import Grouped
from bolt_build.targets import target_named

H200 = target_named("h200")
FAMILY = Cutlass()
(GROUPS,) = (kind for kind in KINDS if type(kind) is GroupedWgmma)
ARGUMENTS = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"), (0,), (0, 0, 0))


def problem(
    x: tuple[int, ...], filters: int, kernel: tuple[int, ...], groups: int, stride: int = 1, *, residual: bool = False
) -> KernelProblem:
    layer = conv("c", x, filters, kernel, stride, groups=groups, epilogue=RESIDUAL if residual else GELU)
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def stated(tile: WgmmaTile | BandTile, groups: int = 1) -> Candidate:
    return Candidate("cutlass", GroupTile(tile, groups).parameters)


def best(family: Cutlass | Grouped, of: KernelProblem) -> tuple[float, Candidate]:
    found = family.candidates(of, H200)[0]
    return min(((family.predict(of, each, H200), each) for each in found), key=lambda offered: offered[0])


UP, DOWN = problem((32, 768, 128), 3072, (1,), 4), problem((32, 3072, 128), 768, (1,), 4)
"""SqueezeBERT's feed-forward layer at batch 32, 128 tokens."""


def test_large_groups_take_far_less_than_on_the_instructions_of_one_warp() -> None:
    for layer in (UP, DOWN):
        seconds, candidate = best(FAMILY, layer)
        assert kind_of(layer, candidate) is GROUPS
        assert seconds < 0.65 * best(Grouped(), layer)[0]
        bound = max(layer.nbytes / H200.bandwidth, layer.flops / H200.rate("fp16"))
        assert seconds < 3 * bound


def test_windows_of_groups_that_are_no_whole_tiles_share_bands() -> None:
    # RegNetY-160 and RegNetX-320: groups of 112 and 168 channels.
    for channels, groups in ((1232, 11), (1344, 8)):
        layer = problem((32, channels, 14, 14), channels, (3, 3), groups)
        seconds, candidate = best(FAMILY, layer)
        assert isinstance(GROUPS.tile_of(candidate).tile, BandTile)
        assert seconds < 0.6 * best(Grouped(), layer)[0]


@given(st.sampled_from(GROUP_TILES))
def test_a_candidate_says_which_tile_it_is(tile: GroupTile) -> None:
    candidate = Candidate("cutlass", tile.parameters)
    assert GROUPS.tile_of(candidate) == tile
    assert kind_of(UP, candidate) is GROUPS


def test_each_group_begins_with_a_tile_and_a_tile_has_a_few_small_groups() -> None:
    what = GROUPS.computed(problem((2, 280, 7, 9), 200, (1, 1), 5))
    assert (what.channels, what.outputs, what.groups) == (56, 40, 5)
    assert GroupTile(turns(64, 64, 64), 1).columns(what) == 5 * 64
    assert GroupTile(turns(64, 32, 64), 1).columns(what) == 5 * 64
    few = GROUPS.computed(problem((2, 256, 7, 9), 256, (1, 1), 8))
    tile = GroupTile(turns(64, 128, 64), 4)
    assert (tile.columns(few), tile.product(few).n, tile.product(few).depth) == (256, 128, 128)
    assert str(tile) == "64x128x64 pingpong of 4 groups"
    expense = FAMILY.expense(problem((2, 256, 7, 9), 256, (1, 1), 8), stated(turns(64, 128, 64), 4))
    assert expense.why == "groups padded from 2064384 operations to 8257536"


def why(of: KernelProblem, tile: WgmmaTile | BandTile, groups: int = 1) -> str | None:
    return FAMILY.refuse(of, stated(tile, groups), H200)


def test_why_tiles_are_none() -> None:
    assert why(UP, turns(128, 128, 64)) is None
    assert why(UP, turns(128, 128, 64), 2) == "has no room for 2 groups of 768 outputs"
    assert why(UP, band_together(128, 160)) == "is for windows of several taps"
    assert why(UP, turns(64, 32, 64)) == "a narrow tile reads the rows again for every 32 of 768 columns"
    odd = problem((32, 280, 14, 14), 200, (1, 1), 5)
    assert why(odd, turns(128, 96, 64), 2) == "5 groups are no multiple of the 2 that it computes together"
    assert why(odd, turns(128, 128, 64)) == "over half of its columns would be beyond the 40 of the product"
    assert why(odd, turns(128, 64, 128)) == "half of its depth would be beyond the 56 of the product"
    beside = stated(turns(128, 64, 64, (1, 2)))  # blocks side by side would have columns of two groups
    assert FAMILY.refuse(odd, beside, H200) == f"{beside} is none of its candidates"
    whole = problem((32, 256, 14, 14), 256, (3, 3), 2)
    assert why(whole, band_turns(128, 128)) == (
        "bands of whole groups, or of whole parts of one, begin wherever a tile does"
    )
    assert why(problem((32, 336, 14, 14), 336, (3, 3), 2), band_turns(128, 96)) is None


def test_windows_that_are_the_whole_image_are_left_to_other_families() -> None:
    graph, node = graph_with(conv("c", (8, 256, 7, 7), 256, (7, 7), groups=2, pads=((0, 0), (0, 0))))
    refusals = FAMILY.propose(graph, node, H200, DType.F16)[1]
    assert "channels of a group lie apart in a window that is the whole image" in {str(r.reason) for r in refusals}


def test_older_gpus_have_none() -> None:
    graph, node = graph_with(conv("c", (8, 768, 128), 768, (1,), groups=4))
    found, refusals = FAMILY.propose(graph, node, target_named("a100"), DType.F16)
    assert found == ()
    assert "needs WGMMA" in {str(refusal.reason) for refusal in refusals}


def test_what_is_emitted_for_a_matrix_product() -> None:
    candidate = stated(pairs(128, 96, 64))
    code = FAMILY.emit(UP, candidate, H200, ARGUMENTS)
    assert "GemmArguments{.m = 4096, .n = 3072, .k = 768, .groups = 4}" in code.member_arguments
    assert (
        "GroupedFilter{.outputs = 3072, .of_group = 768, .channels = 192, .taps = 1, .row = 192, .span = 768}"
        in code.member_arguments
    )
    (unit,) = FAMILY.units([(UP, candidate)], H200)
    assert unit.text == (
        '#include "bolt_cutlass/units/gemm_groups_kernel.h"\n\n'
        "template void bolt::cutlass_kernels::launch_gemm(\n"
        "    bolt::cutlass_kernels::GroupTile<bolt::cutlass_kernels::WarpgroupTile<128, 96, 64, true, 1, 1, 2>>,\n"
        "    const bolt::cutlass_kernels::GemmArguments&,\n"
        "    const bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Gelu>>&, void*);\n"
    )


def test_what_is_emitted_for_windows_of_several_groups_together() -> None:
    layer = problem((32, 224, 14, 14), 160, (3, 3), 4)
    candidate = stated(band_turns(64, 96), 2)
    code = FAMILY.emit(layer, candidate, H200, ARGUMENTS)
    assert ".dilation_w = 1, .groups = 2, .x_image" in code.member_arguments
    assert (
        "GroupedFilter{.outputs = 160, .of_group = 40, .channels = 56, .taps = 9, .row = 112, .span = 80}"
        in code.member_arguments
    )
    (unit,) = FAMILY.units([(layer, candidate)], H200)
    assert '#include "bolt_cutlass/units/conv_groups_kernel.h"\n' in unit.text
    # The last run of both groups' channels has 48 of 64.
    assert "GroupTile<bolt::cutlass_kernels::BandTile<64, 96, 64, false, 2, 1, 96, 2, 3, 3, 3, 1, 64, 1>>," in unit.text


def test_rows_that_lie_apart_are_read_and_stored_where_they_are() -> None:
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"), (3200,), (800, 0, 0))
    code = FAMILY.emit(UP, stated(together(128, 128, 64)), H200, at)
    assert ".groups = 4, .y_row = 3200, .x_row = 800}" in code.member_arguments


def test_trials_are_of_every_schedule_and_several_groups_together() -> None:
    tried = [GROUPS.tile_of(trial.candidate) for trial in group_trials()]
    assert {each.tile.schedule for each in tried} == {"pingpong", "cooperative", "pairs", "single"}
    assert {(type(each.tile), each.groups) for each in tried} >= {(WgmmaTile, 1), (WgmmaTile, 4), (BandTile, 2)}
