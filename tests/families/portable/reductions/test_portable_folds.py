"""Reductions, places and running sums of rows that begin anywhere: what candidates state, what is refused and why,
which kernel is offered first, and that old locks' plain kernels stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fold_problems import AT, FAMILY, H100, asked
from gpu_folds import Tile, candidate
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.portable.kernels.lines.scan_slabs import ScanSlabTile
from bolt_build.families.portable.kernels.lines.scans import ScanColumnsTile, ScanRunsTile
from bolt_build.families.portable.kernels.places.counted_places import CountTile
from bolt_build.families.portable.kernels.places.drawn_places import DrawTile
from bolt_build.families.portable.kernels.places.few_places import FewTile
from bolt_build.families.portable.kernels.places.selected_places import SelectTile
from bolt_build.families.portable.kernels.places.sifted_places import PartTile, SiftTile
from bolt_build.families.portable.kernels.places.sorted_places import SortTile
from bolt_build.families.portable.kernels.reductions.fold_clusters import ClusterTile
from bolt_build.families.portable.kernels.reductions.fold_columns import ColumnsTile
from bolt_build.families.portable.kernels.reductions.fold_pixels import PixelsTile
from bolt_build.families.portable.kernels.reductions.fold_runs import RunClusterTile, RunsTile
from bolt_build.families.portable.kernels.reductions.fold_slabs import SlabTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.lines import CumProd, CumSum, Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.targets import HOST, target_named

DIRECT = Candidate("portable", (("algorithm", "direct"),))
ROW, LAST = Layout.ROW, Layout.CHANNELS_LAST


ROWS, ALL = asked(Reduce("sum", (2,), False), 32, 1024, 197), asked(Reduce("sum", (1, 2), False), 32, 512, 1025)
SHORT = asked(Reduce("sum", (2,), False), 32, 1024, 97)
PIXELS = asked(Reduce("mean", (2, 3)), 32, 90, 56, 56, layout=LAST)
HEADS, TOP = asked(Reduce("mean", (1,), False), 32, 12, 197, 197), asked(Places(2, 300), 32, 80, 1000)
DOWN, ALONG = asked(CumSum(1), 32, 512, 768), asked(CumProd(2, True), 32, 512, 1001)
ROWS_DOWN = asked(Reduce("sum", (1,), False), 32, 197, 333)
WIDE = asked(Places(1, 9), 4, 100, dtype=DType.I64)
KNN, LONG = asked(Places(1, 16), 512, 1024), asked(Places(1, 50), 8, 1 << 17)
U8_TOTALS = "clusters: totals of 1 bytes are no words that blocks read of each other"


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (ROWS, RunsTile(8, 8, 1), None),
        (ROWS, RunsTile(8, 4, 1), "4 threads of a result do not read runs by 8"),
        (ROWS, RunsTile(8, 64, 1), "64 threads of a result do not read runs by 8"),
        (ROWS, RunsTile(8, 32, 2), "blocks share a result that all of their threads have"),
        (ROWS, RunsTile(8, 256, 2), "1 parts of a result are not shared by 2 blocks"),
        (ROWS, RunsTile(1, 256, 7), "32768 groups of results are more than the 4096 that there are counters for"),
        (ALL, RunsTile(32, 256, 513), None),
        (ALL, RunsTile(32, 256, 514), "513 parts of a result are not shared by 514 blocks"),
        (HEADS, ColumnsTile(256, 1), None),
        (HEADS, ColumnsTile(2, 1), "no 2 threads of a block lie side by side"),
        (HEADS, ColumnsTile(256, 13), "12 parts of a result are not shared by 13 blocks"),
        (HEADS, ColumnsTile(4, 3), "38816 groups of results are more than the 4096 that there are counters for"),
        (ALL, RunClusterTile(32, 8), None),
        (ALL, RunClusterTile(32, 16), "up to 32 threads read a run, of clusters of 2, 4 or 8 blocks"),
        (asked(Reduce("sum", (1,)), 4, 9001), RunClusterTile(32, 2), "9 parts of a result are not shared by 2 blocks"),
        (SHORT, SlabTile(8, 64), None),
        (SHORT, SlabTile(3, 64), "64 runs of 3 threads each are no turns of a block of 256"),
        (SHORT, SlabTile(32, 8), None),
        (SHORT, SlabTile(8, 256), "slabs of 53248 bytes are more than the 49152 of a block"),
        (asked(Reduce("sum", (1,)), 4096, 33, dtype=DType.I8), SlabTile(32, 8),
         "8 runs are no multiple of the 16 elements of a word"),
        (PIXELS, PixelsTile(256, 156), None),
        (PIXELS, PixelsTile(256, 158), "157 parts of a result are not shared by 158 blocks"),
        (PIXELS, PixelsTile(128, 1), "there are blocks of 256 or 512 threads"),
        (ROWS_DOWN, PixelsTile(256, 1), "channels repeat after 333 words, a block has 256 threads"),
        (asked(Places(1, 1), 4, 99, 57, dtype=DType.U8), PixelsTile(512, 1),
         "totals of 58368 bytes are more than the 49152 of a block"),
        (PIXELS, ClusterTile(256, 8), None),
        (PIXELS, ClusterTile(256, 16), "there are clusters of 2, 4 or 8 blocks"),
        (asked(Reduce("mean", (1,), False), 3, 401, 57), ClusterTile(512, 8),
         "7 parts of an image are not shared by 8 blocks"),
        (asked(Reduce("sum", (1,), False), 3, 4001, 57, dtype=DType.U8), ClusterTile(512, 8), U8_TOTALS),
        (TOP, SortTile(32, 32, 32), None),
        (TOP, SortTile(32, 64, 64), "32 threads do not sort 64 keys each"),
        (TOP, SortTile(32, 16, 32), None),
        (TOP, SortTile(32, 16, 16), "1000 elements are more than 32 threads hold"),
        (TOP, SortTile(32, 8, 32), "256 keys have no room for 300 elements"),
        (TOP, SortTile(256, 4, 8), "256 threads that sort 4 keys each do not hold 8"),
        (TOP, SortTile(1024, 1, 0), None),
        (TOP, SelectTile(32, 32, 11), None),
        (TOP, SelectTile(96, 11, 11), "96 threads do not hold 11 elements each"),
        (TOP, SelectTile(32, 33, 11), "32 threads do not hold 33 elements each"),
        (TOP, SelectTile(32, 31, 11), "1000 elements are more than 32 threads hold"),
        (TOP, SelectTile(32, 32, 10), "threads of a warp sort an odd number of keys each, up to 33, not 10"),
        (asked(Places(1, 1000), 4, 9000, dtype=DType.I32), SelectTile(512, 18, 33),
         "keys and elements take 137 registers of a thread, 512 threads have 128"),
        (TOP, SelectTile(32, 32, 9), "288 keys have no room for 300 elements"),
        (KNN, FewTile(16, 16, 2, 8), None),
        (KNN, FewTile(3, 16, 2, 8), "no line has 3 threads"),
        (KNN, FewTile(16, 8, 2, 8), "keeps 16 keys for 16 elements, not 8"),
        (asked(Places(1, 16), 40, 1001), FewTile(16, 16, 2, 8), "lines of 1001 elements are not loaded 8 at a time"),
        (KNN, FewTile(16, 16, 1, 8), "8 elements at once are not sorted in runs of 16"),
        (KNN, FewTile(1, 16, 2, 8), "a thread would ask 64 times, at most 16 are worth it"),
        (KNN, SiftTile(32, 32, 4, 128, 128, 16), None),
        (KNN, SiftTile(32, 24, 4, 128, 128, 16), "1024 elements are more than 32 threads hold"),
        (KNN, SiftTile(32, 72, 4, 128, 128, 16), "32 threads do not hold 72 elements each"),
        (KNN, SiftTile(96, 16, 4, 288, 512, 4), "no line has 96 threads"),
        (KNN, SiftTile(32, 32, 6, 192, 128, 16), "threads do not sort 6 keys of 4 bytes each"),
        (KNN, SiftTile(64, 16, 4, 256, 256, 4), "64 threads that sort 4 keys each have no room for 256"),
        (KNN, SiftTile(64, 16, 4, 192, 128, 4), "64 threads do not add up 128 bins"),
        (KNN, SiftTile(32, 32, 36, 1152, 1024, 16), "takes 53424 bytes of shared memory, a block has 49152"),
        (KNN, SiftTile(32, 32, 4, 128, 128, 17), "no 17 elements of a thread are a group"),
        (asked(Places(1, 200), 40, 1024), SiftTile(32, 32, 4, 128, 128, 2), "128 keys have no room for 200 elements"),
        (LONG, PartTile(8192, 256, 32, 4, 256, 1024, 16, 256, 16, 4, 256, 1024, 8), None),
        (LONG, PartTile(1 << 17, 256, 32, 4, 256, 1024, 16, 256, 16, 4, 256, 1024, 8),
         "lines of 131072 elements have no parts of 131072"),
        (LONG, PartTile(8200, 256, 32, 4, 256, 1024, 16, 256, 16, 4, 256, 1024, 8),
         "8200 elements are more than 256 threads hold"),
        (LONG, PartTile(8192, 256, 32, 4, 256, 1024, 16, 128, 16, 4, 128, 512, 8),
         "128 threads do not hold 16 keys each of 4096"),
        (LONG, PartTile(8192, 256, 32, 4, 256, 1024, 16, 256, 16, 4, 256, 512, 8),
         "256 threads do not add up 512 bins"),
        (LONG, PartTile(8192, 256, 32, 4, 256, 1024, 16, 256, 16, 4, 256, 1024, 17),
         "no 17 elements of a thread are a group"),
        (KNN, DrawTile(40), None),
        (KNN, DrawTile(44), "threads hold up to 64 elements, pairs in whole words, not 44"),
        (KNN, DrawTile(24), "threads have 32 elements, not 24"),
        (asked(Places(1, 9), 40, 2049), DrawTile(64), "drawn: threads of a warp hold 64 elements at most, not 72"),
        (asked(Places(1, 9), 40, 300, dtype=DType.I32), DrawTile(10), None),
        (asked(Places(1, 9), 40, 300, 3), DrawTile(9), "threads have 10 elements, not 9"),
        (WIDE, CountTile(64), None),
        (WIDE, CountTile(96), "no line has 96 threads"),
        (DOWN, ScanColumnsTile(8, 4), None),
        (DOWN, ScanColumnsTile(16, 4), "16 elements of 2 bytes are not one access"),
        (DOWN, ScanColumnsTile(8, 2), "no 2 threads have lines side by side"),
        (asked(CumSum(1), 2, 9, 12), ScanColumnsTile(8, 4), "12 lines side by side are no whole accesses of 8"),
        (asked(CumSum(1), 2, 9, 12), ScanSlabTile(1, 9), None),
        (asked(CumSum(1), 2, 9, 12), ScanSlabTile(2, 9), "of 9 rows 9 do not come in 2 parts at once"),
        (asked(CumSum(1), 2, 9, 12), ScanSlabTile(3, 8), "one part or two are in shared memory, not 3"),
        (asked(CumSum(1), 2, 9, 600), ScanSlabTile(1, 9), "slabs: 600 lines are more than the 512 threads of a block"),
        (asked(CumSum(1), 2, 9000, 65), ScanSlabTile(1, 9000),
         "takes 1174128 bytes of shared memory, a block has 232448"),
        (ALONG, ScanRunsTile(32), None),
        (ALONG, ScanRunsTile(64), "no line has 64 threads"),
        (ALONG, ScanRunsTile(32, 2), "blocks share a line that all of their threads have"),
        (ALONG, ScanRunsTile(256, 2), "1 parts of a line are not shared by 2 blocks"),
    ],
    ids=str,
)  # fmt: skip
def test_a_cut_that_is_not_legal_has_a_reason(problem: KernelProblem, tile: Tile, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate(tile), H100) == reason


@pytest.mark.parametrize(
    ("problem", "reasons"),
    [
        (ROWS, []),
        (WIDE, [f"{form}: keys have no room for i64 and a place"
                for form in ("sorted", "binned", "selected", "few", "few_lines", "sifted", "parted", "drawn")]),
        (asked(Places(1, 5000), 4, 9000),
         ["sorted: sorts up to 4096 elements, not 5000", "binned: puts up to 2048 elements in bins, not 9000",
          "selected: a warp sorts up to 1056 elements, not 5000",
          "few: threads keep up to 16 keys, not 5000", "few_lines: threads keep up to 16 keys, not 5000",
          "sifted: no threads hold 9000 elements and sift out most, where 5000 are wanted",
          "parted: no parts of 9000 elements leave few enough to be put in order, where 5000 are wanted",
          "drawn: a warp draws up to 32 elements, not 5000",
          "bounded: keys have room for f16 and a place"]),
        (asked(Places(1, 300), 4, 20000),
         ["binned: puts up to 2048 elements in bins, not 20000",
          "selected: threads hold up to 16384 elements of a line, not 20000",
          "few: threads keep up to 16 keys, not 300", "few_lines: threads keep up to 16 keys, not 300",
          "drawn: a warp draws up to 32 elements, not 300",
          "bounded: keys have room for f16 and a place"]),
        (asked(Places(1, 9, True, True), 4, 9000),
         [*(f"{form}: takes the first of equal elements, not the last"
            for form in ("binned", "few", "few_lines", "sifted", "parted", "drawn")),
          "bounded: keys have room for f16 and a place", "counted: takes the first of equal elements, not the last"]),
        (asked(Places(1, 9), 1 << 10, 1 << 17, dtype=DType.I64),
         [*(f"{form}: keys have no room for i64 and a place"
            for form in ("sorted", "binned", "selected", "few", "few_lines", "sifted", "parted", "drawn")),
          "counted: takes 4294967296 bytes beside its tensors, at most 1073741824 are kept"]),
        (asked(Reduce("sum", (1,)), 1 << 16, 1 << 16),
         ["runs: 4294967296 elements are more than the 2147483584 that it counts"]),
        (asked(CumSum(1), 1 << 16, 1 << 16),
         [f"{form}: 4294967296 elements are more than the 2147483584 that it counts" for form in ("runs", "passed")]),
        (asked(Reduce("sum", (1,)), 4, 0), ["runs: there are no elements"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_such_kernel_has_a_reason_and_the_plain_one(problem: KernelProblem, reasons: list[str]) -> None:
    candidates, refused = FAMILY.candidates(problem, H100)
    assert [each.reason for each in refused if "faster" not in each.reason and each.what == problem.op.kind] == reasons
    assert DIRECT in candidates


@pytest.mark.parametrize(
    ("problem", "first"),
    [
        (ROWS, RunsTile(8, 8, 1)),
        (ALL, RunsTile(32, 256, 17)),
        (asked(Reduce("sum", (0, 1, 2)), 32, 512, 1025), RunsTile(32, 256, 528)),
        (asked(Reduce("mean", (1, 3), False), 32, 12, 197, 197), RunsTile(8, 16, 1)),
        (asked(Reduce("l1", (2,), False), 32, 512, 1001, dtype=DType.I32), None),
        (HEADS, ColumnsTile(256, 1)),
        (PIXELS, ClusterTile(256, 8)),
        (asked(Places(2, 1), 32, 512, 1001), RunsTile(16, 16, 1)),
        (asked(Places(1, 1), 32, 21, 256, 256), ColumnsTile(256, 1)),
        (TOP, SelectTile(32, 32, 11)),
        (asked(Places(1, 300), 1, 24000), None),
        (asked(Places(1, 2), 1 << 17, 8), FewTile(1, 2, 1, 8)),
        (DOWN, None),
        (ALONG, ScanRunsTile(32)),
        (asked(CumSum(1), 4, 100000), None),
    ],
    ids=str,
)  # fmt: skip
def test_where_rows_begin_anywhere_or_results_are_few_a_form_leads(problem: KernelProblem, first: Tile | None) -> None:
    found = FAMILY.candidates(problem, H100)[0]
    assert found[0] != DIRECT
    if first is not None:
        assert found[0] == candidate(first)


@pytest.mark.parametrize(
    "problem",
    [
        asked(Reduce("mean", (2,), False), 256, 128, 768),
        asked(Reduce("mean", (1,), False), 32, 128, 768),
        asked(Reduce("max", (1,)), 32, 256, 56, 56),
        asked(Reduce("mean", (2, 3)), 32, 2048, 7, 7, layout=LAST),
        asked(Reduce("mean", (2, 3)), 1, 96, 56, 56, layout=LAST),
    ],
    ids=str,
)
def test_where_plain_kernels_load_whole_accesses_they_lead(problem: KernelProblem) -> None:
    assert FAMILY.candidates(problem, H100)[0][0] == DIRECT


@pytest.mark.parametrize(
    ("problem", "measured"),
    [
        (ROWS, 8.3),
        (ALL, 612.8),
        (HEADS, 62.9),
        (asked(Reduce("mean", (1, 3), False), 32, 12, 197, 197), 43.8),
        (asked(Reduce("mean", (1, 2), False), 32, 64, 57, 57), 10.5),
        (asked(Reduce("l2", (2,), False), 32, 1024, 333), 11.4),
        (asked(Reduce("log_sum", (2,), False), 32, 512, 1001), 21.8),
        (asked(Reduce("sum", (1,), False), 32, 197, 333), 4.6),
        (asked(Reduce("mean", (2, 3)), 32, 90, 56, 56, layout=LAST), 14.9),
        (asked(Places(1, 1), 32, 21, 256, 256), 128.9),
        (asked(Places(2, 1), 32, 512, 1001), 315.9),
        (TOP, 1547.8),
        (DOWN, 55.4),
        (asked(CumSum(2), 32, 512, 1001), 38.2),
    ],
    ids=str,
)
def test_plain_kernels_are_predicted_near_what_an_h100_took(problem: KernelProblem, measured: float) -> None:
    """Microseconds."""
    assert measured / 1.4 < 1e6 * FAMILY.predict(problem, DIRECT, H100) < measured * 1.4


def test_what_a_candidate_states_is_what_runs() -> None:
    code = FAMILY.emit(ALL, candidate(RunsTile(32, 256, 17)), H100, AT)
    mode, half = "bolt::portable::ReduceSum", "bolt::portable::f16"
    assert code.call == (
        f"bolt::portable::fold_runs<32, 256, bolt::portable::FloatFold<{mode}, {half}>>(r, "
        "bolt::portable::Reduce{.kept_rank = 1, .kept = {32}, .kept_stride = {524800}, .reduced_rank = 1, "
        ".reduced = {524800}, .reduced_stride = {1}, .channel_axis = -1}, 17, x, "
        f"bolt::portable::float_results<{mode}, {half}>(y, 524800, bolt::portable::chain()));"
    )
    assert (code.includes, code.member_type) == (
        ("bolt_portable/cuda/reductions/fold_runs.h",),
        "bolt::portable::SharedTotals",
    )
    assert (code.member_arguments, code.counts) == ("2176", True)


def test_pixels_of_any_channels_are_whole_words_of_their_image() -> None:
    """Where no word divides channels; those that repeat late have columns alone."""
    code = FAMILY.emit(PIXELS, candidate(PixelsTile(256, 16)), H100, AT)
    assert code.call.startswith(
        "bolt::portable::fold_pixels<256, 90, bolt::portable::FloatFold<bolt::portable::ReduceMean"
    )
    assert code.includes == ("bolt_portable/cuda/reductions/fold_pixels.h",)
    late = FAMILY.candidates(asked(Reduce("mean", (2, 3)), 2, 521, 7, 7, layout=LAST), H100)[1]
    assert "pixels: channels repeat after 521 words, a block has 512 threads at most" in [each.reason for each in late]
    whole = FAMILY.candidates(asked(Reduce("mean", (2, 3)), 32, 96, 56, 56, layout=LAST), H100)
    assert not any("pixels" in str(each) for found in whole for each in found)


def test_short_runs_that_follow_each_other_are_one_run_of_memory() -> None:
    """Such as the greatest of each point's 20 neighbours. Runs that lie apart, and long ones, have other kernels."""
    short = asked(Reduce("max", (3,), False), 32, 64, 1024, 20)
    found = FAMILY.candidates(short, H100)[0][0]
    assert found.parameters[0] == ("algorithm", "slabs")
    code = FAMILY.emit(short, candidate(SlabTile(1, 512)), H100, AT)
    assert code.call.startswith("bolt::portable::fold_slabs<1, 20, 512, bolt::portable::FloatFold<")
    assert code.includes == ("bolt_portable/cuda/reductions/fold_slabs.h",)
    for apart in (asked(Reduce("max", (1, 3), False), 32, 64, 1024, 20), asked(Reduce("max", (1,), False), 99, 1025)):
        assert not any("slabs" in str(each) for of in FAMILY.candidates(apart, H100) for each in of)


