"""Quantised operators of the domain com.microsoft, which onnxruntime's quantiser writes.

Defined in onnxruntime's docs/ContribOperators.md: each is numbers with a scale and a zero point, the operator on real
numbers, and its result with another scale and zero point. That is what they become here, but for products of integers,
which are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import IMAGE, Bytes, Data, Example, Integers, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Transpose
from bolt_build.graph.ops.products.conv import import_window
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.quantize import (
    Dequantize,
    Quantize,
    RangeQuantize,
    RangeScale,
    RangeZero,
    Requantize,
    ScaleSums,
)
from bolt_build.graph.ops.quantised.quantized import (
    along,
    import_dequantize,
    import_quantize,
    range_of,
    sums_of,
    zero_point,
)

_DOMAIN = "com.microsoft"


def _real(node: NodeImport, q: int, scale: int, zero: int) -> str:
    """Input `q` as real numbers, of one scale and one zero point for all. Raises Refusal."""
    x = node.input(q)
    if node.type(scale).elements != 1:
        raise Refusal("unsupported-attribute", "scales of single channels are not supported")
    zeros = zero_point(node, zero, node.type(q).dtype)
    inputs = [x, *(along(node, name, node.type(q).rank, 0, 1, "scales") for name in (node.input(scale), zeros))]
    return node.emit(Dequantize(node.type(scale).dtype), inputs)


def _whole(node: NodeImport, real: str, scale: int, zero: int, dtype: DType) -> None:
    """`real` as output 0, of `dtype` where no zero point says another."""
    zeros = zero_point(node, zero, dtype)
    rank = node.type_of(real).rank
    inputs = [real, *(along(node, name, rank, 0, 1, "scales") for name in (node.input(scale), zeros))]
    node.emit(Quantize(node.type_of(zeros).dtype), inputs, 0)


def _two(function: str) -> Callable[[NodeImport], None]:
    def run(node: NodeImport) -> None:
        sides = [_real(node, 0, 1, 2), _real(node, 3, 4, 5)]
        _whole(node, node.emit(Binary(function), sides), 6, 7, node.type(0).dtype)

    return run


def _one(function: Callable[[NodeImport], Op]) -> Callable[[NodeImport], None]:
    def run(node: NodeImport) -> None:
        real = _real(node, 0, 1, 2)
        _whole(node, node.emit(function(node), [real]), 3, 4, node.type(0).dtype)

    return run


def _leaky(node: NodeImport) -> Op:
    return Activation("leaky_relu", node.real("alpha", 0.01))


def _between(node: NodeImport, last: bool, op: Callable[[str], str]) -> None:
    """A pooling of images whose channels may come last."""
    real, rank = _real(node, 0, 1, 2), node.type(0).rank
    if last:
        real = node.emit(Transpose((0, rank - 1, *range(1, rank - 1))), [real])
    made = op(real)
    if last:
        made = node.emit(Transpose((0, *range(2, rank), 1)), [made])
    _whole(node, made, 3, 4, node.type(0).dtype)


def import_global_average(node: NodeImport) -> None:
    axes = tuple(range(2, node.type(0).rank))
    _between(node, bool(node.integer("channels_last", 0)), lambda x: node.emit(Reduce("mean", axes), [x]))


def import_average_pool(node: NodeImport) -> None:
    if node.integer("channels_last", 0):
        raise Refusal("unsupported-attribute", "channels_last=1 is not supported")
    window = import_window(node)
    ceil, include = bool(node.integer("ceil_mode", 0)), bool(node.integer("count_include_pad", 0))
    _between(node, False, lambda x: node.emit(Pool("average", *window, ceil, include), [x]))


def import_softmax(node: NodeImport) -> None:
    """Along one axis as from opset 13 on, or over all from `axis` on together: `opset` says which Softmax it was."""
    real, shape = _real(node, 0, 1, 2), node.type(0).shape
    axis = node.axis(node.integer("axis", -1), len(shape))
    if node.integer("opset") >= 13:
        made = node.emit(Softmax(axis), [real])
    else:
        flat = node.emit(Reshape((prod(shape[:axis]), prod(shape[axis:]))), [real])
        made = node.emit(Reshape(shape), [node.emit(Softmax(1), [flat])])
    _whole(node, made, 3, 4, node.type(0).dtype)


def import_where(node: NodeImport) -> None:
    sides = [_real(node, 1, 2, 3), _real(node, 4, 5, 6)]
    _whole(node, node.emit(Where(), [node.input(0), *sides]), 7, 8, node.type(1).dtype)


def import_concat(node: NodeImport) -> None:
    """Scale and zero point of the result, then each part with its own."""
    if node.count() < 5 or (node.count() - 2) % 3:
        raise ShapeError(f"{node.count()} inputs are no whole parts with scale and zero point")
    parts = [_real(node, index, index + 1, index + 2) for index in range(2, node.count(), 3)]
    axis = node.axis(node.integer("axis"), node.type(2).rank)
    _whole(node, node.emit(Concat(axis), parts), 0, 1, node.type(2).dtype)


def _scaled(node: NodeImport, sums: str, scales: tuple[str, str], bias: int) -> None:
    """int32 sums as real numbers, with the bias that input `bias` may be, as output 0; the right scale is one, or one a
    column."""
    shape = node.type_of(sums).shape
    rank, columns = len(shape), shape[-1]
    a = along(node, scales[0], rank, rank - 1, 1, "scales of rows")
    b = along(node, scales[1], rank, rank - 1, columns, "scales of columns")
    offset = [along(node, node.input(bias), rank, rank - 1, columns, "biases")] if node.has(bias) else []
    node.emit(ScaleSums(node.type_of(scales[0]).dtype), [sums, a, b, *offset], 0)


def import_matmul_to_float(node: NodeImport) -> None:
    a, b, a_scale, b_scale = (node.input(index) for index in range(4))
    zeros = [zero_point(node, index + 4, node.type(index).dtype) for index in range(2)]
    _scaled(node, sums_of(node, a, b, zeros[0], zeros[1]), (a_scale, b_scale), 6)


def import_dynamic_matmul(node: NodeImport) -> None:
    """The A operand is quantised by its own range."""
    a, b = node.input(0), node.input(1)
    limits = range_of(node, a)
    q = node.emit(RangeQuantize(), [a, *limits])
    scale, zero = (node.emit(op, limits) for op in (RangeScale(), RangeZero()))
    _scaled(node, sums_of(node, q, b, zero, zero_point(node, 3, node.type(1).dtype)), (scale, node.input(2)), 4)


def import_gemm(node: NodeImport) -> None:
    """alpha * A' B' + C with a C of int32; without a scale of the result it is real."""
    if node.real("alpha", 1.0) != 1.0:
        raise Refusal("unsupported-attribute", "alpha other than 1 is not supported")
    factors = [node.input(0), node.input(3)]
    for index, name in enumerate(("transA", "transB")):
        if node.integer(name, 0):
            factors[index] = node.emit(Transpose((1, 0)), [factors[index]])
    sums = sums_of(node, factors[0], factors[1], node.input(2), node.input(5))
    if node.has(6):
        sums = node.emit(Binary("add"), [sums, node.input(6)])
    if not node.has(7):
        _scaled(node, sums, (node.input(1), node.input(4)), 9)
        return
    columns = node.type_of(sums).shape[1]
    zeros = zero_point(node, 8, node.type(0).dtype)
    rest = [along(node, node.input(i), 2, 1, extent, "scales") for i, extent in ((1, 1), (4, columns), (7, 1))]
    node.emit(Requantize(node.type_of(zeros).dtype), [sums, *rest, along(node, zeros, 2, 1, 1, "zero points")], 0)


def unpacked(packed: Array, bits: int) -> Array:
    """uint8 [..., n] as [..., n * 8 / bits]: the lowest bits of a byte come first."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> places) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*packed.shape[:-1], -1))


