"""What the portable family's kernels are predicted to take on a GPU, beside what the recipes' locks say they took."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Convert, Slice
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import target_named

ROW, LAST = Layout.ROW, Layout.CHANNELS_LAST
PLANES, PIXELS, SINGLE = TensorFormat(DType.F16, ROW), TensorFormat(DType.F16, LAST), TensorFormat(DType.F32, ROW)
CANDIDATE = Candidate("portable", (("algorithm", "direct"),))
Shape = tuple[int, ...]


def predicted(op: Op, shape: Shape, source: TensorFormat, out: Shape, to: TensorFormat) -> float:
    """Microseconds on an H200."""
    problem = KernelProblem(op, (Operand(shape, source),), (Operand(out, to),), (), DType.F32, "h200")
    return Portable().predict(problem, CANDIDATE, target_named("h200")) * 1e6


def close(found: float, measured: float) -> bool:
    return measured / 1.6 < found < measured * 1.6


@pytest.mark.parametrize(
    ("shape", "source", "to", "measured"),
    [
        ((8, 197, 768), PLANES, PIXELS, 4.52),
        ((8, 196, 768), PLANES, PIXELS, 2.85),
        ((32, 64, 32, 32), PIXELS, PLANES, 2.82),
        ((32, 128, 8, 8), PIXELS, PLANES, 2.19),
        ((128, 3, 224, 224), PLANES, SINGLE, 31.16),
        ((32, 3, 224, 224), SINGLE, PLANES, 8.33),
        ((1, 3, 224, 224), SINGLE, PLANES, 1.75),
    ],
    ids=str,
)
def test_changes_of_layout(shape: Shape, source: TensorFormat, to: TensorFormat, measured: float) -> None:
    assert close(predicted(Convert(), shape, source, shape, to), measured)


@pytest.mark.parametrize(
    ("shape", "source", "to", "measured"),
    [
        ((128, 3, 224, 224), PIXELS, PLANES, 667.28),
        ((128, 2048, 7, 7), PIXELS, PLANES, 70.64),
        ((32, 3, 224, 224), PIXELS, SINGLE, 170.70),
        ((128, 64, 224, 224), PLANES, PIXELS, 1797.07),
        ((128, 64, 224, 224), PIXELS, PLANES, 1744.80),
        ((32, 256, 56, 56), PLANES, PIXELS, 114.20),
        ((128, 3, 224, 224), PLANES, PIXELS, 108.88),
        ((128, 3, 224, 224), PIXELS, SINGLE, 672.42),
        ((128, 3, 224, 224), SINGLE, PIXELS, 110.23),
        ((1, 256, 56, 56), PIXELS, PLANES, 4.38),
    ],
    ids=str,
)
def test_what_threads_turn_in_registers_takes_less_than_it_took_element_by_element(
    shape: Shape, source: TensorFormat, to: TensorFormat, measured: float
) -> None:
    """The locks' times are of kernels that read one element at once, or turned images one behind the other."""
    bytes_alone = Operand(shape, source).nbytes / target_named("h200").bandwidth * 1e6
    assert bytes_alone < predicted(Convert(), shape, source, shape, to) < measured


@pytest.mark.parametrize(
    ("shape", "window", "format", "measured"),
    [
        ((128, 64, 112, 112), 3, PLANES, 563.78),
        ((128, 64, 224, 224), 2, PLANES, 1922.86),
        ((32, 512, 28, 28), 2, PLANES, 57.66),
        ((1, 64, 224, 224), 2, PLANES, 16.56),
        ((128, 64, 112, 112), 3, PIXELS, 73.23),
        ((32, 64, 224, 224), 2, PIXELS, 59.69),
        ((1, 512, 28, 28), 2, PIXELS, 1.82),
    ],
    ids=str,
)
def test_pooling(shape: Shape, window: int, format: TensorFormat, measured: float) -> None:
    pads = (window // 2 % 2 * (window - 2),) * 2
    op = Pool("max", (window, window), (2, 2), pads, pads, (1, 1))
    out = (*shape[:2], shape[2] // 2, shape[3] // 2)
    assert close(predicted(op, shape, format, out, format), measured)


@pytest.mark.parametrize(
    ("shape", "format", "measured"),
    [
        ((16, 2048, 7, 7), PLANES, 6.71),
        ((1, 1280, 7, 7), PLANES, 3.02),
        ((128, 2048, 7, 7), PIXELS, 11.11),
        ((32, 512, 7, 7), PIXELS, 2.15),
        ((32, 256, 56, 56), PIXELS, 14.41),
    ],
    ids=str,
)
def test_means_over_images(shape: Shape, format: TensorFormat, measured: float) -> None:
    out = (*shape[:2], 1, 1)
    found = predicted(Reduce("mean", (2, 3), keepdims=True), shape, format, out, format)
    assert measured / 2 < found < measured * 2


@pytest.mark.parametrize(
    ("shape", "taken", "measured"),
    [((32, 56, 56, 256), (32, 56, 56, 80), 9.6), ((32, 14, 14, 1024), (32, 14, 14, 320), 2.5)],
    ids=str,
)
def test_slices_read_only_what_they_take(shape: Shape, taken: Shape, measured: float) -> None:
    found = predicted(Slice((0,) * 4, taken, (1,) * 4), shape, PLANES, taken, PLANES)
    assert close(found, measured)


def normalised(*shape: int) -> KernelProblem:
    """An image of which everything has one statistic."""
    x, each = Operand(shape, PIXELS), Operand((shape[1], 1, 1), SINGLE, constant=True)
    return KernelProblem(Norm("variance", (1, 2, 3), 1e-5), (x, each, each), (x,), (), DType.F32, "h200")


@pytest.mark.parametrize(
    ("problem", "across", "cluster", "measured"),
    [
        (normalised(32, 64, 56, 56), 8, 8, 10.7),
        (normalised(32, 128, 28, 28), 16, 4, 8.5),
        (normalised(32, 320, 14, 14), 40, 4, 7.4),
        (normalised(32, 512, 7, 7), 64, 4, 6.0),
        (normalised(32, 64, 4, 256), 8, 4, 7.5),
        (normalised(32, 96, 4, 64), 12, 4, 6.2),
    ],
    ids=["64x56", "128x28", "320x14", "512x7", "64x4x256", "96x4x64"],
)
def test_images_that_are_little_work_take_as_long_as_their_blocks_wait(
    problem: KernelProblem, across: int, cluster: int, measured: float
) -> None:
    settings = (("across", across), ("cluster", cluster), ("chunks", 1), ("threads", 128))
    slabs = Candidate("portable", (("algorithm", "slabs"),), settings)
    found = Portable().predict(problem, slabs, target_named("h200")) * 1e6
    assert measured / 1.3 < found < measured * 1.3


def test_images_of_a_few_positions_are_held_in_slabs() -> None:
    """The plain kernel took 24.7 us of an H200, and was expected to take 3."""
    problem = normalised(32, 128, 4, 16)
    direct = Portable().predict(problem, CANDIDATE, target_named("h200")) * 1e6
    assert 24.7 / 1.3 < direct < 24.7 * 1.3
    assert dict(Portable().candidates(problem, target_named("h200"))[0][0].parameters)["algorithm"] == "held"
