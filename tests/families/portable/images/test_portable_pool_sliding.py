"""Poolings by windows that slide down an image: what candidates state, what is refused and why, which is offered first,
and that old locks' plain kernels stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with
from families_layers import RELU, stage
from gpu_pools import candidate, pooled, windows
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.pool_sliding import FORM, SlidingTile
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("x", "r.weight(1)", "more"), ("y",), (None, "p.weight(1)", None))
DIRECT = Candidate("portable", (("algorithm", "direct"),))


def problem_of(layer: Layer, layout: Layout = Layout.CHANNELS_LAST, target: str = "h200") -> KernelProblem:
    """What is stored in the layer's precision."""
    graph, node = graph_with(layer)
    found = [each.steps[0].problem for each in FAMILY.propose(graph, node, target_named(target), layer.precision)[0]]
    return next(
        each
        for each in found
        if each.inputs[0].format.layout is layout and each.outputs[0].format == each.inputs[0].format
    )


def images(op: Op, *shape: int, precision: DType = DType.F16, target: str = "h200") -> KernelProblem:
    return problem_of(replace(pooled("p", op, *shape), precision=precision), target=target)


AVERAGE = windows("average", 3, 1, 1)
INCEPTION = images(AVERAGE, 32, 288, 35, 35)


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (SlidingTile(8, 2, 1, 4, 6, 9), None),
        (SlidingTile(8, 2, 1, 4, 35, 36), None),
        (SlidingTile(8, 3, 1, 4, 6, 9),
         "there are kernels of 1, 2, 4 or 8 channels a load, and of 1, 2, 4 or 8 windows beside each other"),
        (SlidingTile(16, 2, 1, 4, 6, 9),
         "there are kernels of 1, 2, 4 or 8 channels a load, and of 1, 2, 4 or 8 windows beside each other"),
        (SlidingTile(8, 2, 3, 4, 6, 9), "a thread asks for 1 or 2 rows ahead"),
        (SlidingTile(8, 2, 1, 9, 6, 9), "there are kernels for 1 to 8, 10 or 12 blocks of a multiprocessor"),
        (SlidingTile(8, 2, 1, 4, 36, 9), "a thread has 36 windows below each other, an image 35"),
        (SlidingTile(8, 2, 1, 4, 6, 37), "37 threads are more than the 36 loads of a cell's channels"),
        (SlidingTile(8, 4, 2, 4, 6, 9),
         "takes about 230 registers of a thread, which has 128 at resident=4"),
        (SlidingTile(8, 8, 1, 1, 6, 9),
         "takes about 370 registers of a thread, which has 255 at resident=1"),
    ],
    ids=str,
)  # fmt: skip
def test_a_cut_that_is_not_legal_has_a_reason(tile: SlidingTile, reason: str | None) -> None:
    """32 images of 35 x 35 positions and 288 channels, windows of 3 x 3."""
    assert FAMILY.refuse(INCEPTION, candidate(tile), H200) == reason


PLANES = (32, 64, 113, 113)
STEM = windows("max", 3, 2, 1)


def in_planes(op: Op) -> KernelProblem:
    return problem_of(replace(pooled("p", op, *PLANES), precision=DType.F16), Layout.ROW)


@pytest.mark.parametrize(
    ("op", "tile", "reason"),
    [
        (STEM, SlidingTile(1, 4, 1, 4, 19, 1, True), None),
        (STEM, SlidingTile(1, 1, 1, 4, 19, 1, True),
         "windows lie apart, with apart=1, where a thread has several beside each other"),
        (windows("max", 5, 1, 2), SlidingTile(1, 8, 1, 1, 19, 1, True),
         "40 columns of windows that lie apart are more than 32"),
    ],
    ids=str,
)  # fmt: skip
def test_windows_apart_have_as_many_columns_as_a_word_has_bits(op: Op, tile: SlidingTile, reason: str | None) -> None:
    assert FAMILY.refuse(in_planes(op), candidate(tile), H200) == reason


