"""Images resampled by rows that slide: what candidates state, what is refused and why, and which is offered first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, graph_with
from gpu_resample import resampled

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.resample import ResampleTile
from bolt_build.families.portable.kernels.moves.flat_rows import RowTile
from bolt_build.graph.ir import Layout
from bolt_build.targets import HOST, target_named

FAMILY, H100, H200 = Portable(), target_named("h100"), target_named("h200")


def problem_of(
    shape: tuple[int, ...], *tables: tuple[int, int, int], row: bool = False, precision: DType = DType.F16
) -> KernelProblem:
    graph, node = graph_with(resampled("one", shape, *tables, precision=precision))
    wanted = Layout.ROW if row else Layout.CHANNELS_LAST
    found = [each.steps[0].problem for each in FAMILY.propose(graph, node, H100, precision)[0]]
    return next(each for each in found if each.outputs[0].format.layout is wanted)


IMAGES = problem_of((32, 64, 56, 56), (2, 112, 4), (3, 112, 4))


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (ResampleTile(8, 1, 1, 16), None),
        (ResampleTile(2, 4, 4, 112), None),
        (ResampleTile(16, 1, 1, 16), "there are kernels of 1, 2, 4 or 8 neighbours, of 16 bytes at most"),
        (ResampleTile(8, 3, 1, 16), "there are kernels of 1, 2 or 4 pixels of a row"),
        (ResampleTile(8, 1, 5, 16), "asks for 5 rows of the input at once, of which a result has 4"),
        (ResampleTile(8, 1, 1, 113), "a thread has 113 results below each other, an image 112"),
        (ResampleTile(8, 4, 1, 16), "takes 224 registers of a thread for rows and tables, which has 128 for these"),
    ],
    ids=str,
)
def test_a_cut_that_is_not_legal_has_a_reason(tile: ResampleTile, reason: str | None) -> None:
    """32 images of 56 x 56 pixels and 64 channels that become twice as large, of four neighbours an axis."""
    assert FAMILY.refuse(IMAGES, candidate_of("portable", "sliding", tile), H100) == reason


def test_odd_channels_have_narrow_loads() -> None:
    asked = problem_of((2, 20, 9, 9), (2, 18, 2), (3, 18, 2))
    reason = "20 neighbours are no multiple of the 8 that a thread loads at once"
    assert FAMILY.refuse(asked, candidate_of("portable", "sliding", ResampleTile(8, 1, 1, 9)), H100) == reason


def first(problem: KernelProblem) -> str:
    """Of those whose rows slide."""
    offered = FAMILY.candidates(problem, H100)[0]
    return next(str(each) for each in offered if "sliding" in str(each)).partition(" down")[0]


def test_channels_go_by_whole_accesses_and_pixels_of_planes_several_a_thread() -> None:
    """Images that become smaller add two rows with each result, whose pixels an H200 takes alike by one or two."""
    linear = ((2, 112, 2), (3, 112, 2))
    smaller = ((2, 28, 2), (3, 28, 2))
    assert first(problem_of((32, 64, 56, 56), *linear)) == "portable algorithm=sliding lanes=8 pixels=1 step=1"
    assert first(problem_of((32, 64, 56, 56), *smaller)) in {
        f"portable algorithm=sliding {of} step=2" for of in ("lanes=8 pixels=1", "lanes=4 pixels=2")
    }
    assert (
        first(problem_of((32, 64, 56, 56), *linear, row=True)) == "portable algorithm=sliding lanes=1 pixels=4 step=1"
    )
    wide = problem_of((32, 64, 56, 56), *linear, precision=DType.F32)
    assert first(wide) == "portable algorithm=sliding lanes=4 pixels=2 step=1"


def test_pixels_may_lie_apart_where_they_are_whole() -> None:
    def apart(shape: tuple[int, ...], *tables: tuple[int, int, int]) -> list[tuple[int, ...]]:
        graph, node = graph_with(resampled("one", shape, *tables, precision=DType.F16))
        return [each.steps[0].pitched for each in FAMILY.propose(graph, node, H100, DType.F16)[0]]

    # Planes, pixels, and planes that are stored in fp32.
    assert apart((2, 8, 5, 5), (2, 10, 2), (3, 10, 2)) == [(), (0,), ()]
    assert apart((2, 8, 5, 5), (2, 10, 2)) == [(), (0,), ()]
    assert apart((2, 8, 5, 5, 5), (2, 10, 2), (3, 10, 2)) == [(), (), ()]


def test_what_no_kernel_resamples_has_a_reason() -> None:
    layer = resampled("one", (2, 8, 5, 5), (2, 10, 2))
    given = replace(layer, inputs=(layer.inputs[0], Input((10,), dtype=DType.I64), layer.inputs[2]))
    for target in (HOST, H100):
        graph, node = graph_with(given)
        found, refused = FAMILY.propose(graph, node, target, DType.F32)
        assert found == ()
        assert [each.reason for each in refused] == ["resamples with tables that are known when the engine is built"]
    graph, node = graph_with(resampled("one", (2, 8, 5, 5), (1, 10, 2)))
    found, refused = FAMILY.propose(graph, node, H100, DType.F32)
    assert [each.steps[0].problem.outputs[0].format.layout for each in found] == [Layout.ROW]
    assert [each.reason for each in refused] == [
        "joined: joins rows whose columns change",
        "tensor_cores: tensor cores multiply planes of half precision, which stay so",
        "banded: tensor cores multiply planes of half precision, which stay so",
        "resamples channels row-major",
    ]


def test_a_call_has_both_axes_with_their_tables() -> None:
    candidate = candidate_of("portable", "sliding", ResampleTile(8, 1, 1, 16))
    at = StepExpressions(("x", "a", "b", "c", "d"), ("y",), (None,) * 5)
    axis = "bolt::portable::ResampledAxis{{.extent = 56, .made = 112, .taps = 4, .first = {}, .weights = {}}}"
    axes = ", ".join(
        axis.format(f"static_cast<const std::int64_t*>({first})", f"static_cast<const float*>({weights})")
        for first, weights in (("a", "b"), ("c", "d"))
    )
    assert FAMILY.emit(IMAGES, candidate, H100, at).call == (
        "bolt::portable::resample_sliding<bolt::portable::f16, 8, 1, 4, 4, 1>(r, bolt::portable::Resample{.outer = 32, "
        f".inner = 64, .in_cell = 64, .out_cell = 64}}, {axes}, 16, x, y);"
    )


NEAREST = problem_of((32, 64, 114, 114), (2, 57, 1), (3, 57, 1), row=True)


def test_of_planes_that_leave_out_rows_none_of_these_is_read_where_results_have_one_neighbour() -> None:
    """Twice as large planes are read once by blocks that have their rows."""
    larger = problem_of((32, 64, 57, 57), (2, 114, 1), (3, 114, 1), row=True)
    firsts = [dict(FAMILY.candidates(each, H200)[0][0].parameters)["algorithm"] for each in (NEAREST, larger)]
    assert firsts == ["flat_rows", "streamed"]


@pytest.mark.parametrize(
    "problem",
    [
        problem_of((2, 8, 9, 9), (2, 18, 2), (3, 18, 1), row=True),
        problem_of((2, 8, 9, 9), (2, 18, 1), (3, 18, 1)),
    ],
    ids=["two neighbours", "channels"],
)
def test_rows_of_single_neighbours_are_of_planes(problem: KernelProblem) -> None:
    tile = candidate_of("portable", "flat_rows", RowTile(4, 4))
    assert FAMILY.refuse(problem, tile, H100) == f"{tile} is none of its candidates"


def test_a_row_of_single_neighbours_knows_tables_and_extents() -> None:
    at = StepExpressions(("x", "fh", "wh", "fw", "ww"), ("y",), (None,) * 5)
    code = FAMILY.emit(NEAREST, candidate_of("portable", "flat_rows", RowTile(4, 4)), H100, at)
    assert code.includes == ("bolt_portable/cuda/images/resample_rows.h",)
    assert code.call == (
        "bolt::portable::flat_rows<4, 4, true>(r, 116736, bolt::portable::NearestRows<bolt::portable::f16, "
        "bolt::portable::Numbers<114, 57, 114, 57, 1, 1, 1>, 1, 1>{static_cast<const bolt::portable::f16*>(x), "
        "static_cast<const std::int64_t*>(fh), static_cast<const std::int64_t*>(fw), static_cast<const float*>(wh), "
        'static_cast<const float*>(ww)}, y, "movement");'
    )


def test_planes_are_stored_as_the_models_outputs_are() -> None:
    """Maps of classes are made as large as the image last: nothing converts them to fp32 behind that."""
    graph, node = graph_with(resampled("classes", (32, 21, 28, 28), (2, 224, 2), (3, 224, 2)))
    problems = [each.steps[0].problem for each in FAMILY.propose(graph, node, H100, DType.F16)[0]]
    wide = [problem for problem in problems if problem.outputs[0].format.dtype is DType.F32]
    assert [problem.outputs[0].format.layout for problem in wide] == [Layout.ROW]
    first = FAMILY.candidates(wide[0], H100)[0][0]
    at = StepExpressions(("x", "f", "w", "g", "v"), ("y",), (None, "f", "w", "g", "v"))
    assert "algorithm=streamed" in str(first)
    assert ", float>(r, " in FAMILY.emit(wide[0], first, H100, at).call
    sliding = candidate_of("portable", "sliding", ResampleTile(1, 4, 1, 16))
    assert FAMILY.refuse(wide[0], sliding, H100) == "sliding: stores elements as they are read"
