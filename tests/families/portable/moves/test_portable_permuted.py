"""Copies that bring axes into another order through tiles: what candidates state, what is refused and why, which is
offered first, and that the plain kernel stays."""

from __future__ import annotations

import re
import subprocess
from itertools import groupby, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.copies import copy_loops, rows_kept
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.moves.permuted import FORM, PermutedTile
from bolt_build.families.portable.kernels.moves.permuted_tiles import (
    are_apart,
    conflicts,
    cuts,
    dense,
    matched,
    run_of,
    side_of,
)
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.moves.shape import Convert, Slice, Transpose
from bolt_build.targets import HOST, target_named
from bolt_build.toolchain import probe

FAMILY, H100 = Portable(), target_named("h100")
ROW, LAST = Layout.ROW, Layout.CHANNELS_LAST
DIRECT = Candidate("portable", (("algorithm", "direct"),))
Shape = tuple[int, ...]


def moved(op: Op, shape: Shape, out: Shape, *, dtype: DType = DType.F16, to: Layout = ROW) -> KernelProblem:
    given, made = Operand(shape, TensorFormat(dtype, ROW)), Operand(out, TensorFormat(dtype, to))
    return KernelProblem(op, (given,), (made,), (), DType.F16, "h100")


def turned(shape: Shape, *perm: int, dtype: DType = DType.F16) -> KernelProblem:
    return moved(Transpose(perm), shape, tuple(shape[axis] for axis in perm), dtype=dtype)


BOXES = turned((32, 3, 85, 40, 40), 0, 1, 3, 4, 2)
"""Loops of 96 planes, 40 rows and 40 columns of boxes, and 85 numbers."""


TILED = Candidate("portable", (("algorithm", "tiled"), ("tile", "1x1x32x34"), ("lanes", 2)))


def stated(tile: PermutedTile, algorithm: str = "permuted") -> Candidate:
    return Candidate("portable", (("algorithm", algorithm), *tile.parameters))


@pytest.mark.parametrize(
    ("cut", "near", "reason"),
    [
        ((1, 2, 40, 85), (0, 41, 1, 82), None),
        ((1, 1, 1, 85), (0, 0, 0, 1), "elements of a tile are neighbours on one side alone"),
        ((2, 40, 85), (41, 1, 82), "a tile states 3 loops and 3 steps of 4"),
        ((1, 2, 41, 85), (0, 41, 1, 82), "a tile has at least one element of each loop, and at most all"),
        ((1, 0, 40, 85), (0, 41, 1, 82), "a tile has at least one element of each loop, and at most all"),
        ((1, 2, 40, 85), (0, 40, 1, 79), "elements of a tile would share a place in shared memory"),
        ((1, 2, 40, 85), (0, 0, 1, 82), "elements of a tile would share a place in shared memory"),
        ((8, 2, 40, 85), (6970, 41, 1, 82), "takes 111518 bytes of shared memory, a block has 49152"),
    ],
)  # fmt: skip
def test_a_tile_that_no_kernel_has_is_refused_with_its_reason(cut: Shape, near: Shape, reason: str | None) -> None:
    assert FAMILY.refuse(BOXES, stated(PermutedTile(cut, near)), H100) == reason


@pytest.mark.parametrize(
    ("problem", "cut", "near", "reason"),
    [
        (turned((32, 12, 197, 197), 0, 1, 3, 2), (1, 20, 197), (0, 1, 21), None),
        (turned((32, 12, 197, 197), 0, 1, 3, 2), (1, 99, 12), (0, 1, 99),
         "rows of 12 elements are mostly parts of words, at least 16 are supported"),
        (BOXES, (1, 2, 40, 85), (0, 41, 1, 82), None),
        (turned((32, 302, 58), 0, 2, 1), (1, 16, 302), (0, 1, 17), "all rows of the output begin and end with words"),
        (turned((32, 12, 197, 197), 0, 1, 3, 2, dtype=DType.F32), (1, 20, 197), (0, 1, 21),
         "permuted_words: elements of the output are whole words"),
        (turned((32, 196, 768), 0, 2, 1), (1, 20, 196), (0, 1, 21),
         "permuted_words: threads of the plain kernel have whole accesses"),
    ],
)  # fmt: skip
def test_rows_are_stored_in_words_wherever_they_begin_if_that_is_worth_it(
    problem: KernelProblem, cut: Shape, near: Shape, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, stated(PermutedTile(cut, near), "permuted_words"), H100) == reason


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (turned((32, 196, 768), 0, 2, 1), "threads of the plain kernel have whole accesses"),
        (moved(Convert(), (32, 3, 224, 224), (32, 3, 224, 224), to=LAST),
         "threads of the plain kernel have whole accesses"),
    ],
)  # fmt: skip
def test_what_the_plain_kernel_moves_in_whole_accesses_is_left_to_it(problem: KernelProblem, reason: str) -> None:
    candidates, refusals = FAMILY.candidates(problem, H100)
    assert candidates == (DIRECT,)
    assert [str(refusal.reason) for refusal in refusals] == [f"permuted: {reason}", f"permuted_words: {reason}"]