def import_matmul_nbits(node: NodeImport) -> None:
    """Weights [N, blocks, bytes] of `bits` each become [N, K] of plain numbers."""
    depth, columns, bits, block = (node.integer(name) for name in ("K", "N", "bits", "block_size"))
    node.integer("accuracy_level", 0)
    if bits not in (2, 4, 8) or block < 1:
        raise Refusal("unsupported-attribute", f"{bits} bits in blocks of {block} are not supported")
    blocks = -(-depth // block)
    packed = node.static(1, "the weights").view(np.uint8)
    if packed.size != columns * blocks * (block * bits // 8):
        raise ShapeError(f"weights {list(packed.shape)} are not those of {columns} columns of {blocks} blocks")
    q = unpacked(packed.reshape(columns, blocks, -1), bits)
    scale = node.static(2, "the scales").astype(np.float32).reshape(columns, blocks, 1)
    zero = np.full((columns, blocks), 1 << (bits - 1), np.float32)
    if node.has(3):
        given = node.static(3, "the zero points")
        if given.dtype == np.uint8:
            given = unpacked(given.reshape(columns, -1), bits)[:, :blocks]
        zero = given.astype(np.float32).reshape(columns, blocks)
    if node.has(4):  # rows of blocks of their own, as GPTQ orders them
        block_of = node.static(4, "the block of each row (g_idx)").reshape(-1)[:depth]
        if block_of.size < depth or not 0 <= block_of.min() <= block_of.max() < blocks:
            raise ShapeError(f"g_idx must have one of {blocks} blocks for each of {depth} rows")
        rows = q.reshape(columns, -1)[:, :depth].astype(np.float32)
        weights = (rows - zero[:, block_of]) * scale[:, block_of, 0]
    else:
        weights = ((q.astype(np.float32) - zero[..., None]) * scale).reshape(columns, -1)[:, :depth]
    if node.type(0).rank == 1:
        raise Refusal("unsupported-attribute", "a factor of one axis is not supported")
    plain = node.helper(weights.astype(numpy_dtype(node.type(0).dtype)), "weights")
    bias = [node.input(5)] if node.has(5) else []
    node.emit(MatMul(transpose_b=True), [node.input(0), plain, *bias], 0)


_HALF_FP4 = (0.0, 0.0052083333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_NUMBERS_OF_4_BITS = (
    np.asarray((*_HALF_FP4, *(-each for each in _HALF_FP4)), np.float32),
    np.asarray((
        -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
        0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
    ), np.float32),
)  # fmt: skip
"""What 4 bits stand for in bitsandbytes' types FP4 and NF4: a part of the largest number of their block."""


def import_matmul_bnb4(node: NodeImport) -> None:
    """Weights [N, K] of 4 bits, the first of two in the upper half of a byte; blocks go on from row to row."""
    depth, columns, block, kind = (node.integer(name) for name in ("K", "N", "block_size", "quant_type"))
    if kind not in (0, 1) or block < 1 or node.integer("training_mode", 0) or not node.integer("transB", 1):
        raise Refusal(
            "unsupported-attribute", f"quant_type {kind} in blocks of {block}, or in training, is not supported"
        )
    packed, largest = node.static(1, "the weights").reshape(-1), node.static(2, "the scales").reshape(-1)
    count = depth * columns
    if packed.dtype != np.uint8 or packed.size != -(-count // 2) or largest.size != -(-count // block):
        raise ShapeError(
            f"{packed.size} bytes in {largest.size} blocks are not the weights of {columns} columns of {depth}"
        )
    halves = np.stack((packed >> 4, packed & 15), 1).reshape(-1)[:count]
    weights = _NUMBERS_OF_4_BITS[kind][halves] * np.repeat(largest.astype(np.float32), block)[:count]
    plain = weights.reshape(columns, depth).astype(numpy_dtype(node.type(0).dtype))
    node.emit(MatMul(transpose_b=True), [node.input(0), node.helper(plain, "weights")], 0)


def import_gather_blocks(node: NodeImport) -> None:
    """Rows of a table of blocks of few bits, each with a scale: the table becomes plain numbers."""
    axis = node.axis(node.integer("gather_axis", 0), node.type(0).rank)
    along_, bits, block = (node.integer(*each) for each in (("quantize_axis", 1), ("bits", 4), ("block_size", 128)))
    along_ = node.axis(along_, node.type(0).rank)
    if bits not in (2, 4, 8) or block < 1:
        raise Refusal("unsupported-attribute", f"{bits} bits in blocks of {block} are not supported")
    packed, scale = node.static(0, "the table"), node.static(2, "the scales")
    if not node.is_narrow(0) and packed.dtype != np.uint8:
        raise Refusal("unsupported-dtype", f"a table of {packed.dtype} is not supported")
    q = packed if node.is_narrow(0) else unpacked(packed, bits)
    zero = node.static(3, "the zero points") if node.has(3) else None
    if zero is not None and not node.is_narrow(3):
        zero = unpacked(zero, bits)
    blocks = -(-q.shape[along_] // block)
    wanted = (*q.shape[:along_], blocks, *q.shape[along_ + 1 :])
    if scale.shape != wanted:
        raise ShapeError(f"scales {list(scale.shape)} of a table {list(q.shape)} must be {list(wanted)}")
    if zero is not None:
        zero = zero[tuple(slice(extent) for extent in wanted)]
    block_of = np.arange(q.shape[along_]) // block
    middle = np.float32(0 if node.is_narrow(0) else 1 << (bits - 1))
    offset = middle if zero is None else np.take(zero.astype(np.float32), block_of, along_)
    table = (q.astype(np.float32) - offset) * np.take(scale.astype(np.float32), block_of, along_)
    plain = node.helper(table.astype(numpy_dtype(node.type(2).dtype)), "table")
    node.emit(Gather(axis), [plain, node.input(1)], 0)


_PIXELS, _BYTES, _COLUMNS = Data(IMAGE, DType.U8), Data((2, 8), DType.U8), Data((8, 4), DType.I8)
_SCALE, _ZERO, _SIGNED = Data((), DType.F32), Data((), DType.U8), Data((), DType.I8)
_PART = (_PIXELS, _SCALE, _ZERO)


def _of(
    name: str, run: Callable[[NodeImport], None], *inputs: Data | Weights, **attributes: int | tuple[int, ...]
) -> Importer:
    return Importer(name, (1,), run, domain=_DOMAIN, example=Example(inputs, tuple(attributes.items())))


IMPORTERS = (
    _of("QLinearAdd", _two("add"), *_PART, *_PART, _SCALE, _ZERO),
    _of("QLinearMul", _two("mul"), *_PART, *_PART, _SCALE, _ZERO),
    _of("QLinearSigmoid", _one(lambda node: Activation("sigmoid")), *_PART, _SCALE, _ZERO),
    _of("QLinearLeakyRelu", _one(_leaky), *_PART, _SCALE, _ZERO),
    _of("QLinearSoftmax", import_softmax, *_PART, _SCALE, _ZERO, opset=13),
    _of("QLinearWhere", import_where, Data(IMAGE, DType.BOOL), *_PART, *_PART, _SCALE, _ZERO),
    _of("QLinearConcat", import_concat, _SCALE, _ZERO, *_PART, *_PART, axis=1),
    _of("QLinearGlobalAveragePool", import_global_average, *_PART, _SCALE, _ZERO),
    _of("QLinearAveragePool", import_average_pool, *_PART, _SCALE, _ZERO, kernel_shape=(2, 2)),
    _of("QGemm", import_gemm, _BYTES, _SCALE, _ZERO, _COLUMNS, _SCALE, _SIGNED),
    _of("MatMulIntegerToFloat", import_matmul_to_float, _BYTES, _COLUMNS, _SCALE, _SCALE),
    _of("DynamicQuantizeMatMul", import_dynamic_matmul, Data((2, 8), DType.F32), _COLUMNS, _SCALE),
    Importer(
        "MatMulNBits", (1,), import_matmul_nbits, domain=_DOMAIN, note="2, 4 or 8 bits",
        example=Example(
            (Data((2, 16)), Bytes((4, 1, 8)), Weights((4, 1))),
            (("K", 16), ("N", 4), ("bits", 4), ("block_size", 16)),
        ),
    ),
    Importer(
        "MatMulBnb4", (1,), import_matmul_bnb4, domain=_DOMAIN, note="FP4 or NF4",
        example=Example(
            (Data((2, 16)), Bytes((32,)), Weights((4,))), (("K", 16), ("N", 4), ("block_size", 16), ("quant_type", 1)),
        ),
    ),
    Importer(
        "GatherBlockQuantized", (1,), import_gather_blocks, domain=_DOMAIN, note="2, 4 or 8 bits",
        example=Example(
            (Bytes((6, 8)), Integers((1,)), Weights((6, 1))), (("bits", 4), ("block_size", 16), ("quantize_axis", 1)),
        ),
    ),
    _of("QuantizeLinear", import_quantize, Data(IMAGE, DType.F32), _SCALE, _ZERO),
    _of("DequantizeLinear", import_dequantize, *_PART),
)  # fmt: skip