def test_windows_of_channels_do_not_lie_apart() -> None:
    reason = "windows of planes alone lie apart: channels are neighbours anyway"
    assert FAMILY.refuse(INCEPTION, candidate(SlidingTile(8, 2, 1, 4, 35, 36, True)), H200) == reason


def test_planes_have_windows_apart_first() -> None:
    offered, other = FAMILY.candidates(in_planes(STEM), H200)[0], ("staged", "streamed", "joined", "separated")
    first, *others = (each for each in offered if dict(each.parameters)["algorithm"] not in other)
    assert dict(first.parameters)["apart"] == 1
    assert "PoolWindowsApart<3, 3, 2, 2, 1, 1>" in FAMILY.emit(in_planes(STEM), first, H200, AT).call
    assert DIRECT in others
    beside = candidate(SlidingTile(1, 4, 1, 4, 19, 1))
    assert "PoolWindows<3, 3, 2, 2, 1, 1>" in FAMILY.emit(in_planes(STEM), beside, H200, AT).call


def test_rows_that_are_images_by_themselves_are_gone_down() -> None:
    """But where a stage behind has a number of each channel."""
    signals = Pool("average", (3,), (2,), (1,), (1,), (1,))
    asked = problem_of(replace(pooled("p", signals, 32, 256, 3001), precision=DType.F16), Layout.ROW)
    tile = candidate(SlidingTile(1, 4, 1, 4, 16, 1, True))
    assert FAMILY.refuse(asked, tile, H200) is None
    call = FAMILY.emit(asked, tile, H200, AT).call
    assert ".batch = 1, .channels = 1, .in = {1, 8192, 3001}, .out = {1, 8192, 1501}" in call
    assert dict(FAMILY.candidates(asked, H200)[0][0].settings)["down"] > 1
    stages = {"epilogue": (stage("mul", 1),), "operands": (Input((256, 1), True),)}
    scaled = problem_of(replace(pooled("p", signals, 32, 256, 3001, **stages), precision=DType.F16), Layout.ROW)
    reason = "a thread has 16 windows below each other, an image 1"
    assert FAMILY.refuse(scaled, tile, H200) == reason


def test_odd_channels_have_narrow_loads() -> None:
    asked = images(AVERAGE, 2, 20, 9, 9)
    reason = "20 channels are no multiple of the 8 that a thread loads at once"
    assert FAMILY.refuse(asked, candidate(SlidingTile(8, 2, 1, 4, 9, 1)), H200) == reason
    assert FAMILY.refuse(asked, candidate(SlidingTile(4, 2, 1, 4, 9, 5)), H200) is None
    assert {dict(each.parameters).get("lanes", 4) for each in FAMILY.candidates(asked, H200)[0]} == {4}


def test_many_open_windows_leave_no_second_row() -> None:
    asked = images(windows("max", 13, 1, 6), 8, 512, 20, 20)
    reason = "13 windows below each other are open at once, of kernels with 2 rows ahead 5 at most"
    assert FAMILY.refuse(asked, candidate(SlidingTile(4, 1, 2, 1, 20, 8)), H200) == reason
    assert FAMILY.refuse(asked, candidate(SlidingTile(4, 1, 1, 3, 20, 8)), H200) is None