@pytest.mark.parametrize(
    "problem",
    [
        BOXES,
        turned((32, 3, 14, 16, 14, 16), 0, 2, 4, 3, 5, 1),
        turned((32, 3, 16, 14, 16, 14), 0, 2, 4, 1, 3, 5),
        turned((32, 12, 197, 197), 0, 1, 3, 2),
        turned((32, 299, 299, 3), 0, 3, 1, 2),
        moved(Convert(), (32, 27, 113, 113), (32, 27, 113, 113), to=LAST),
        turned((32, 197, 512), 0, 2, 1, dtype=DType.I64),
        turned((32, 513, 767), 0, 2, 1, dtype=DType.U8),
    ],
)
def test_without_a_lock_axes_that_no_access_divides_go_through_tiles(problem: KernelProblem) -> None:
    """And are predicted to take at most twice as long as their bytes."""
    first, *others = FAMILY.candidates(problem, H100)[0]
    assert str(dict(first.parameters)["algorithm"]).startswith("permuted")
    assert {dict(each.parameters)["algorithm"] for each in others} <= {"direct", "permuted", "permuted_words"}
    assert DIRECT in others
    assert FAMILY.predict(problem, first, H100) < 2 * problem.nbytes / H100.bandwidth


def test_rows_that_change_places_are_left_to_it_where_they_are_whole_accesses() -> None:
    candidates, refusals = FAMILY.candidates(turned((32, 12, 197, 64), 0, 2, 1, 3), H100)
    assert candidates == (DIRECT,)
    assert [str(refusal.reason) for refusal in refusals] == [
        f"{form}: threads of the plain kernel have whole accesses"
        for form in ("permuted", "permuted_words", "tiled", "flat_rows")
    ]


def test_tuning_measures_odd_rows_that_change_places_without_shared_memory_too() -> None:
    found = FAMILY.candidates(turned((32, 256, 16, 33), 0, 2, 1, 3), H100)[0]
    assert {str(dict(each.parameters)["algorithm"]) for each in found} == {
        "direct", "permuted", "permuted_words", "tiled", "flat_rows",
    }  # fmt: skip


def test_a_conversion_costs_what_its_fastest_kernel_takes() -> None:
    given, made = TensorFormat(DType.F16, ROW), TensorFormat(DType.F16, LAST)
    found = FAMILY.propose_conversion((32, 27, 113, 113), given, made, H100)
    assert found is not None
    problem, seconds = found
    best = FAMILY.predict(problem, FAMILY.candidates(problem, H100)[0][0], H100)
    assert best < seconds < best + H100.launch_seconds


def test_hosts_have_the_plain_kernel_alone() -> None:
    assert FAMILY.candidates(BOXES, HOST)[0] == (DIRECT,)


def test_slices_have_no_such_kernel() -> None:
    problem = moved(Slice((0, 0, 0), (32, 99, 99), (1, 2, 2)), (32, 198, 198), (32, 99, 99))
    found = {dict(each.parameters)["algorithm"] for each in FAMILY.candidates(problem, H100)[0]}
    assert found == {"direct", "tiled", "flat_rows"}


