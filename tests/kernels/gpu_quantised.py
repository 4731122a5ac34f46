"""Numbers as integers and back in accesses of sixteen elements: one scale, one a channel of planes and of pixels, ends
in the middle of an access, every type."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE
from quantised_layers import whole

from bolt_build.dtypes import DType
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.quantised.quantize import WideTile
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.quantised.quantize import Dequantize, FakeQuantize, Quantize

LAST, ROW = Layout.CHANNELS_LAST, Layout.ROW
PLANES, PIXELS, FEW = (3, 5, 9, 7), (2, 32, 5, 6), (2, 7, 3, 2)
MOST = {DType.I8: 100.0, DType.U8: 255.0, DType.I16: 30000.0, DType.U16: 65000.0}


def layer(
    label: str, op: Op, shape: tuple[int, ...], scales: tuple[int, ...], stored: DType, precision: DType = DType.F16
) -> Layer:
    """Some numbers end at the limits."""
    given = Input(shape, low=-9.0, high=9.0)
    if isinstance(op, Dequantize):
        given = whole(shape, stored, most=MOST[stored])
    step = 16.0 / (MOST[stored] if MOST[stored] > 120 else 200.0)
    zeros = whole(scales, stored, True, most=MOST[stored] / 3)
    return Layer(f"wide-{label}", op, (given, Input(scales, True, step / 2, step), zeros), (), precision, TOLERANCE)


CASES = (
    (layer("quantise", Quantize(DType.I8), (7, 333), (), DType.I8), ROW),
    (layer("quantise-planes", Quantize(DType.U8), PLANES, (5, 1, 1), DType.U8), ROW),
    (layer("quantise-pixels", Quantize(DType.I8), PIXELS, (32, 1, 1), DType.I8), LAST),
    (layer("quantise-columns", Quantize(DType.I16), (9, 48), (48,), DType.I16, DType.BF16), ROW),
    (layer("quantise-fp32", Quantize(DType.U16), PLANES, (5, 1, 1), DType.U16, DType.F32), ROW),
    (layer("quantise-odd-pixels", Quantize(DType.I8), (3, 20, 5, 7), (20, 1, 1), DType.I8), LAST),
    (layer("quantise-small-planes", Quantize(DType.U8), (5, 7, 3, 3), (7, 1, 1), DType.U8), ROW),
    (layer("dequantise-odd-pixels", Dequantize(DType.F32), (2, 5, 9, 7), (5, 1, 1), DType.I8), LAST),
    (layer("dequantise", Dequantize(DType.F32), (7, 333), (), DType.I8), ROW),
    (layer("dequantise-planes", Dequantize(DType.F32), PLANES, (5, 1, 1), DType.U8), ROW),
    (layer("dequantise-pixels", Dequantize(DType.F32), PIXELS, (32, 1, 1), DType.U16, DType.F32), LAST),
    (layer("fake-planes", FakeQuantize(DType.I8), PLANES, (5, 1, 1), DType.I8), ROW),
    (layer("fake-pixels", FakeQuantize(DType.U8), PIXELS, (32, 1, 1), DType.U8, DType.F32), LAST),
)


def quantised_trials() -> list[Trial]:
    found = []
    for number, (each, layout) in enumerate(CASES):
        offered = trials_of(each, "portable")
        plain = next(trial for trial in offered if trial.step.problem.outputs[0].format.layout is layout)
        found.append(replace(plain, candidate=candidate_of("portable", "wide", WideTile((1, 2, 4)[number % 3]))))
    return found
