"""Convolutions and matrix products in half precision, as layers that are tried on a GPU."""

from __future__ import annotations

from families_harness import Input, Layer
from families_layers import RELU, stage

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul

TOLERANCE = 4e-3
"""Of half precision: values stored once after sums of exact products in fp32, relative to 1 + |value|."""
RESIDUAL = (stage("add", 3), RELU)
SILU, GELU = (EpilogueOp(Activation("silu")),), (EpilogueOp(Activation("gelu")),)


def conv(
    label: str,
    x: tuple[int, ...],
    filters: int,
    kernel: tuple[int, ...],
    stride: int = 1,
    pads: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    dilation: int = 1,
    groups: int = 1,
    epilogue: tuple[EpilogueOp, ...] = (RELU,),
    *,
    bias: bool = True,
) -> Layer:
    """A convolution in half precision; padded so that a stride of 1 keeps the size, unless pads are given.

    Operands of the epilogue follow the bias.
    """
    spatial = len(kernel)
    begin, end = pads or (tuple(dilation * (k - 1) // 2 for k in kernel),) * 2
    op = Conv((stride,) * spatial, begin, end, (dilation,) * spatial, groups)
    depth = x[1] // groups
    for extent in kernel:
        depth *= extent
    bound = (3.0 / depth) ** 0.5
    inputs = [Input(x), Input((filters, x[1] // groups, *kernel), True, -bound, bound)]
    inputs += [Input((filters,), True)] * bias
    (output,) = op.infer([TensorType(DType.F16, given.shape) for given in inputs])
    inputs += [Input(output.shape) for s in epilogue if s.operand is not None]
    return Layer(label, op, tuple(inputs), epilogue, DType.F16, TOLERANCE)


def matmul(label: str, a: tuple[int, ...], columns: int, transposed: bool, epilogue: tuple[EpilogueOp, ...]) -> Layer:
    shape = (columns, a[-1]) if transposed else (a[-1], columns)
    inputs = (Input(a), Input(shape, True, -0.1, 0.1), Input((columns,), True))
    return Layer(label, MatMul(transpose_b=transposed), inputs, epilogue, DType.F16, TOLERANCE)