def test_blocks_that_share_nothing_need_no_memory_and_no_counters() -> None:
    code = FAMILY.emit(HEADS, candidate(ColumnsTile(256, 1)), H100, AT)
    assert code.call.startswith(
        "bolt::portable::fold_columns<256, bolt::portable::FloatFold<bolt::portable::ReduceMean, "
    )
    assert (code.member_type, code.counts) == (None, False)


def test_places_and_integers_are_folded_as_reductions_are() -> None:
    last = asked(Places(1, 1, False, True), 32, 21, 256, 256, dtype=DType.U8)
    text = FAMILY.emit(last, candidate(ColumnsTile(128, 1)), H100, AT).call
    assert "<128, bolt::portable::PlaceFold<false, true, std::uint8_t>>(" in text
    assert text.endswith(", 1, x, bolt::portable::PlaceResults(y));")
    mean = asked(Reduce("mean", (2,), False), 3, 5, 800, dtype=DType.I32)
    code = FAMILY.emit(mean, candidate(RunsTile(32, 256, 2)), H100, AT)
    fold = "bolt::portable::typed::ReduceMean<bolt::portable::Computed<std::int32_t>::type>"
    assert f"bolt::portable::TypedFold<{fold}, std::int32_t>" in code.call
    assert code.member_arguments == str(15 * 2 * 8)  # sums in 64 bits