def test_a_candidate_states_all_of_its_tile_and_emission_asks_for_nothing_else() -> None:
    tile = PermutedTile((1, 2, 40, 85), (0, 41, 1, 82))
    assert FORM.tile_of(stated(tile)) == tile
    call = FAMILY.emit(BOXES, stated(tile), H100, StepExpressions(("x",), ("y",), (None,))).call
    assert call == (
        "bolt::portable::permuted_copy<std::uint16_t, std::uint16_t, bolt::portable::PermutedTile<"
        "bolt::portable::Numbers<1, 2, 40, 85>, bolt::portable::Numbers<0, 40, 1, 1600>, "
        "bolt::portable::Numbers<0, 3400, 85, 1>, bolt::portable::Numbers<0, 41, 1, 82>, 0u>, true, true>(r, "
        "bolt::portable::StridedCopy{.rank = 4, .extent = {96, 40, 40, 85}, .in = {136000, 40, 1, 1600}, "
        ".out = {136000, 3400, 85, 1}, .in_offset = 0, .out_offset = 0}, x, y);"
    )
    for wrong in ("1x2x40", "1x2x40x-5", "", 7):
        other = Candidate("portable", (("algorithm", "permuted"), ("tile", wrong), ("near", "0x41x1x82")))
        assert FAMILY.refuse(BOXES, other, H100) is not None


def test_words_wherever_rows_begin_have_a_kernel_of_their_own() -> None:
    found = FAMILY.emit(
        turned((32, 12, 197, 197), 0, 1, 3, 2),
        stated(PermutedTile((1, 20, 197), (0, 1, 21)), "permuted_words"),
        H100,
        StepExpressions(("x",), ("y",), (None,)),
    )
    assert found.includes == ("bolt_portable/cuda/moves/permuted_words.h",)
    assert found.call == (
        "bolt::portable::permuted_words_copy<std::uint16_t, std::uint16_t, bolt::portable::PermutedTile<"
        "bolt::portable::Numbers<1, 20, 197>, bolt::portable::Numbers<0, 1, 197>, bolt::portable::Numbers<0, 197, 1>, "
        "bolt::portable::Numbers<0, 1, 21>, 2u>, false>(r, bolt::portable::StridedCopy{.rank = 3, "
        ".extent = {384, 197, 197}, .in = {38809, 1, 197}, .out = {38809, 197, 1}, .in_offset = 0, .out_offset = 0}, "
        "x, y);"
    )


def test_both_ways_to_store_odd_rows_are_offered_and_words_are_predicted_to_be_faster() -> None:
    """A row of 197 halves takes 99 words, so that a warp stores twice as much at once."""
    found = FAMILY.candidates(turned((32, 12, 197, 197), 0, 1, 3, 2), H100)[0]
    names = [dict(each.parameters)["algorithm"] for each in found]
    assert names[0] == "permuted_words"
    assert set(names) == {"direct", "permuted", "permuted_words"}


def test_pairs_of_rows_are_taken_from_many_places_at_once() -> None:
    """Of small ones memory waits for more blocks to begin and end."""
    shuffled = turned((32, 784, 2, 58), 0, 1, 3, 2)
    first, *_ = FAMILY.candidates(shuffled, H100)[0]
    assert dict(first.parameters)["tile"] == "16x58x2"


def test_odd_rows_that_are_whole_words_together_lie_in_shared_memory_as_in_the_output() -> None:
    """16 rows of 197 halves follow each other there, so that words of two rows are words too."""
    problem = turned((32, 197, 768), 0, 2, 1)
    assert FAMILY.candidates(problem, H100)[0][0] == stated(PermutedTile((1, 16, 197), (0, 197, 1)))
    loops = copy_loops(problem)[0]
    side = side_of(loops, (1, 16, 197), (0, 197, 1), 1, 2, True)
    assert (side.loops, side.lanes, side.accesses) == (((3152, 1),), 2, 1)


@given(st.permutations(range(3)), st.lists(st.sampled_from((2, 3, 7, 16, 33)), min_size=3, max_size=3))
@settings(max_examples=50, deadline=None)
def test_rows_may_begin_at_the_same_element_of_a_word_in_shared_memory(order: list[int], extents: list[int]) -> None:
    inside = {axis: prod(extents[axis + 1 :]) for axis in range(3)}
    outside = {axis: prod(extents[each] for each in order[place + 1 :]) for place, axis in enumerate(order)}
    loops = [Loop(extents[axis], (inside[axis], outside[axis])) for axis in order]
    for nbytes, few in ((1, 4), (2, 2), (4, 1)):
        near = matched(loops, extents_of(loops), nbytes, False)
        assert are_apart(extents_of(loops), near)
        assert all((step - loop.steps[1]) % few == 0 for step, loop in zip(near, loops, strict=True))


