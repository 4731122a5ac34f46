"""Layers that oneDNN's products of integers are tried with, and how their results are compared."""

from __future__ import annotations

import numpy as np
from families_harness import Input, Layer

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct

I8, U8, F32 = DType.I8, DType.U8, DType.F32
RELU = EpilogueOp(Activation("relu"))


def whole(shape: tuple[int, ...], dtype: DType, constant: bool = False) -> Input:
    return Input(shape, constant, -127.0 if dtype is I8 else 0.0, 127.0 if dtype is I8 else 255.0, dtype)


def integer(value: float, dtype: DType, constant: bool = True, count: tuple[int, ...] = ()) -> Input:
    """A zero point: `value` towards zero."""
    return Input(count, constant, value, value, dtype)


def layer(
    label: str, product: Conv | MatMul, x: tuple[int, ...], w: tuple[int, ...], columns: int, *, to: DType = U8,
    source: DType = U8, weights: DType = I8, zero: float = 0.0, result_zero: float = 0.0, per: bool = True,
    biased: bool = True, stages: tuple[EpilogueOp, ...] = (), operands: tuple[Input, ...] = (), known: bool = True,
    step: float = 0.02, weights_zero: float | None = None, fixed: bool = True,
) -> Layer:  # fmt: skip
    """A product of integers; `known`: scale and zero point of x are constants, `fixed`: its weights are."""
    scales = (columns,) if per else ()
    middle = (0.0 if weights is I8 else 128.0) if weights_zero is None else weights_zero
    given = [
        whole(x, source), whole(w, weights, fixed), Input((), known, 0.01, 0.012),
        integer(zero, source, known), Input(scales, True, 0.001, 0.004), integer(middle, weights, True, scales),
    ]  # fmt: skip
    given += [Input((columns,), True, -1.0, 1.0)] if biased else []
    given += [] if to.is_float else [Input((), True, step, step * 1.1), integer(result_zero, to)]
    inside = stages if not to.is_float else ()
    op = QuantisedProduct(product, to, biased, inside)
    return Layer(label, op, (*given, *operands), stages if to.is_float else (), tolerance=1e-5)


def conv(*, strides: int = 1, pads: int = 1, groups: int = 1) -> Conv:
    return Conv((strides, strides), (pads, pads), (pads, pads), (1, 1), groups)


INTEGERS = [
    layer("conv", conv(), (2, 64, 9, 8), (48, 64, 3, 3), 48, stages=(RELU,), step=0.1),
    layer("conv-zeros", conv(), (1, 64, 9, 8), (48, 64, 3, 3), 48, zero=113.0, result_zero=127.0, step=0.1),
    layer("stem", conv(strides=2, pads=1), (1, 3, 33, 31), (16, 3, 3, 3), 16, zero=120.0, step=0.03),
    layer("1x1-signed", conv(pads=0), (1, 40, 7, 7), (24, 40, 1, 1), 24, source=I8, to=I8, zero=-9.0, result_zero=5.0,
          step=0.1),
    layer("depthwise", conv(groups=24), (1, 24, 10, 10), (24, 1, 3, 3), 24, zero=7.0, step=0.03),
    layer("grouped-real", conv(groups=4), (1, 32, 8, 8), (64, 8, 3, 3), 64, to=F32, per=False),
    layer("product", MatMul(), (2, 19, 300), (300, 70), 70, zero=131.0, result_zero=127.0, step=0.1),
    layer("product-turned", MatMul(False, True), (33, 96), (40, 96), 40, weights=U8, per=False, biased=False,
          step=0.1),
    layer("one-row", MatMul(), (1, 512), (512, 100), 100, step=0.1, result_zero=100.0),
    layer("found-scale", MatMul(), (21, 96), (96, 40), 40, to=F32, known=False, zero=117.0,
          stages=(EpilogueOp(Activation("gelu")),)),
    layer("uneven", MatMul(), (19, 96), (96, 40), 40, weights=U8, weights_zero=77.0, per=False, zero=9.0, step=0.1),
    layer("uneven-found", MatMul(), (19, 96), (96, 40), 40, weights_zero=-5.0, per=False, to=F32, known=False,
          zero=3.0),
    layer("both", MatMul(), (2, 3, 17, 40), (2, 3, 40, 21), 21, weights=U8, weights_zero=110.0, per=False, biased=False,
          fixed=False, zero=120.0, result_zero=130.0, step=0.01),
    layer("both-turned", MatMul(False, True), (2, 3, 17, 64), (2, 3, 33, 64), 33, per=False, biased=False, fixed=False,
          source=I8, to=I8, step=0.01),
    Layer("largest", Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), (whole((2, 16, 15, 15), U8),)),
    Layer("largest-signed", Pool("max", (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), (whole((2, 16, 15, 14), I8),)),
    layer("residual", MatMul(), (21, 96), (96, 40), 40, to=F32, stages=(EpilogueOp(Binary("add"), 7), RELU),
          operands=(Input((21, 40)),)),
    layer("residual-rounded", MatMul(), (21, 96), (96, 40), 40, stages=(EpilogueOp(Binary("add"), 9), RELU),
          operands=(Input((21, 40)),), step=0.1),
]  # fmt: skip


def few_are_a_step_off(found: Array, expected: Array) -> None:
    """Integers are those of the reference, but for some at a border."""
    off = np.abs(found.astype(int) - expected.astype(int))
    assert off.max() <= 1
    assert np.count_nonzero(off) <= 0.002 * off.size
    assert len(np.unique(expected)) > 50