def test_blocks_of_a_cluster_leave_nothing_in_memory_and_other_gpus_have_none() -> None:
    code = FAMILY.emit(PIXELS, candidate(ClusterTile(256, 8)), H100, AT)
    assert code.call.startswith("bolt::portable::fold_clusters<256, 90, 8, bolt::portable::FloatFold<")
    assert (code.member_type, code.counts) == (None, False)
    a100 = target_named("a100")
    offered = FAMILY.candidates(replace(PIXELS, target="a100"), a100)[0]
    assert "pixels" in (forms := {dict(each.parameters)["algorithm"] for each in offered})
    assert "clusters" not in forms
    reason = "clusters: blocks form clusters from sm_90 on"
    assert FAMILY.refuse(PIXELS, candidate(ClusterTile(256, 8)), a100) == reason


def test_running_sums_state_direction_and_what_comes_of_nothing() -> None:
    call = FAMILY.emit(ALONG, candidate(ScanRunsTile(32)), H100, AT).call
    assert call == (
        "bolt::portable::scan_runs<32, false, bolt::portable::f16, bolt::portable::typed::Mul>(r, 16384, 1001, 1, "
        "true, x, y, 1);"
    )


def test_earlier_locks_have_the_plain_kernel() -> None:
    for problem, begin in ((ROWS, "reduce<"), (TOP, "places<true, false, "), (DOWN, "cumulative_sum<")):
        assert FAMILY.refuse(problem, DIRECT, H100) is None
        assert FAMILY.emit(problem, DIRECT, H100, AT).call.startswith(f"bolt::portable::{begin}")
        assert FAMILY.variants(problem, DIRECT, H100) == ()