def test_large_windows_have_narrow_loads_where_wide_ones_take_too_many_registers() -> None:
    for cells, lanes in ((13, 8), (21, 4)):
        asked = images(windows("max", cells, 1, cells // 2), 8, 512, 40, 40)
        assert {dict(each.parameters).get("lanes", lanes) for each in FAMILY.candidates(asked, H200)[0]} == {lanes}


def reasons(op: Op, *shape: int) -> list[str]:
    graph, node = graph_with(pooled("p", op, *shape))
    return [each.reason for each in FAMILY.propose(graph, node, H200, DType.F16)[1]]


def test_what_does_not_slide_has_a_reason() -> None:
    places = PoolPlaces((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    assert reasons(places, 2, 16, 9, 9) == ["sliding: joins values of rows, and indices go with none"]
    deep = Pool("max", (2, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    reason = "windows go over depths too, and slide over rows and columns alone"
    forms = ("sliding", "staged", "streamed")
    assert reasons(deep, 2, 16, 4, 9, 9) == [f"{form}: {reason}" for form in forms]
    flat = Pool("max", (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    assert reasons(flat, 2, 16, 4, 9, 9) == []


def test_what_a_candidate_states_is_what_runs() -> None:
    code = FAMILY.emit(INCEPTION, candidate(SlidingTile(8, 2, 1, 4, 6, 9)), H200, AT)
    how = "8, 2, 1, 4, bolt::portable::PoolWindows<3, 3, 1, 1, 1, 1>"
    half = "bolt::portable::f16"
    assert code.call == (
        f"bolt::portable::pool_sliding<{how}, bolt::portable::PoolAverage, {half}, {half}>(r, "
        "bolt::portable::Pool{.batch = 32, .channels = 288, .in = {1, 35, 35}, .out = {1, 35, 35}, "
        ".kernel = {1, 3, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .pad_begin = {0, 1, 1}, "
        ".pad_end = {0, 1, 1}, .channels_last = true, .out_cell = 288}, "
        "bolt::portable::PoolCut{.together = 9, .down = 6}, x, y, bolt::portable::chain());"
    )
    assert (code.includes, code.member_type) == (("bolt_portable/pool.h",), None)


def test_windows_modes_and_what_follows_are_in_the_call() -> None:
    uneven = Pool("max", (2, 3), (1, 2), (1, 0), (0, 2), (3, 2))
    chain = pooled("p", uneven, 1, 16, 11, 12, epilogue=(stage("add", 1), RELU), operands=(Input((16, 1, 1), True),))
    tile = candidate(SlidingTile(8, 2, 2, 3, 4, 2))
    text = FAMILY.emit(problem_of(chain), tile, H200, AT).call
    assert "<8, 2, 2, 3, bolt::portable::PoolWindows<2, 3, 1, 2, 3, 2>, bolt::portable::PoolMax, " in text
    assert "chain(bolt::portable::combine<bolt::portable::Add>(bolt::portable::channel<float>(r.weight(1))), " in text
    padded = images(windows("average", 3, 2, 1, padded=True), 1, 16, 12, 12, precision=DType.BF16)
    text = FAMILY.emit(padded, tile, H200, AT).call
    assert "PoolAveragePadded, bolt::portable::bf16, bolt::portable::bf16>" in text
    norm = images(LpPool(2, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), 1, 16, 12, 12)
    code = FAMILY.emit(norm, candidate(SlidingTile(8, 2, 1, 3, 4, 2)), H200, AT)
    assert "bolt::portable::PoolNorm<2>, " in code.call
    assert code.includes == ("bolt_portable/pool_norm.h",)


def test_rows_that_lie_apart_are_read_and_stored_so() -> None:
    at = replace(AT, pitches=(512,), input_pitches=(320, 0, 0))
    text = FAMILY.emit(INCEPTION, candidate(SlidingTile(8, 2, 1, 4, 6, 9)), H200, at).call
    assert ".out_cell = 512, .in_cell = 320}" in text


def test_a_candidate_that_lacks_something_is_refused() -> None:
    bare = candidate(SlidingTile(8, 2, 1, 4, 6, 9)).compiled
    reason = f"{bare} states not all that its kernel takes, or something else"
    assert FAMILY.refuse(INCEPTION, bare, H200) == reason
    with pytest.raises(ValueError, match=f"^{reason}$"):
        FAMILY.emit(INCEPTION, bare, H200, AT)


def test_earlier_locks_have_the_plain_kernel() -> None:
    assert FAMILY.refuse(INCEPTION, DIRECT, H200) is None
    assert FAMILY.emit(INCEPTION, DIRECT, H200, AT).call.startswith(
        "bolt::portable::pool<bolt::portable::PoolAverage, "
    )
    assert FAMILY.variants(INCEPTION, DIRECT, H200) == ()


def test_hosts_slide_nothing() -> None:
    layer = replace(pooled("p", AVERAGE, 2, 16, 9, 9), precision=DType.F32)
    asked = problem_of(layer, Layout.ROW, "host")
    assert FAMILY.candidates(asked, HOST)[0] == (DIRECT,)
    stated = candidate(SlidingTile(1, 2, 1, 4, 6, 1))
    assert FAMILY.refuse(asked, stated, HOST) == f"{stated} is none of its candidates"


FIVE, STEM, HALVED = windows("max", 5, 1, 2), windows("max", 3, 2, 1), windows("average", 2, 2, 0)


@pytest.mark.parametrize(
    ("op", "shape", "tile", "sliding", "plain"),
    [
        (windows("average", 3, 1, 1, padded=True), (32, 288, 35, 35), SlidingTile(8, 4, 2, 2, 12, 9), 22.84, 34.56),
        (AVERAGE, (32, 64, 56, 56), SlidingTile(8, 2, 1, 4, 7, 8), 14.27, 21.86),
        (windows("max", 3, 1, 1), (32, 256, 28, 28), SlidingTile(8, 4, 1, 3, 4, 8), 12.46, 19.10),
        (FIVE, (32, 256, 20, 20), SlidingTile(8, 2, 1, 4, 4, 8), 8.71, 18.81),
        (windows("max", 9, 1, 4), (8, 512, 20, 20), SlidingTile(8, 2, 1, 2, 4, 16), 8.89, 22.16),
        (STEM, (32, 64, 112, 112), SlidingTile(8, 1, 1, 8, 7, 8), 25.98, 24.96),
        (HALVED, (32, 128, 56, 56), SlidingTile(8, 1, 1, 8, 4, 8), 13.64, 13.28),
        (windows("average", 3, 1, 1, padded=True), (1, 192, 35, 35), SlidingTile(8, 1, 1, 5, 2, 8), 2.79, 2.67),
    ],
    ids=str,
)  # fmt: skip
def test_predictions_are_near_what_an_h100_took_and_the_faster_one_leads(
    op: Pool, shape: tuple[int, ...], tile: SlidingTile, sliding: float, plain: float
) -> None:
    """Microseconds, of tensors that came from memory: those of an engine, for which times are predicted, are in L2 in
    part. Windows of which few overlap keep the plain kernel, and so do a few images."""
    h100, asked = target_named("h100"), images(op, *shape, target="h100")
    assert FAMILY.refuse(asked, candidate(tile), h100) is None
    for each, measured in ((candidate(tile), sliding), (DIRECT, plain)):
        found = 1e6 * FAMILY.predict(asked, each, h100)
        assert measured / 1.6 < found < measured * 1.35
    leads = FAMILY.candidates(asked, h100)[0][0]
    assert (leads == DIRECT) == (plain < sliding)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_what_is_offered_is_legal_and_states_all(data: st.DataObject) -> None:
    draw = data.draw
    target = draw(st.sampled_from(("h200", "a100", "t4")))
    cells, stride, dilation = draw(st.integers(1, 7)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    op = windows(draw(st.sampled_from(("max", "average"))), cells, stride, draw(st.integers(0, cells // 2)), dilation)
    extent = draw(st.integers(13, 40)), draw(st.integers(13, 40))
    asked = images(op, draw(st.integers(1, 8)), draw(st.integers(1, 80)), *extent, target=target)
    candidates = FAMILY.candidates(asked, target_named(target))[0]
    for first in candidates:
        for each in (first, *FAMILY.variants(asked, first, target_named(target))):
            assert FAMILY.refuse(asked, each, target_named(target)) is None
            if ("algorithm", "sliding") in each.parameters:
                assert candidate(FORM.tile_of(each)) == each