@pytest.mark.parametrize(
    ("problem", "candidate"),
    [
        (turned((32, 197, 768), 0, 2, 1), stated(PermutedTile((1, 16, 104), (0, 1, 18)))),
        (turned((32, 256, 16, 34), 0, 2, 1, 3), TILED),
    ],
    ids=["permuted", "tiled"],
)
def test_a_thread_asks_for_its_next_word_before_it_takes_one_apart(
    problem: KernelProblem, candidate: Candidate, tmp_path: Path
) -> None:
    """Where tensors begin with words and where they do not there are loops of their own: one loop with a branch around
    each word has the compiler take a word apart where it is loaded."""
    nvcc = probe(("nvcc",)).tool("nvcc").path
    if nvcc is None:
        pytest.skip("needs nvcc")
    assert FAMILY.refuse(problem, candidate, H100) is None
    code = FAMILY.emit(problem, candidate, H100, StepExpressions(("x",), ("y",), (None,)))
    includes = "".join(f'#include "{name}"\n' for name in code.includes)
    source = tmp_path / "step.cu"
    source.write_text(f"{includes}void step(const bolt::Run& r, const void* x, void* y) {{ {code.call} }}\n")
    folders = (f"-I{folder}" for folder in (runtime.include_dir(), FAMILY.include_dir))
    command = [nvcc, "-std=c++17", "--expt-relaxed-constexpr", "--extended-lambda", "-arch=sm_90a", *folders]
    subprocess.run([*command, "-ptx", source, "-o", tmp_path / "step.ptx"], check=True)
    loads = re.findall(r"ld\.global(?:\.nc)?\.(?:v(\d)\.)?[bu](\d+)", (tmp_path / "step.ptx").read_text())
    assert [bits for bits, _ in groupby(int(many or 1) * int(bits) for many, bits in loads)] == [32, 16]


def test_a_tile_suits_its_problem_wherever_rows_lie() -> None:
    """Loops are as many, so what was chosen for dense rows is what runs where rows lie apart."""
    problem = turned((4, 6, 10, 12), 0, 2, 3, 1)
    assert len(copy_loops(problem)[0]) == 3
    dense_rows, apart = rows_kept(problem)[0], rows_kept(problem, 20, 16)[0]
    assert [loop.extent for loop in dense_rows] == [loop.extent for loop in apart] == [4, 10, 12, 6]
    assert [loop.steps for loop in apart] == [(1200, 1920), (20, 192), (1, 16), (200, 1)]


def extents_of(loops: list[Loop]) -> tuple[int, ...]:
    return tuple(loop.extent for loop in loops)


axes = st.lists(st.integers(1, 6), min_size=2, max_size=4)


@given(axes, st.data())
@settings(max_examples=100, deadline=None)
def test_elements_are_apart_where_no_two_share_a_place(cut: list[int], data: st.DataObject) -> None:
    near = [data.draw(st.integers(0, 40)) for _ in cut]
    places = [sum(i * step for i, step in zip(index, near, strict=True)) for index in product(*map(range, cut))]
    if are_apart(cut, near):
        assert len(set(places)) == prod(cut)


@given(st.permutations(range(4)), st.lists(st.sampled_from((2, 3, 7, 16, 33)), min_size=4, max_size=4))
@settings(max_examples=50, deadline=None)
def test_every_tile_is_runs_of_both_sides_that_all_threads_go_through(order: list[int], extents: list[int]) -> None:
    inside = {axis: prod(extents[axis + 1 :]) for axis in range(4)}
    outside = {axis: prod(extents[each] for each in order[place + 1 :]) for place, axis in enumerate(order)}
    loops = [Loop(extents[axis], (inside[axis], outside[axis])) for axis in order]
    for cut in cuts(loops, 4096):
        assert all(run_of(loops, cut, side).length >= min(extents) for side in (0, 1))
        assert are_apart(cut, dense(loops, cut))
        for side in (0, 1):
            found = side_of(loops, cut, dense(loops, cut), side, 2, False)
            assert prod(extent for extent, _ in found.loops) == prod(cut)
            assert prod(found.box) <= 256
            assert prod(found.box) * found.turns >= prod(cut)
            assert 1 <= conflicts(found, 2) <= 32