def test_tuning_tries_other_numbers_of_blocks() -> None:
    leads = FAMILY.candidates(ALL, H100)[0][0]
    assert {each.parameters for each in FAMILY.variants(ALL, leads, H100)} == {leads.parameters}
    assert {dict(each.settings)["blocks"] for each in FAMILY.variants(ALL, leads, H100)} == {1, 5, 9, 33}


def test_hosts_have_no_forms() -> None:
    problem = asked(Reduce("sum", (2,), False), 2, 33, 197, dtype=DType.F32, target="host")
    assert FAMILY.candidates(problem, HOST)[0] == (DIRECT,)
    stated = candidate(RunsTile(8, 8, 1))
    assert FAMILY.refuse(problem, stated, HOST) == f"{stated} is none of its candidates"


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.sampled_from((DType.F16, DType.F32, DType.I64, DType.I8)),
    st.sampled_from((ROW, LAST)),
    st.data(),
)
@settings(max_examples=20, deadline=None)
def test_what_is_offered_is_legal_and_is_emitted(
    shape: list[int], dtype: DType, layout: Layout, data: st.DataObject
) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    axis, count = axes[0], data.draw(st.integers(1, shape[axes[0]]))
    placed = layout if len(shape) >= 3 else ROW
    for problem in (
        asked(Reduce("sum", axes), *shape, dtype=dtype, layout=placed),
        asked(Places(axis, count), *shape, dtype=dtype),
        asked(CumSum(axis), *shape, dtype=dtype),
    ):
        offered = FAMILY.candidates(problem, H100)[0]
        for each in offered:
            for tried in (each, *FAMILY.variants(problem, each, H100)):
                assert FAMILY.refuse(problem, tried, H100) is None
                assert FAMILY.emit(problem, tried, H100, AT).call
                assert 0 < FAMILY.predict(problem, tried, H100) < 1
