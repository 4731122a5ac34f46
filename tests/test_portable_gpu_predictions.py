"""What the portable family's kernels are predicted to take on a GPU, beside what the recipes' locks say they took."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Convert
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
        ((128, 2048, 7, 7), PIXELS, PLANES, 70.64),
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
    """The locks' times are of kernels that read one element at once."""
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
        ((128, 2048, 7, 7), PLANES, 318.08),
        ((128, 1280, 7, 7), PLANES, 198.37),
        ((32, 512, 7, 7), PLANES, 21.05),
        ((1, 1280, 7, 7), PLANES, 3.02),
        ((128, 2048, 7, 7), PIXELS, 11.11),
        ((32, 512, 7, 7), PIXELS, 4.43),
    ],
    ids=str,
)
def test_means_over_images(shape: Shape, format: TensorFormat, measured: float) -> None:
    out = (*shape[:2], 1, 1)
    found = predicted(Reduce("mean", (2, 3), keepdims=True), shape, format, out, format)
    assert measured / 2 < found < measured * 2
