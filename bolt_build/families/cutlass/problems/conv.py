"""Convolutions as products: GEMM for 1x1s, implicit GEMM for windows, whose im2col matrix is never stored."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.geometry import strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import refuse_epilogue, residual
from bolt_build.families.cutlass.problems import beside
from bolt_build.families.cutlass.problems.fold import CELL, folding, folds
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Widen, aligned, narrow_loads, too_large
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv

_SPACE = "bolt::cutlass_kernels"
_MOST_TAPS = 32
"""Kernel positions along one axis that the iterators keep masks for."""


def thin(problem: KernelProblem) -> bool:
    """True where a window's row is gathered as one run of channels: few channels, wide window (an image's first layer).

    The columns of such a row follow each other in memory, so the row is one deep tap whose neighbours overlap.
    """
    op = problem.op
    assert isinstance(op, Conv)
    weights = problem.inputs[op_operands(problem)[1]]
    return problem.inputs[op_operands(problem)[0]].shape[1] <= ALIGNMENT and weights.shape[-1] > 1 == op.dilations[-1]


def gathers(problem: KernelProblem) -> bool:
    """True where the input is copied before the product anyway, from whatever order and type it has."""
    return thin(problem) or problem.inputs[op_operands(problem)[0]].shape[1] % ALIGNMENT != 0


def _plain_input(x: Operand) -> bool:
    """True for what kernels can read as it is, or in wider loads."""
    return x.format.dtype in HALVES and x.format.layout is Layout.CHANNELS_LAST


def refuse(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the problem, but for those of groups."""
    op = problem.op
    assert isinstance(op, Conv)
    if len(problem.outputs[0].shape) in (3, 4) and op.groups != 1:
        return Reason("has no groups, here are {}", op.groups)
    return refuse_apart_from_groups(problem)


def refuse_apart_from_groups(problem: KernelProblem) -> str | None:
    """The same, whatever groups the convolution has."""
    op = problem.op
    assert isinstance(op, Conv)
    own = op_operands(problem)
    x, weights, y = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    if len(y.shape) not in (3, 4):
        return Reason("convolves over one or two spatial axes, not {}", len(y.shape) - 2)
    if not all(problem.inputs[index].constant for index in own[1:]):
        return "weights and bias must be constants, to be packed when the engine loads"
    # The row of a window that is gathered as one run has no positions.
    positions = weights.shape[2 : -1 if thin(problem) else None]
    if positions and max(positions) > _MOST_TAPS:
        return Reason("windows have at most {} taps along an axis, not {}", _MOST_TAPS, max(positions))
    dtype = y.format.dtype
    if weights.format.dtype is not dtype or dtype not in HALVES:
        return f"takes tensors in f16 or bf16, not in {dtype.value}"
    if y.format.layout is not Layout.CHANNELS_LAST:
        return "writes channels-last tensors alone"
    as_it_is = _plain_input(x) and x.format.dtype is dtype
    if not as_it_is and not (gathers(problem) and x.format.dtype in (dtype, DType.F32)):
        return f"reads {x.format} only where it copies channels anyway: few, or no multiple of {ALIGNMENT}"
    return refuse_epilogue(problem) or too_large(product_of(problem), problem)


def _two(values: tuple[int, ...], fill: int) -> tuple[int, int]:
    """Height and width of one or two spatial attributes."""
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def narrow(problem: KernelProblem) -> int | None:
    """Elements of the loads with which the input needs no padding, None where it needs none anyway or always does."""
    x = problem.inputs[op_operands(problem)[0]]
    return narrow_loads(x.shape[1]) if _plain_input(x) and not thin(problem) else None


