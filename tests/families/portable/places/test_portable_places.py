"""The greatest elements of a line: what their keys are, which threads hold them, and where classes of pixels lie."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from fold_problems import AT, FAMILY, H100, asked
from gpu_folds import candidate

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.portable.kernels.places.binned_places import BinTile
from bolt_build.families.portable.kernels.places.bounded_places import BoundTile
from bolt_build.families.portable.kernels.places.few_lines import FewLinesTile
from bolt_build.families.portable.kernels.places.selected_places import SelectTile
from bolt_build.families.portable.kernels.places.sorted_places import SortTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.lines import Places, TopElements
from bolt_build.targets import HOST, Target

TOP = asked(Places(2, 300), 32, 80, 1000)


def test_keys_are_as_narrow_as_element_and_place_are() -> None:
    call = FAMILY.emit(TOP, candidate(SelectTile(32, 32, 11)), H100, AT).call
    assert (
        "bolt::portable::selected_places<true, false, 32, 32, 11, std::uint32_t, bolt::portable::f16, true>(r, " in call
    )
    sort, how = candidate(SortTile(1024, 1, 0)), "bolt::portable::sorted_places<true, false, "
    assert f"{how}32, 32, 16, std::uint32_t, " in FAMILY.emit(TOP, candidate(SortTile(32, 16, 32)), H100, AT).call
    for extent, key in ((1 << 16, "std::uint32_t"), (1 + (1 << 16), "std::uint64_t")):
        long = asked(Places(1, 300), 4, extent)
        assert f"{how}0, 1024, 1, {key}, bolt::portable::f16>" in FAMILY.emit(long, sort, H100, AT).call


@pytest.mark.parametrize(
    ("problem", "tile", "paired"),
    [
        (TOP, SelectTile(32, 32, 11), True),
        (TOP, SelectTile(128, 8, 11), True),
        (TOP, SelectTile(256, 4, 11), False),
        (asked(Places(1, 30), 4, 1017), SelectTile(32, 32, 1), True),
        (asked(Places(1, 30), 4, 1018), SelectTile(32, 32, 1), False),
        (asked(Places(1, 30, False, True), 4, 1000), SelectTile(32, 32, 1), False),
        (asked(Places(1, 30), 4, 1000, dtype=DType.F32), SelectTile(32, 32, 1), False),
        (asked(Places(1, 30), 4, 1000, 3), SelectTile(32, 32, 1), False),
    ],
    ids=str,
)
def test_numbers_of_neighbours_in_half_precision_are_held_in_pairs(
    problem: KernelProblem, tile: SelectTile, paired: bool
) -> None:
    """Of whole words: where lines begin inside of one there is room for a word more."""
    call = FAMILY.emit(problem, candidate(tile), H100, AT).call
    assert call.split(">(r, ")[0].endswith(", true") is paired


def test_threads_hold_whole_words_where_that_is_little_more() -> None:
    found = [candidate(SelectTile(32, each, 1)) for each in (8, 7)]
    lines = asked(Places(1, 30), 4, 217)
    assert [each in FAMILY.candidates(lines, H100)[0] for each in found] == [True, False]


@pytest.mark.parametrize(("target", "algorithm"), [(H100, "runs"), (HOST, "direct")])
def test_the_class_of_a_pixel_is_found_where_channels_lie_side_by_side(target: Target, algorithm: str) -> None:
    """Of several places tensors are row-major: those that follow take elements by them."""
    graph, node = graph_with(Layer("class", Places(1, 1), (Input((8, 150, 64, 64)),), (), DType.F32))
    steps = [found.steps[0] for found in FAMILY.propose(graph, node, target, DType.F32)[0]]
    found = {step.problem.inputs[0].format.layout: step.problem for step in steps}
    assert set(found) == set(Layout)
    assert (
        dict(FAMILY.candidates(found[Layout.CHANNELS_LAST], target)[0][0].parameters).get("algorithm", "direct")
        == algorithm
    )
    graph, node = graph_with(Layer("classes", Places(1, 5), (Input((8, 150, 64, 64)),), (), DType.F32))
    several = FAMILY.propose(graph, node, target, DType.F32)[0]
    assert {each.steps[0].problem.inputs[0].format.layout for each in several} == {Layout.ROW}


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (asked(Places(2, 1000), 32, 80, 1000), BinTile(128, 8, 12, 1024, 2048), None),
        (asked(Places(2, 1000), 32, 80, 1000), BinTile(128, 8, 8, 1024, 2048),
         "128 threads that sort 8 keys each have no room for 1024"),
        (asked(Places(2, 1000), 32, 80, 1000), BinTile(64, 8, 20, 1024, 2048),
         "1000 elements are more than 64 threads hold"),
        (TOP, BinTile(128, 8, 12, 1024, 2048), "binned: puts all of 1000 elements in bins, of which 300 are few"),
        (asked(Places(1, 5000), 4, 5000), BinTile(512, 16, 12, 5120, 4096),
         "binned: puts up to 2048 elements in bins, not 5000"),
        (asked(Places(1, 3000), 4, 3000, dtype=DType.BF16), BinTile(256, 16, 20, 3072, 4096),
         "binned: puts up to 1024 elements in bins, not 3000"),
        (asked(Places(1, 90, True, True), 4, 90), BinTile(32, 3, 4, 128, 256),
         "binned: takes the first of equal elements, not the last"),
    ],
)  # fmt: skip
def test_bins_that_have_no_line_have_a_reason(problem: KernelProblem, tile: BinTile, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate(tile), H100) == reason


def test_lines_of_which_most_are_wanted_are_put_in_bins_without_a_lock() -> None:
    for extent in (197, 1000, 2000):
        (first, *_), _ = FAMILY.candidates(asked(Places(1, extent), 4096, extent), H100)
        assert str(first).startswith("portable algorithm=binned threads=")


def test_elements_that_are_taken_lie_in_shared_memory_where_there_is_room() -> None:
    def staged(extent: int, *more: int) -> str:
        problem = asked(TopElements(1, extent, with_places=False), 64, extent, *more)
        tile = BinTile(256, 16, 20, 4096, 4096) if extent > 1024 else BinTile(128, 8, 12, 1024, 2048)
        call = FAMILY.emit(problem, candidate(tile), H100, AT).call
        return call.split(", std::uint32_t")[0].rsplit(", ", 1)[1]

    assert [staged(1000), staged(2048), staged(1000, 3)] == ["2016", "4112", "0"]


EXPERTS = asked(Places(1, 8), 1 << 17, 64)


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (EXPERTS, FewLinesTile(1, 8), None),
        (EXPERTS, FewLinesTile(3, 8), "no line has 3 threads"),
        (EXPERTS, FewLinesTile(1, 4), "keeps 8 keys, not 4"),
        (asked(Places(1, 8), 512, 68), FewLinesTile(1, 8), "few_lines: lines of 68 elements are no whole words"),
        (asked(Places(1, 8), 512, 64, 3), FewLinesTile(1, 8),
         "few_lines: elements of a line are no neighbours, or too many"),
        (asked(Places(1, 17), 512, 64), FewLinesTile(1, 16), "few_lines: threads keep up to 16 keys, not 17"),
        (asked(Places(1, 8), 512, 4096), FewLinesTile(1, 8),
         "few_lines: threads go through up to 2048 elements, not 4096"),
    ],
)  # fmt: skip
def test_lines_that_are_not_a_few_threads_have_a_reason(
    problem: KernelProblem, tile: FewLinesTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate(tile), H100) == reason


def test_experts_of_many_tokens_go_through_shared_memory_without_a_lock() -> None:
    (first, *_), _ = FAMILY.candidates(EXPERTS, H100)
    assert str(first) == "portable algorithm=few_lines threads=1 kept=8"
    assert FAMILY.emit(EXPERTS, first, H100, AT).call == (
        "bolt::portable::few_lines<true, 1, 8, std::uint32_t, bolt::portable::f16>(r, "
        "bolt::portable::Lines{.outer = 131072, .extent = 64, .inner = 1}, 8, x, y);"
    )


LONG = asked(Places(2, 10), 32, 512, 1000, dtype=DType.I64)


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (LONG, BoundTile(128, 8, 32), None),
        (LONG, BoundTile(128, 7, 32), "128 threads do not hold 7 elements each of 1000"),
        (LONG, BoundTile(64, 16, 32), "no line has 64 threads"),
        (LONG, BoundTile(128, 8, 48), "no 48 elements are sorted where 10 are wanted"),
        (LONG, BoundTile(32, 32, 512), "a warp sorts up to 256 elements, not 512"),
        (asked(Places(1, 40), 4, 900, dtype=DType.I64), BoundTile(128, 8, 32),
         "no 32 elements are sorted where 40 are wanted"),
        (asked(Places(1, 40), 4, 900, dtype=DType.I32), BoundTile(128, 8, 64),
         "bounded: keys have room for i32 and a place"),
        (asked(Places(1, 3000), 4, 9000, dtype=DType.F64), BoundTile(512, 18, 2048),
         "bounded: sorts up to 2048 elements, not 3000"),
    ],
)  # fmt: skip
def test_lines_of_long_numbers_that_have_no_bound_have_a_reason(
    problem: KernelProblem, tile: BoundTile, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate(tile), H100) == reason


@pytest.mark.parametrize("problem", [LONG, asked(Places(1, 100), 64, 8400, 3, dtype=DType.I64),
                                     asked(Places(1, 5), 2, 200000, dtype=DType.F64)])  # fmt: skip
def test_lines_of_long_numbers_are_bounded_without_a_lock(problem: KernelProblem) -> None:
    assert str(FAMILY.candidates(problem, H100)[0][0]).startswith("portable algorithm=bounded threads=")


def test_lines_that_no_threads_hold_are_read_again() -> None:
    long = asked(Places(1, 5), 2, 200000, dtype=DType.F64)
    found = [str(each) for each in FAMILY.candidates(long, H100)[0] if "bounded" in str(each)]
    assert found == ["portable algorithm=bounded threads=512 room=2048"]
    call = FAMILY.emit(long, candidate(BoundTile(512, 0, 2048)), H100, AT).call
    assert call.startswith("bolt::portable::bounded_places<true, 512, 0, 2048, double>(r, ")
