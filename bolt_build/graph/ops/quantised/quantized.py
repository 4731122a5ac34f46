"""ONNX's operators on quantised tensors, as what the files `quantize` and `integer_product` beside it have."""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held, held_dtype, narrowed, numpy_dtype
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, Stored, TensorType
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.moving import NARROW, unsupported_type
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.conv import convolution
from bolt_build.graph.ops.products.matmul import matrices
from bolt_build.graph.ops.quantised.integer_product import IntegerConv, IntegerMatMul
from bolt_build.graph.ops.quantised.quantize import (
    Dequantize,
    Quantize,
    RangeQuantize,
    RangeScale,
    RangeZero,
    Requantize,
)

_ELEMENTS = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32, 10: DType.F16, 16: DType.BF16,
}  # fmt: skip
"""Element types by TensorProto's numbers, as attributes name them."""


def element_type(node: NodeImport, name: str) -> DType | None:
    """The element type that an attribute names; None where it is not given, or 0. Raises Refusal."""
    number = node.integer(name, 0)
    if number and number not in _ELEMENTS:
        raise unsupported_type(number)
    return _ELEMENTS.get(number)


def zero_point(node: NodeImport, index: int, dtype: DType) -> str:
    """Input `index`, or a scalar zero of `dtype` where it is left out."""
    return node.input(index) if node.has(index) else node.helper(np.zeros((), numpy_dtype(dtype)), "zero")


def reshaped(node: NodeImport, name: str, shape: tuple[int, ...]) -> str:
    """The value in another shape, itself where it has it."""
    return name if node.type_of(name).shape == shape else node.emit(Reshape(shape), [name])


def along(node: NodeImport, name: str, rank: int, axis: int, extent: int, what: str) -> str:
    """One number, or one for each position of an axis, as what broadcasts to a tensor of `rank`. Raises ShapeError."""
    found = node.type_of(name)
    if found.elements == 1:
        return reshaped(node, name, ())
    if found.elements != extent:
        raise ShapeError(f"{what} {list(found.shape)} must be one, or one for each of {extent}")
    return reshaped(node, name, (extent, *(1,) * (rank - axis - 1)))


