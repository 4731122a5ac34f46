"""Layers that the portable kernels of quantised tensors are tried with: per tensor, axis and block, and products."""

from __future__ import annotations

from families_harness import Input, Layer

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.quantised.integer_product import IntegerConv, IntegerMatMul
from bolt_build.graph.ops.quantised.quantised_map import QuantisedMap
from bolt_build.graph.ops.quantised.quantize import (
    Dequantize,
    FakeQuantize,
    Quantize,
    RangeQuantize,
    RangeScale,
    RangeZero,
    Requantize,
    ScaleSums,
)

IMAGE = (2, 5, 6, 7)
WIDE = (1, 40, 33, 32)
I8, U8, U16, I32 = DType.I8, DType.U8, DType.U16, DType.I32


def whole(shape: tuple[int, ...], dtype: DType, constant: bool = False, most: float = 100.0) -> Input:
    """Integers of all of a range, as many as draws hit."""
    return Input(shape, constant, -most if dtype in (I8, DType.I16, I32) else 0.0, most, dtype)


def small_conv(label: str, x: Input, w: Input, bias: bool = False, groups: int = 1, **zeros: tuple[int, ...]) -> Layer:
    given = (whole((w.shape[0],), I32, True, 9000.0),) if bias else ()
    zero = whole(zeros.get("zeros", ()), w.dtype, True, 9.0)
    op = IntegerConv((2, 1), (1, 2), (0, 1), (1, 2), groups)
    return Layer(label, op, (x, w, whole((), x.dtype, False, 120.0), zero, *given))


QUANTISED = [
    Layer("quantize", Quantize(U8), (Input(IMAGE, low=-9.0, high=9.0), Input((), True, 0.02, 0.03), whole((), U8))),
    Layer("quantize-channels", Quantize(I8),
          (Input(IMAGE, low=-9.0, high=9.0), Input((5, 1, 1), True, 0.05, 0.1), whole((5, 1, 1), I8, True))),
    Layer("quantize-wide", Quantize(U16), (Input(WIDE, low=-9.0, high=9.0), Input((), low=1e-4, high=2e-4),
          whole((), U16, most=3000.0))),
    Layer("quantize-sums", Quantize(I8), (whole((3, 7), I32, most=900.0), Input((), True, 7.0, 7.5), whole((), I8))),
    Layer("dequantize", Dequantize(DType.F32), (whole(IMAGE, U8, most=255.0), Input((), True, 0.1, 0.2),
          whole((), U8))),
    Layer("dequantize-channels", Dequantize(DType.F32), (whole(WIDE, I8), Input((40, 1, 1), True, 0.1, 0.2),
          whole((40, 1, 1), I8, True))),
    Layer("dequantize-sums", Dequantize(DType.F32),
          (whole((3, 7), I32, most=1e6), Input((7,), True, 1e-6, 2e-6), whole((), I32, True, 0.0))),
    Layer("fake-quantize", FakeQuantize(I8), (Input(IMAGE, low=-9.0, high=9.0), Input((), True, 0.05, 0.1),
          whole((), I8, True))),
    Layer("scale-sums-biased", ScaleSums(DType.F32), (whole((3, 8), I32, most=5e4), Input((), low=0.01, high=0.02),
          Input((8,), True, 0.01, 0.02), Input((8,), True))),
    Layer("requantize", Requantize(I8), (whole((3, 5, 8), I32, most=5e4), Input((), True, 0.1, 0.2),
          Input((8,), True, 0.1, 0.2), Input((), True, 5.0, 6.0), whole((), I8, True))),
    Layer("requantize-rows", Requantize(U8), (whole((3, 1, 1100), I32, most=5e4), Input((3, 1, 1), True, 0.1, 0.2),
          Input((1100,), True, 0.1, 0.2), Input((), True, 5.0, 6.0), whole((), U8, True))),
    Layer("scale-sums", ScaleSums(DType.F32), (whole((3, 5, 8), I32, most=5e4), Input((), low=0.01, high=0.02),
          Input((8,), True, 0.01, 0.02))),
    Layer("range-scale", RangeScale(), (Input((), low=-3.0, high=-2.0), Input((), low=2.0, high=4.0))),
    Layer("range-zero", RangeZero(), (Input((), low=-3.0, high=-2.0), Input((), low=2.0, high=4.0))),
    Layer("range-quantize", RangeQuantize(), (Input(IMAGE, low=-3.0, high=4.0), Input((), low=-3.1, high=-3.0),
          Input((), low=4.0, high=4.1))),
    Layer("integer-product", IntegerMatMul(),
          (whole((2, 19, 300), U8, most=255.0), whole((300, 70), I8), whole((), U8), whole((), I8))),
    Layer("integer-product-turned", IntegerMatMul(True, True),
          (whole((33, 5), I8), whole((4, 18, 33), U8), whole((5,), I8, most=9.0), whole((18,), U8, most=9.0))),
    Layer("map-sum", QuantisedMap(Binary("add"), U8, (True, True), (EpilogueOp(Activation("relu")),)),
          (whole(IMAGE, U8, most=255.0), Input((), True, 0.01, 0.02), whole((), U8), whole(IMAGE, I8),
           Input((), True, 0.01, 0.02), whole((), I8), Input((), True, 0.03, 0.04), whole((), U8))),
    Layer("map-channels", QuantisedMap(Binary("mul"), I8, (False, True)),
          (Input((5, 1, 1), True), whole(IMAGE, I8), Input((), True, 0.01, 0.02), whole((), I8),
           Input((), True, 0.03, 0.04), whole((), I8))),
    Layer("map-table", QuantisedMap(Activation("erf"), U8, (True,)),
          (whole(WIDE, I8), Input((), True, 0.01, 0.02), whole((), I8), Input((), True, 0.01, 0.02), whole((), U8))),
    small_conv("integer-conv", whole((2, 5, 9, 8), U8, most=255.0), whole((20, 5, 3, 2), I8, True), True),
    small_conv("integer-conv-deep", whole((1, 96, 7, 9), I8), whole((9, 96, 3, 2), I8, True), zeros=(9,)),
    small_conv("integer-conv-groups", whole((2, 6, 9, 8), I8), whole((6, 1, 3, 2), U8, True), True, 6, zeros=(6,)),
    small_conv("integer-conv-each", whole((2, 70, 5, 6), U8, most=255.0), whole((70, 1, 3, 2), I8, True), False, 70),
    small_conv("integer-conv-few", whole((2, 6, 9, 8), U8), whole((8, 3, 3, 2), I8, True), True, 2, zeros=(8,)),
    small_conv("integer-conv-beyond", whole((1, 9, 2, 2), I8), whole((9, 1, 3, 3), I8, True), True, 9),
    small_conv("integer-conv-of-groups", whole((2, 6, 9, 8), U8), whole((34, 3, 3, 2), I8, True), False, 2),
]  # fmt: skip
