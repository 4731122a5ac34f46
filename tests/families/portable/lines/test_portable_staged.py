"""Lines of odd extents in a GPU's shared memory, and lines side by side in registers: which problems have them, how
they are cut, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from families_harness import Input, Layer, graph_with
from families_layers import norm
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.lines import register_lines
from bolt_build.families.portable.kernels.lines.long_lines import TwiceTile
from bolt_build.families.portable.kernels.lines.register_lines import RegisterTile
from bolt_build.families.portable.kernels.lines.staged import Lines, StagedTile, refuse_lines, refuse_tile, tiles
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.targets import target_named

FAMILY, H100, T4 = Portable(), target_named("h100"), target_named("t4")
LAST, CHANNELS = Norm("variance", (2,), 1e-5), Norm("variance", (1,), 1e-5)
WINDOW = Lrn(5, 1e-4, 0.75, 1.0)


def problem(layer: Layer, layout: Layout = Layout.ROW, target: str = "h100") -> KernelProblem:
    graph, node = graph_with(replace(layer, precision=DType.F16))
    found = FAMILY.propose(graph, node, target_named(target), DType.F16)[0]
    return next(each.steps[0].problem for each in found if each.steps[0].problem.inputs[0].format.layout is layout)


def of(op: Op, *shape: int) -> KernelProblem:
    return problem(Layer("line", op, (Input(shape),)))


def first(asked: KernelProblem) -> Candidate:
    return FAMILY.candidates(asked, target_named(asked.target))[0][0]


def algorithm(asked: KernelProblem) -> int | str:
    return dict(first(asked).parameters)["algorithm"]


ODD = {
    "rows of 333": partial(problem, norm("n", LAST, (32, 1024, 333), (333,))),
    "rows of 1025": partial(problem, norm("n", LAST, (32, 512, 1025), (1025,))),
    "rows of 90": partial(problem, norm("n", LAST, (32, 4096, 90), (90,))),
    "signals of 1501": partial(problem, norm("n", LAST, (32, 512, 1501), (512, 1))),
    "lengths of rows": partial(of, Norm("l2", (2,)), 32, 512, 513),
    "49 keys": partial(of, Softmax(2), 32, 3072, 49),
    "1001 classes": partial(of, Softmax(2), 32, 512, 1001),
    "logarithms": partial(of, Line("log_softmax", 2), 32, 512, 1001),
    "21 classes, last": partial(problem, Layer("s", Softmax(1), (Input((32, 21, 257, 257)),)), Layout.CHANNELS_LAST),
    "responses, channels last": partial(problem, Layer("l", WINDOW, (Input((32, 96, 55, 55)),)), Layout.CHANNELS_LAST),
}
BESIDE = {
    "lengths of channels": partial(of, Norm("l2", (1,)), 32, 256, 57, 57),
    "channels of odd planes": partial(problem, norm("n", CHANNELS, (32, 96, 57, 57), (96, 1, 1))),
    "21 classes of pixels": partial(of, Softmax(1), 32, 21, 257, 257),
    "responses of planes": partial(of, WINDOW, 32, 96, 55, 55),
    "classes of whole accesses": partial(of, Softmax(1), 32, 24, 128, 128),
}
MIDDLE = partial(of, Softmax(2), 32, 12, 197, 197)


@pytest.mark.parametrize("name", ODD)
def test_lines_of_odd_extents_are_staged_without_a_lock(name: str) -> None:
    assert algorithm(ODD[name]()) == "staged"


@pytest.mark.parametrize("name", BESIDE)
def test_lines_side_by_side_stay_in_registers_without_a_lock(name: str) -> None:
    assert algorithm(BESIDE[name]()) == "registers"


def test_many_lines_of_a_thread_each_are_taken_in_the_blocks_that_an_h200_took_in_least_time() -> None:
    asked = problem(Layer("s", Softmax(1), (Input((32, 21, 257, 257)),)), target="h200")
    assert str(first(asked)) == "portable algorithm=registers threads=1 across=256"


def test_tuning_measures_lines_of_a_middle_axis_in_every_way() -> None:
    found = FAMILY.candidates(MIDDLE(), H100)[0]
    assert {dict(each.parameters)["algorithm"] for each in found} == {"direct", "staged", "registers", "groups"}


@pytest.mark.parametrize(
    "asked",
    [
        partial(problem, norm("n", LAST, (32, 1024, 768), (768,))),
        partial(problem, norm("n", LAST, (32, 4096, 180), (180,))),
        partial(of, Norm("l2", (1,)), 32, 256, 56, 56),
        partial(of, Softmax(2), 32, 512, 1000),
        partial(of, Softmax(1), 32, 24, 128, 128),
        partial(of, Line("hardmax", 2), 32, 512, 1001),
    ],
    ids=["768", "180", "planes of 56", "1000", "planes of 128", "hardmax"],
)
def test_what_accesses_divide_has_the_kernels_that_it_had(asked: Callable[[], KernelProblem]) -> None:
    candidates, refusals = FAMILY.candidates(asked(), H100)
    assert not any("staged" in str(each) for each in (*candidates, *(refusal.what for refusal in refusals)))


Tile = StagedTile | RegisterTile | TwiceTile
FORMS = {StagedTile: "staged", RegisterTile: "registers", TwiceTile: "twice"}


def stated(tile: Tile) -> Candidate:
    return Candidate("portable", (("algorithm", FORMS[type(tile)]), *tile.parameters))


def call(asked: KernelProblem, tile: Tile) -> str:
    candidate = stated(tile)
    assert FAMILY.refuse(asked, candidate, H100) is None
    inputs = tuple(f"x{index}" for index in range(len(asked.inputs)))
    return FAMILY.emit(asked, candidate, H100, StepExpressions(inputs, ("y",), inputs)).call


def test_the_compiler_knows_extents_and_the_cut() -> None:
    """Constant scales of elements are asked for before the kernel waits, those of lines are not."""
    space = "bolt::portable"
    assert call(ODD["rows of 333"](), StagedTile(16, 32, 256)).startswith(
        f"{space}::norm_staged<{space}::StagedShape<333, 1, 32, 16, 256>, {space}::StagedOperands::of_elements, true, "
    )
    assert call(ODD["signals of 1501"](), StagedTile(128, 3, 128)).startswith(
        f"{space}::norm_staged<{space}::StagedShape<1501, 1, 3, 128, 128>, {space}::StagedOperands::of_lines, false, "
    )
    assert call(MIDDLE(), StagedTile(8, 64, 256)) == (
        f"{space}::softmax_staged<{space}::Shares, {space}::StagedShape<197, 197, 64, 8, 256>, {space}::f16, "
        f"{space}::f16>(r, {space}::Softmax{{.outer = 384, .axis = 197, .inner = 197}}, x0, y);"
    )
    assert call(ODD["logarithms"](), StagedTile(32, 4, 128)).startswith(f"{space}::softmax_staged<{space}::LogShares, ")
    assert call(BESIDE["responses of planes"](), StagedTile(4, 64, 256)).startswith(
        f"{space}::lrn_staged<{space}::StagedShape<96, 3025, 64, 4, 256>, 5, {space}::f16, "
    )


def test_the_compiler_knows_how_far_apart_elements_of_registers_lie() -> None:
    space = "bolt::portable"
    assert call(MIDDLE(), RegisterTile(8, 32)) == (
        f"{space}::softmax_staged<{space}::Shares, {space}::RegisterShape<197, 197, 8, 32>, {space}::f16, "
        f"{space}::f16>(r, {space}::Softmax{{.outer = 384, .axis = 197, .inner = 197}}, x0, y);"
    )
    assert call(BESIDE["responses of planes"](), RegisterTile(4, 64)).startswith(
        f"{space}::lrn_staged<{space}::RegisterShape<96, 3025, 4, 64>, 5, {space}::f16, "
    )
    assert call(BESIDE["channels of odd planes"](), RegisterTile(4, 64)).startswith(
        f"{space}::norm_staged<{space}::RegisterShape<96, 3249, 4, 64>, {space}::StagedOperands::of_elements, true, "
    )


def test_longer_lines_side_by_side_are_read_twice() -> None:
    asked = of(Softmax(2), 32, 1, 4096, 256)
    assert algorithm(asked) == "twice"
    assert call(asked, TwiceTile(16, 32)) == (
        "bolt::portable::softmax_twice<bolt::portable::Shares, 16, 32, bolt::portable::f16, bolt::portable::f16>"
        "(r, bolt::portable::Softmax{.outer = 32, .axis = 4096, .inner = 256}, x0, y);"
    )
    reason = "4 to 32 threads share a line, of 32 or 64 in blocks of 256 to 1024 threads"
    assert FAMILY.refuse(asked, stated(TwiceTile(2, 64)), H100) == reason
    assert "is none of its candidates" in str(FAMILY.refuse(MIDDLE(), stated(TwiceTile(16, 32)), H100))


NO_BLOCK = "there are blocks of 128, 256 or 512 threads, of which a line has up to 32 or, of neighbours, all"
NO_REGISTERS = "up to 32 threads share a line, of 32, 64, 128 or 256 in blocks of 128 to 1024 threads"
REFUSED = [
    ("rows of 333", StagedTile(3, 32, 96), NO_BLOCK),
    ("21 classes of pixels", StagedTile(256, 1, 256), NO_BLOCK),
    ("rows of 333", StagedTile(32, 12, 256), "12 lines are not taken 8 at a time"),
    ("rows of 1025", StagedTile(16, 16, 256), "1025 elements are 65 of each of 16 threads, which hold 36 at most"),
    ("lengths of channels", StagedTile(8, 512, 256), "takes 268288 bytes of shared memory, a block has 232448"),
    (
        "rows of 333",
        RegisterTile(32, 32),
        "portable algorithm=registers threads=32 across=32 is none of its candidates",
    ),
    ("lengths of channels", RegisterTile(3, 64), NO_REGISTERS),
    ("lengths of channels", RegisterTile(1, 64), NO_REGISTERS),
    ("lengths of channels", RegisterTile(4, 64), "256 elements are 64 of each of 4 threads, which hold 36 at most"),
]


@pytest.mark.parametrize(("name", "tile", "reason"), REFUSED)
def test_tiles_that_no_kernel_has(name: str, tile: Tile, reason: str) -> None:
    assert FAMILY.refuse((ODD | BESIDE)[name](), stated(tile), H100) == reason


def reasons(asked: KernelProblem) -> list[str]:
    return [str(each.reason) for each in FAMILY.candidates(asked, H100)[1] if "staged" in str(each.reason)]


def test_lines_that_no_kernel_has() -> None:
    assert reasons(of(Softmax(1), 64, 21, 7)) == ["staged: 7 lines side by side are fewer than 16"]
    assert reasons(of(Softmax(1), 4, 20001)) == [
        "staged: lines of 20001 elements are longer than the 18432 that the threads of one hold"
    ]
    assert reasons(of(Lrn(17, 1e-4, 0.75, 1.0), 2, 64, 7, 9)) == ["staged: windows of 17 channels are wider than 16"]
    both = (Input((4, 6, 90)), Input((6, 90), True), Input((6, 90), True))
    assert reasons(problem(Layer("n", LAST, both))) == [
        "staged: scales or biases are neither the same for all lines nor for all elements of one"
    ]


@given(st.integers(1, 5000), st.one_of(st.just(1), st.integers(16, 70000)), st.sampled_from((2, 4)), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_every_gpu_has_a_kernel_for_lines_that_are_not_refused(
    count: int, inner: int, nbytes: int, floats: int
) -> None:
    """And each of them has all elements of its lines in registers, and all of its lines in shared memory."""
    lines = Lines(12, count, inner, nbytes, nbytes, floats)
    for target in (H100, T4):
        gpu = target.gpu
        assert gpu is not None
        legal = [tile for tile in tiles(lines) if refuse_tile(tile, lines, gpu) is None]
        for tile in legal:
            assert tile.loads(lines) * tile.threads >= count
            assert tile.across * tile.threads == tile.block
            assert tile.shared(lines) >= min(tile.lines, inner if inner > 1 else tile.lines) * count * nbytes
        small = tile_bytes(lines) <= gpu.shared_memory
        assert not small or refuse_lines(lines) is not None or legal


@given(st.integers(2, 1200), st.integers(16, 70000), st.sampled_from((2, 4)), st.integers(0, 15))
@settings(max_examples=100, deadline=None)
def test_registers_have_all_elements_of_lines_that_are_not_refused(
    count: int, inner: int, nbytes: int, around: int
) -> None:
    lines = Lines(12, count, inner, nbytes, nbytes, around=around)
    legal = [tile for tile in register_lines.tiles(lines) if register_lines.refuse_tile(tile, lines) is None]
    assert all(tile.loads(lines) * tile.threads >= count for tile in legal)
    assert legal or refuse_lines(lines) is not None


def test_lines_side_by_side_end_where_kernels_count() -> None:
    """As those of 21 classes of images of 8192 x 8192 pixels do not: what lies further was not read."""
    gpu = H100.gpu
    assert gpu is not None
    near, far = (Lines(2, 21, inner, 2, 2) for inner in ((1 << 30) // 21, 1 << 26))
    assert any(refuse_tile(tile, near, gpu) is None for tile in tiles(near))
    assert {str(refuse_tile(tile, far, gpu)) for tile in tiles(far)} == {
        "1409286144 elements of lines side by side are more than the 1073741824 that it counts"
    }


def tile_bytes(lines: Lines) -> int:
    """Of the least lines that a block may have."""
    side_by_side = 32 if lines.are_columns else 128
    return lines.count * (side_by_side + 8) * lines.read * 2 + 8 * lines.count + 8192