def product_of(problem: KernelProblem, loads: int = ALIGNMENT, *, whole_rows: bool = False) -> Product:
    """How the convolution is computed: as a GEMM, as an implicit GEMM over windows, or, of few channels, as one over
    overlapping rows of windows. Channels are padded to a multiple of `loads`. With `whole_rows` a row of the product
    is one pixel, never two."""
    op = problem.op
    assert isinstance(op, Conv)
    own = op_operands(problem)
    x, weights = problem.inputs[own[0]], problem.inputs[own[1]]
    if thin(problem):
        if not whole_rows and beside.beside(problem):
            return _over_pairs(problem, op, x, weights)
        return _over_rows(problem, op, x, weights)
    kernel, stride = _two(weights.shape[2:], 1), _two(op.strides, 1)
    height, width = _two(x.shape[2:], 1)
    out = _two(problem.outputs[0].shape[2:], 1)
    channels = aligned(x.shape[1], loads)
    widen = None if channels == x.shape[1] else _widen(x, weights, width, channels, 0)
    pads = (*op.pads_begin, *op.pads_end)
    m, n = x.shape[0] * out[0] * out[1], weights.shape[0]
    if kernel == (1, 1) and stride == (1, 1) and not any(pads):
        return _plain(problem, n, channels, widen)
    if kernel == (height, width) and out == (1, 1) and not any(pads) and widen is None:
        return _whole_image(problem, n, kernel, channels)
    begin, dilation = _two(op.pads_begin, 0), _two(op.dilations, 1)
    shape = _fields(
        batch=x.shape[0], height=height, width=width, channels=channels,
        out_channels=n, kernel_h=kernel[0], kernel_w=kernel[1], out_h=out[0], out_w=out[1],
        pad_h=begin[0], pad_w=begin[1], stride_h=stride[0], stride_w=stride[1],
        dilation_h=dilation[0], dilation_w=dilation[1],
        x_image=height * width * channels, x_row=width * channels, x_column=channels,
    )  # fmt: skip
    taps, reads = kernel[0] * kernel[1], residual(problem) is not None
    packed = _filter(n, x.shape[1], kernel[0], kernel[1], kernel[1], channels)
    reach = max(*pads, *((k - 1) * by for k, by in zip(kernel, dilation, strict=True)))
    return Product("Conv", m, n, channels, taps, shape, packed, widen, reach, reads, dtype=weights.format.dtype)


def _plain(problem: KernelProblem, n: int, depth: int, widen: Widen | None) -> Product:
    x, y = problem.inputs[op_operands(problem)[0]], problem.outputs[0]
    m, k = prod(y.shape) // n, x.shape[1]
    shape = (("m", m), ("n", n), ("k", depth))
    reads = residual(problem) is not None
    dtype = y.format.dtype
    return Product("Gemm", m, n, depth, 1, shape, _filter(n, k, 1, 1, 1, depth), widen, residual=reads, dtype=dtype)


def _whole_image(problem: KernelProblem, n: int, kernel: tuple[int, int], channels: int) -> Product:
    """One window an image, which is a row of the A operand as it lies."""
    m, depth = problem.outputs[0].shape[0], kernel[0] * kernel[1] * channels
    shape = (("m", m), ("n", n), ("k", depth))
    packed = _filter(n, channels, kernel[0], kernel[1], kernel[1], channels)
    reads, dtype = residual(problem) is not None, problem.outputs[0].format.dtype
    return Product("Gemm", m, n, depth, 1, shape, packed, None, residual=reads, dtype=dtype)


def _fields(**values: int) -> tuple[tuple[str, int], ...]:
    """Fields of `ConvArguments`."""
    return tuple(values.items())


def _filter(outputs: int, channels: int, rows: int, taps: int, to_taps: int, to_channels: int) -> str:
    return struct(
        f"{_SPACE}::Filter",
        outputs=outputs, channels=channels, rows=rows, taps=taps, to_taps=to_taps, to_channels=to_channels,
    )  # fmt: skip