class _Placed:
    """Input 0 of a quantisation with its scale and its zero point: of the whole tensor, of each position of an axis, or
    of blocks of an axis. `x`, `scale` and `zero` broadcast; the result has `shape`."""

    def __init__(self, node: NodeImport, block: int, zero: DType) -> None:
        x, scale = node.type(0), node.type(1)
        self._node, self.shape = node, x.shape
        self.x, self.scale, self.zero = node.input(0), node.input(1), zero_point(node, 2, zero)
        given = node.integer("axis", 1)
        whole = scale.elements == 1 and not block
        axis = 0 if whole else node.axis(given, x.rank)
        if not block:
            extent = x.shape[axis] if x.rank else 1
            self.scale = along(node, self.scale, x.rank, axis, extent, "scales")
            self.zero = along(node, self.zero, x.rank, axis, extent, "zero points")
            return
        wanted = (*x.shape[:axis], -(-x.shape[axis] // block), *x.shape[axis + 1 :])
        for what, name in (("scales", self.scale), ("zero points", self.zero)):
            found = node.type_of(name).shape
            if found != wanted and not (what == "zero points" and not found):
                raise ShapeError(f"{what} {list(found)} of blocks of {block} must be {list(wanted)}")
        if x.shape[axis] % block:
            self.scale, self.zero = (self._repeated(name, block, axis) for name in (self.scale, self.zero))
            return
        split = (*x.shape[:axis], x.shape[axis] // block, block, *x.shape[axis + 1 :])
        apart = (*x.shape[:axis], x.shape[axis] // block, 1, *x.shape[axis + 1 :])
        self.x = reshaped(node, self.x, split)
        self.scale = reshaped(node, self.scale, apart)
        self.zero = reshaped(node, self.zero, apart) if node.type_of(self.zero).rank else self.zero

    def _repeated(self, name: str, block: int, axis: int) -> str:
        """One for each element, where the last block is not a whole one."""
        array = self._node.array(name)
        if array is None:
            reason = f"blocks of {block} that are computed do not divide {self.shape[axis]}"
            raise Refusal("unsupported-attribute", reason)
        if not array.ndim:
            return name
        return self._node.helper(np.repeat(array, block, axis).take(range(self.shape[axis]), axis), "blocks")

    def emit(self, op: Op) -> None:
        """The operator on all three, in the shape of input 0, as output 0."""
        if self._node.type_of(self.x).shape == self.shape:
            self._node.emit(op, [self.x, self.scale, self.zero], 0)
            return
        self._node.emit(Reshape(self.shape), [self._node.emit(op, [self.x, self.scale, self.zero])], 0)


def _block(node: NodeImport) -> int:
    block = node.integer("block_size", 0)
    if block < 0:
        raise ShapeError(f"block_size {block} is negative")
    return block


def import_quantize(node: NodeImport) -> None:
    asked = element_type(node, "output_dtype")
    if asked is not None and asked.is_float:
        raise Refusal("unsupported-dtype", f"quantises to integers, not to {asked.value}", NARROW)
    to = node.type(2).dtype if node.has(2) else asked or DType.U8
    _Placed(node, _block(node), to).emit(Quantize(to))


def import_dequantize(node: NodeImport) -> None:
    """Of constants it is a constant, computed at once, whatever they are stored in."""
    x = node.type(0)
    to = element_type(node, "output_dtype") or node.type(1).dtype
    block = _block(node)
    arrays = [node.constant(index) for index in range(3) if node.has(index)]
    if all(array is not None for array in arrays) and x.rank:
        q, scale, *zero = (array for array in arrays if array is not None)
        scales = _spread(node, scale, block)
        zeros = _spread(node, zero[0], block) if zero else np.zeros((), q.dtype)
        stored = Stored(q, scales, zeros) if q.dtype in (np.int8, np.uint8) and scales.dtype == np.float32 else None
        node.fold(TensorType(to, x.shape), lambda: dequantized(q, scales, zeros, to), stored)
    elif x.dtype.is_float:
        raise Refusal(
            "unsupported-dtype", "what is stored in 8 bits or less of floating point must be constant", NARROW
        )
    else:
        _Placed(node, block, x.dtype).emit(Dequantize(to))


def dequantized(q: Array, scale: Array, zero: Array, to: DType) -> Array:
    """(q - zero) * scale, of integers or of what was stored in narrow floating point, as constants of `to` are held."""
    wide = q.astype(np.float32) - zero.astype(np.float32) if q.dtype.kind == "f" else q.astype(np.int64) - zero
    return narrowed(wide.astype(np.float32) * held(scale).astype(np.float32), held_dtype(to))


def _spread(node: NodeImport, array: Array, block: int) -> Array:
    """Scales or zero points as what broadcasts to input 0. Raises ShapeError."""
    shape, given = node.type(0).shape, node.integer("axis", 1)
    if array.size == 1 and not block:
        return array.reshape(())
    axis = node.axis(given, len(shape))
    if not block:
        if array.shape != (shape[axis],):
            raise ShapeError(f"scales {list(array.shape)} must be one, or [{shape[axis]}], one a position of the axis")
        return array.reshape(-1, *(1,) * (len(shape) - axis - 1))
    wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    if array.shape != wanted:
        raise ShapeError(f"scales {list(array.shape)} of blocks of {block} must be {list(wanted)}")
    return np.repeat(array, block, axis).take(range(shape[axis]), axis)


def range_of(node: NodeImport, x: str) -> list[str]:
    """The least and the largest number of all of `x`."""
    axes = tuple(range(node.type_of(x).rank))
    return [node.emit(Reduce(mode, axes, keepdims=False), [x]) for mode in ("min", "max")]


def import_dynamic_quantize(node: NodeImport) -> None:
    x = node.input(0)
    if not node.type(0).rank:
        raise ShapeError("a scalar has no range")
    limits = range_of(node, x)
    outputs = node.node.outputs
    if len(outputs) > 1 and outputs[1]:
        node.emit(RangeScale(), limits, 1)
    if len(outputs) > 2 and outputs[2]:
        node.emit(RangeZero(), limits, 2)
    node.emit(RangeQuantize(), [x, *limits], 0)


def zeros_of(node: NodeImport, name: str, count: int, what: str) -> str:
    """Zero points of rows or columns as an integer product takes them: [] or [count]. Raises Refusal."""
    found = node.type_of(name)
    if found.elements == 1:
        return reshaped(node, name, ())
    if found.elements != count or prod(found.shape[-2:]) != count:
        reason = f"zero points {list(found.shape)} that differ between matrices are not supported"
        raise Refusal("unsupported-attribute", f"{reason} (one, or one a {what})")
    return reshaped(node, name, (count,))


def sums_of(node: NodeImport, a: str, b: str, a_zero: str, b_zero: str, output: int | None = None) -> str:
    """The int32 sums of NumPy's matmul of `a` and `b` less their zero points; output `output` of the node."""

    def multiplied(left: str, right: str, made: int | None) -> str:
        rows, columns = node.type_of(left).shape[-2], node.type_of(right).shape[-1]
        zeros = zeros_of(node, a_zero, rows, "row"), zeros_of(node, b_zero, columns, "column")
        return node.emit(IntegerMatMul(), [left, right, *zeros], made)

    return matrices(node, a, b, multiplied, output)


def import_matmul_integer(node: NodeImport) -> None:
    zeros = [zero_point(node, index + 2, node.type(index).dtype) for index in range(2)]
    sums_of(node, node.input(0), node.input(1), zeros[0], zeros[1], 0)


def convolved(node: NodeImport, inputs: tuple[str, str, str, str], bias: str | None, output: int | None = None) -> str:
    """The int32 sums of the node's convolution of x and w, with the zero points of both."""
    x, w, x_zero, w_zero = inputs
    conv = convolution(node, x, w)
    op = IntegerConv(conv.strides, conv.pads_begin, conv.pads_end, conv.dilations, conv.groups)
    zeros = zeros_of(node, x_zero, 1, "tensor"), zeros_of(node, w_zero, node.type_of(w).shape[0], "filter")
    return node.emit(op, [x, w, *zeros, *([bias] if bias else [])], output)


def import_conv_integer(node: NodeImport) -> None:
    zeros = [zero_point(node, index + 2, node.type(index).dtype) for index in range(2)]
    convolved(node, (node.input(0), node.input(1), zeros[0], zeros[1]), None, 0)


def import_qlinear_conv(node: NodeImport) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.input(index) for index in range(8))
    bias = node.input(8) if node.has(8) else None
    sums = convolved(node, (x, w, x_zero, w_zero), bias)
    rank, filters = node.type_of(sums).rank, node.type_of(w).shape[0]
    scales = [
        along(node, x_scale, rank, 1, 1, "scales of the input"),
        along(node, w_scale, rank, 1, filters, "scales of filters"),
        along(node, y_scale, rank, 1, 1, "scales of the result"),
    ]
    zero = along(node, y_zero, rank, 1, 1, "zero points of the result")
    node.emit(Requantize(node.type_of(y_zero).dtype), [sums, *scales, zero], 0)


def import_qlinear_matmul(node: NodeImport) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.input(index) for index in range(8))
    sums = sums_of(node, a, b, a_zero, b_zero)
    shape = node.type_of(sums).shape
    if min(node.type_of(a).rank, node.type_of(b).rank) < 2:
        rows = columns = 1
    else:
        rows, columns = shape[-2:]
    rank = len(shape)
    scales = [
        along(node, a_scale, rank, rank - 2, rows, "scales of rows"),
        along(node, b_scale, rank, rank - 1, columns, "scales of columns"),
        along(node, y_scale, rank, rank - 2, rows, "scales of rows"),
    ]
    zero = along(node, y_zero, rank, rank - 2, rows, "zero points of rows")
    node.emit(Requantize(node.type_of(y_zero).dtype), [sums, *scales, zero], 0)


_BYTES, _COLUMNS = Data((2, 8), DType.U8), Data((8, 4), DType.I8)
_PIXELS, _FILTERS = Data(IMAGE, DType.U8), Data((8, 4, 3, 3), DType.I8)
_SCALE, _ZERO, _SIGNED_ZERO = Data((), DType.F32), Data((), DType.U8), Data((), DType.I8)
_ROUNDED = (10, 13, 19, 21, 23, 24, 25, 28)

IMPORTERS = (
    Importer(
        "QuantizeLinear", _ROUNDED, import_quantize, ignores=("saturate", "precision"),
        example=Example((Data(IMAGE), Weights(()))), note="to integers of 8 and 16 bits",
    ),
    Importer(
        "DequantizeLinear", _ROUNDED, import_dequantize, example=Example((_PIXELS, _SCALE)),
        note="of fewer than 8 bits constants alone",
    ),
    Importer("DynamicQuantizeLinear", (11,), import_dynamic_quantize, example=Example((Data(IMAGE),))),
    Importer("MatMulInteger", (10,), import_matmul_integer, example=Example((_BYTES, _COLUMNS))),
    Importer("ConvInteger", (10,), import_conv_integer, example=Example((_PIXELS, _FILTERS))),
    Importer(
        "QLinearConv", (10,), import_qlinear_conv,
        example=Example((_PIXELS, _SCALE, _ZERO, _FILTERS, _SCALE, _SIGNED_ZERO, _SCALE, _ZERO)),
    ),
    Importer(
        "QLinearMatMul", (10, 21), import_qlinear_matmul,
        example=Example((_BYTES, _SCALE, _ZERO, _COLUMNS, _SCALE, _SIGNED_ZERO, _SCALE, _ZERO)),
    ),
)  # fmt: skip
