"""Copies that bring axes into another order in words of both sides: what candidates state, what is refused and why, how
tiles that are offered differ, and what is emitted."""

from __future__ import annotations

import pytest
from test_portable_permuted import BOXES, FAMILY, H100, turned

from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.kernels.packed import FORM, PackedTile
from bolt_build.families.portable.kernels.permuted import PermutedTile

Shape = tuple[int, ...]


def stated(cut: Shape, near: Shape, words: Shape) -> Candidate:
    tile = PackedTile(PermutedTile(cut, near), words)
    return Candidate("portable", (("algorithm", "packed"), *tile.parameters))


@pytest.mark.parametrize(
    ("cut", "near", "words", "reason"),
    [
        ((1, 2, 40, 85), (0, 40, 1, 83), (4, 8), None),
        ((1, 2, 40, 85), (0, 40, 1, 83), (4, 8, 8), "states accesses of 3 sides, which are 2"),
        ((1, 2, 40, 85), (0, 40, 1, 83), (4, 1), "an access of 1 elements is none of 4 to 16 bytes"),
        ((1, 2, 40, 85), (0, 40, 1, 83), (16, 8), "an access of 16 elements is none of 4 to 16 bytes"),
        ((1, 1, 1, 85), (0, 0, 0, 1), (8, 8), "elements of a tile are neighbours on one side alone"),
        ((1, 2, 40, 85), (0, 40, 1, 79), (8, 8), "elements of a tile would share a place in shared memory"),
    ],
)
def test_a_tile_that_no_kernel_has_is_refused_with_its_reason(
    cut: Shape, near: Shape, words: Shape, reason: str | None
) -> None:
    assert FAMILY.refuse(BOXES, stated(cut, near, words), H100) == reason


@pytest.mark.parametrize("problem", [BOXES, turned((32, 197, 768), 0, 2, 1), turned((32, 12, 197, 197), 0, 1, 3, 2)])
def test_tiles_that_are_offered_differ_and_are_legal(problem: KernelProblem) -> None:
    found = [each for each in FAMILY.candidates(problem, H100)[0] if dict(each.parameters)["algorithm"] == "packed"]
    assert len({dict(each.parameters)["tile"] for each in found}) == len(found) == 3
    assert [FAMILY.refuse(problem, each, H100) for each in found] == [None] * 3


def test_whole_rows_of_the_output_waste_less_of_memory_than_parts_of_them() -> None:
    """For the ends of a run are stored in parts of sectors. The longer rows have as many words that are stored."""
    problem = turned((512, 197, 768), 0, 2, 1)
    whole, part = stated((1, 16, 197), (0, 1, 17), (8, 4)), stated((1, 16, 32), (0, 1, 17), (8, 4))
    assert FAMILY.predict(problem, whole, H100) < FAMILY.predict(problem, part, H100)


def test_a_candidate_states_all_of_its_tile_and_emission_asks_for_nothing_else() -> None:
    """Runs of the input are whole words of four, those of the output are no whole sectors."""
    candidate = stated((1, 3, 40, 85), (0, 40, 1, 123), (4, 8))
    assert FORM.tile_of(candidate) == PackedTile(PermutedTile((1, 3, 40, 85), (0, 40, 1, 123)), (4, 8))
    call = FAMILY.emit(BOXES, candidate, H100, StepExpressions(("x",), ("y",), (None,))).call
    assert call == (
        "bolt::portable::packed_copy<std::uint16_t, std::uint16_t, bolt::portable::PermutedTile<"
        "bolt::portable::Numbers<1, 3, 40, 85>, bolt::portable::Numbers<0, 40, 1, 1600>, "
        "bolt::portable::Numbers<0, 3400, 85, 1>, bolt::portable::Numbers<0, 40, 1, 123>, 2u>, 4, 8, true, false>(r, "
        "bolt::portable::StridedCopy{.rank = 4, .extent = {96, 40, 40, 85}, .in = {136000, 40, 1, 1600}, "
        ".out = {136000, 3400, 85, 1}, .in_offset = 0, .out_offset = 0}, x, y);"
    )