def _over_rows(problem: KernelProblem, op: Conv, x: Operand, weights: Operand) -> Product:
    """The window's width becomes part of the channels: output column q reads one run that begins at pixel q * stride.

    A pixel is padded to 4 channels where 16-byte loads stay possible at every column's begin, else to 8.
    """
    if folds(op, x):
        return _over_cells(problem, op, x, weights)
    kernel, stride, begin = _two(weights.shape[2:], 1), _two(op.strides, 1), _two(op.pads_begin, 0)
    height, out = _two(x.shape[2:], 1)[0], _two(problem.outputs[0].shape[2:], 1)
    half = ALIGNMENT // 2
    channels = half if x.shape[1] <= half and stride[1] * half % ALIGNMENT == 0 else ALIGNMENT
    taps = aligned(kernel[1] * channels) // channels
    columns = (out[1] - 1) * stride[1] + taps
    widen = _widen(x, weights, columns, channels, begin[1])
    shape = _fields(
        batch=x.shape[0], height=height, width=out[1], channels=taps * channels,
        out_channels=weights.shape[0], kernel_h=kernel[0], kernel_w=1, out_h=out[0], out_w=out[1],
        pad_h=begin[0], pad_w=0, stride_h=stride[0], stride_w=1,
        dilation_h=_two(op.dilations, 1)[0], dilation_w=1,
        x_image=height * columns * channels, x_row=columns * channels, x_column=stride[1] * channels,
    )  # fmt: skip
    m, n = x.shape[0] * out[0] * out[1], weights.shape[0]
    reads = residual(problem) is not None
    packed = _filter(n, x.shape[1], kernel[0], kernel[1], taps, channels)
    reach = max(begin[0], _two(op.pads_end, 0)[0], (kernel[0] - 1) * _two(op.dilations, 1)[0])
    dtype = weights.format.dtype
    return Product("Conv", m, n, taps * channels, kernel[0], shape, packed, widen, reach, reads, dtype=dtype)


def _over_pairs(problem: KernelProblem, op: Conv, x: Operand, weights: Operand) -> Product:
    """Two columns of the output at a time, whose windows begin at every second pixel."""
    kernel, begin = weights.shape[2:], op.pads_begin
    out = problem.outputs[0].shape[2:]
    taps, pixel = beside.taps(kernel[1]), beside.PIXEL
    columns = out[1] - 2 + taps
    widen = _widen(x, weights, columns, pixel, begin[1])
    shape = _fields(
        batch=x.shape[0], height=x.shape[2], width=out[1] // 2, channels=taps * pixel,
        out_channels=2 * weights.shape[0], kernel_h=kernel[0], kernel_w=1, out_h=out[0], out_w=out[1] // 2,
        pad_h=begin[0], pad_w=0, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1,
        x_image=x.shape[2] * columns * pixel, x_row=columns * pixel, x_column=2 * pixel,
    )  # fmt: skip
    m, n = x.shape[0] * out[0] * out[1] // 2, 2 * weights.shape[0]
    packed = beside.weights(weights.shape[0], x.shape[1], kernel[0], kernel[1])
    reach = max(begin[0], op.pads_end[0], kernel[0] - 1)
    dtype = weights.format.dtype
    return Product("Conv", m, n, taps * pixel, kernel[0], shape, packed, widen, reach, dtype=dtype)


def _over_cells(problem: KernelProblem, op: Conv, x: Operand, weights: Operand) -> Product:
    """The same with cells of two by two pixels, in which the window has a stride of one and no padding."""
    out = _two(problem.outputs[0].shape[2:], 1)
    folded = folding(op, x, weights, out)
    fold = folded.fold
    shape = _fields(
        batch=x.shape[0], height=fold.rows, width=out[1], channels=folded.depth,
        out_channels=weights.shape[0], kernel_h=folded.rows, kernel_w=1, out_h=out[0], out_w=out[1],
        pad_h=0, pad_w=0, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1,
        x_image=fold.rows * fold.columns * CELL, x_row=fold.columns * CELL, x_column=CELL,
    )  # fmt: skip
    m, n = x.shape[0] * out[0] * out[1], weights.shape[0]
    reads = residual(problem) is not None
    reach, dtype = folded.rows - 1, weights.format.dtype
    return Product("Conv", m, n, folded.depth, folded.rows, shape, folded.weights, fold, reach, reads, dtype=dtype)


def _widen(x: Operand, weights: Operand, to_width: int, to_channels: int, left: int) -> Widen:
    step = strides(x)
    height, width = _two(x.shape[2:], 1)
    row = step[2] if len(x.shape) == 4 else 0
    along = (step[0], row, step[-1], step[1])
    element, to = COMPUTED[x.format.dtype], weights.format.dtype
    return Widen(x.shape[0], height, width, x.shape[1], along, to_width, to_channels, left, element, to)
