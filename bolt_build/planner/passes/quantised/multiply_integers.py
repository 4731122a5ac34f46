"""Multiplies the integers of quantised tensors, where a model dequantises both factors of a product or a convolution,
or scales the sums of a product of integers.

For hosts whose kernels add up products of 8 bits faster than of fp32. Weights that have several zero points, or are
filters, must be numbers of 8 bits without them too. A bias of integers becomes real numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node, Stored
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.integer_product import FACTORS, IntegerConv, IntegerMatMul
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct
from bolt_build.graph.ops.quantised.quantize import Dequantize, Requantize, ScaleSums
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target


def multiplies_integers(target: Target, precision: str) -> bool:
    """Whether the target's kernels have products of 8 bits beside those of the precision."""
    return target.where == "cpu" and "onednn" in target.families and precision == "fp32"


class Obstacle(Exception):
    """Why a product stays one of real numbers."""


@dataclass(frozen=True)
class _Factor:
    """Integers, their scale and their zero point, by name."""

    q: str
    scale: str
    zero: str


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_INTEGERS.name)
    for node in editor.nodes():
        try:
            match node.op:
                case Conv() | MatMul():
                    _of_real(editor, journal, node)
                case ScaleSums() | Requantize():
                    _of_sums(editor, journal, node)
                case _:
                    continue
        except Obstacle as obstacle:
            journal.declined(node.name, str(obstacle))
    return journal.result(editor.finish())


def _of_real(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """A product of what is dequantised in front of it."""
    back, stored = editor.producer(node.inputs[0]), _stored(editor, node.inputs[1])
    right = editor.producer(node.inputs[1])
    if back is None or not isinstance(back.op, Dequantize):
        return
    if stored is None and (right is None or not isinstance(right.op, Dequantize) or right.epilogue):
        return
    op = node.op
    assert isinstance(op, Conv | MatMul)
    _expect_kernel(editor, op, node.inputs[0])
    x = _Factor(*back.inputs)
    if node.epilogue or back.epilogue or editor.type(x.q).dtype not in FACTORS:
        raise Obstacle(f"'{x.q}' is of {editor.type(x.q).dtype.value}")
    if editor.type(x.scale).rank or editor.type(x.zero).rank:
        raise Obstacle(f"parts of '{x.q}' have scales of their own")
    if editor.type(node.outputs[0]).dtype is not DType.F32:
        raise Obstacle(f"it makes numbers of {editor.type(node.outputs[0]).dtype.value}")
    if not all(editor.is_constant(name) for name in node.inputs[2:]):
        raise Obstacle(f"the bias '{node.inputs[2]}' is no constant")
    w = _weights(editor, node.inputs[1], op, stored) if stored is not None else _right(editor, node, right)
    bias = node.inputs[2:]
    made = Node(
        node.name, QuantisedProduct(op, biased=bool(bias)), (x.q, w.q, x.scale, x.zero, w.scale, w.zero, *bias),
        node.outputs, covers=node.covers,
    )  # fmt: skip
    editor.replace(node, made)
    editor.prune([back.outputs[0], node.inputs[1]])
    other = "the weights" if stored is not None else f"'{w.q}'"
    journal.did(node.name, "made", f"a product of integers of '{x.q}' and {other}")


def _of_sums(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """A product of integers whose sums are scaled behind it."""
    op = node.op
    assert isinstance(op, ScaleSums | Requantize)
    product, bias, between = _summed(editor, node.inputs[0])
    if product is None:
        return
    assert isinstance(product.op, IntegerConv | IntegerMatMul)
    real = product.op.product
    if (why := editor.not_private(product.outputs[0]) or editor.not_private(node.inputs[0])) is not None:
        raise Obstacle(why)
    q, weights, zero, w_zero = product.inputs[:4]
    _expect_kernel(editor, real, q)
    if editor.type(zero).rank:
        raise Obstacle(f"rows of '{q}' have zero points of their own")
    x_scale, w_scale = _scales(editor, node.inputs[1], node.inputs[2])
    rank = editor.type(node.outputs[0]).rank
    axis = 1 if isinstance(real, Conv) else rank - 1
    columns = editor.type(node.outputs[0]).shape[axis]
    scale_w, zero_w = editor.constant(w_scale), editor.constant(w_zero)
    if scale_w is None or zero_w is None:
        raise Obstacle(f"the scale or the zero point of '{weights}' is no constant")
    if not editor.is_constant(weights):
        _expect_known(editor, real, weights, (x_scale, zero), (scale_w, zero_w))
    _expect_bytes(real, editor.type(weights).dtype, zero_w)
    _expect_columns(scale_w, rank, axis, "scales of the weights differ along what is summed")
    behind = [x_scale, editor.new_constant(f"{node.name}.scale", _each(scale_w, columns), DType.F32)]
    biases: list[str] = []
    if bias is not None:
        if between:  # one that is added behind the product, and may be added to rows
            _expect_columns(editor.constant(bias), rank, axis, f"the bias '{bias}' is not one a column")
        biases = [_scaled_bias(editor, node, bias, (x_scale, behind[1]), columns)]
    if isinstance(op, ScaleSums) and len(node.inputs) > 3:
        given = editor.constant(node.inputs[3])
        if given is None or bias is not None:
            raise Obstacle(f"'{node.inputs[3]}' is no constant bias")
        _expect_columns(given, rank, axis, f"the bias '{node.inputs[3]}' is not one a column")
        biases = [editor.new_constant(f"{node.name}.bias", _all(given, columns), DType.F32)]
    result = node.inputs[3:] if isinstance(op, Requantize) else ()
    if any(editor.type(name).rank for name in result):
        raise Obstacle("parts of the result have scales of their own")
    if not result and op.to is not DType.F32:
        raise Obstacle(f"it makes numbers of {op.to.value}")
    if isinstance(op, Requantize) and op.to not in FACTORS:
        raise Obstacle(f"it makes integers of {op.to.value}")
    made = QuantisedProduct(real, op.to, bool(biases))
    inputs = (q, weights, behind[0], zero, behind[1], w_zero, *biases, *result)
    covers = joined(product.covers, *(each.covers for each in between), node.covers)
    for each in (product, *between):
        editor.remove(each)
    fused = Node(node.name, made, inputs, node.outputs, covers=covers)
    editor.replace(node, fused)
    journal.did(node.name, "made", f"one step of the product '{product.name}' and what scales its sums")
    if not result and not biases:
        _take_bias(editor, journal, fused, columns)


def _take_bias(editor: GraphEditor, journal: Journal, node: Node, columns: int) -> None:
    """A constant that is added to the result, one a column."""
    (output,) = node.outputs
    readers = editor.readers(output)
    if editor.not_private(output) is not None or len(readers) != 1 or readers[0].op != Binary("add"):
        return
    (reader,) = readers
    other = reader.inputs[1 if reader.inputs[0] == output else 0]
    array, axis = editor.constant(other), 1 if isinstance(node.op, QuantisedProduct) and node.op.axis == 1 else -1
    if array is None or reader.epilogue or editor.type(reader.outputs[0]) != editor.type(output):
        return
    rank = editor.type(output).rank
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(extent != 1 for place, extent in enumerate(shape) if place != axis % rank):
        return
    assert isinstance(node.op, QuantisedProduct)
    bias = editor.new_constant(f"{other}.bias", _all(array, columns), DType.F32)
    taken = Node(
        reader.name, replace(node.op, biased=True), (*node.inputs, bias), reader.outputs,
        covers=joined(node.covers, reader.covers),
    )  # fmt: skip
    editor.remove(node)
    editor.replace(reader, taken)
    journal.did(reader.name, "taken", f"as the bias of '{node.name}'")


def _summed(editor: GraphEditor, sums: str) -> tuple[Node | None, str | None, tuple[Node, ...]]:
    """The product of integers that makes sums, their bias, and what adds it."""
    node = editor.producer(sums)
    if node is None or node.epilogue:
        return None, None, ()
    if node.op == Binary("add"):
        for side in (0, 1):
            first, bias = editor.producer(node.inputs[side]), node.inputs[1 - side]
            if first is not None and isinstance(first.op, IntegerMatMul) and editor.is_constant(bias):
                return first, bias, (node,)
        return None, None, ()
    if not isinstance(node.op, IntegerConv | IntegerMatMul):
        return None, None, ()
    return node, node.inputs[4] if len(node.inputs) > 4 else None, ()


def _scales(editor: GraphEditor, a: str, b: str) -> tuple[str, str]:
    """The scale of x and that of the weights, whichever comes first."""
    for x, w in ((a, b), (b, a)):
        if editor.type(x).rank == 0 and editor.is_constant(w):
            return x, w
    if editor.type(a).elements == 1 and editor.is_constant(a) and editor.is_constant(b):
        array = editor.constant(a)
        assert array is not None
        return editor.new_constant(f"{a}.whole", array.reshape(()), DType.F32), b
    raise Obstacle(f"'{a}' and '{b}' are no scale of x and constants of the weights")


def _scaled_bias(editor: GraphEditor, node: Node, bias: str, scales: tuple[str, str], columns: int) -> str:
    array, sides = editor.constant(bias), [editor.constant(name) for name in scales]
    if array is None or sides[0] is None or sides[1] is None:
        raise Obstacle(f"the bias '{bias}' is scaled by what is no constant")
    if array.size not in (1, columns):
        raise Obstacle(f"the bias '{bias}' is not one a column")
    real = array.reshape(-1).astype(np.float64) * (sides[0].astype(np.float64) * sides[1].astype(np.float64))
    return editor.new_constant(f"{node.name}.bias", _all(real.astype(np.float32), columns), DType.F32)


def _expect_columns(array: Array | None, rank: int, axis: int, otherwise: str) -> None:
    """Raises Obstacle for a constant that differs along other axes of the result than that of its columns."""
    shape = () if array is None else (1,) * (rank - array.ndim) + array.shape
    if len(shape) > rank or any(extent != 1 for place, extent in enumerate(shape) if place != axis):
        raise Obstacle(otherwise)


def _each(array: Array, columns: int) -> Array:
    """One number, or one a column."""
    if array.size not in (1, columns):
        raise Obstacle("scales of the weights differ along what is summed")
    return array.reshape(()) if array.size == 1 else array.reshape(columns)


def _all(array: Array, columns: int) -> Array:
    if array.size not in (1, columns):
        raise Obstacle("the bias is not one a column")
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (columns,)))


def _expect_kernel(editor: GraphEditor, op: Conv | MatMul, x: str) -> None:
    """Raises Obstacle for a product that no kernel of integers takes."""
    if isinstance(op, Conv):
        if editor.type(x).rank > 5 or min(*op.pads_begin, *op.pads_end) < 0:
            raise Obstacle("convolutions of integers are over one to three axes, without negative pads")
    elif op.transpose_a:
        raise Obstacle("products of integers have rows on their left")


def _expect_bytes(op: Conv | MatMul, dtype: DType, zero: Array) -> None:
    """Filters, and columns with zero points of their own, are multiplied without these: they must be numbers of 8 bits
    then, as they are where zero points are in the middle of their type. Raises Obstacle."""
    if (isinstance(op, Conv) or zero.size > 1) and np.any(zero != (0 if dtype is DType.I8 else 128)):
        raise Obstacle("weights less their zero points are no numbers of 8 bits")


def _expect_known(
    editor: GraphEditor, op: Conv | MatMul, right: str, x: tuple[str, str], numbers: tuple[Array, Array]
) -> None:
    """A B operand that is no constant has one scale, and the A operand's are known. Raises Obstacle."""
    if isinstance(op, Conv) or any(array.size != 1 for array in numbers) or not all(map(editor.is_constant, x)):
        raise Obstacle(f"'{right}' is no constant, and scales are found at run time or differ")


def _right(editor: GraphEditor, node: Node, back: Node | None) -> _Factor:
    """A B operand that is dequantised at run time."""
    assert back is not None
    assert isinstance(node.op, Conv | MatMul)
    factor, first = _Factor(*back.inputs), editor.producer(node.inputs[0])
    arrays = [editor.constant(name) for name in (factor.scale, factor.zero)]
    if arrays[0] is None or arrays[1] is None or editor.type(factor.q).dtype not in FACTORS:
        raise Obstacle(
            f"'{factor.q}' has no constant scale and zero point, or is of {editor.type(factor.q).dtype.value}"
        )
    assert first is not None
    _expect_known(editor, node.op, factor.q, (first.inputs[1], first.inputs[2]), (arrays[0], arrays[1]))
    return factor


def _stored(editor: GraphEditor, name: str) -> Stored | None:
    """The integers of weights, whether their numbers are a constant or are still made of them."""
    if (stored := editor.stored(name)) is not None:
        return stored
    node = editor.producer(name)
    if node is None or not isinstance(node.op, Dequantize) or node.epilogue:
        return None
    q, scale, zero = (editor.constant(each) for each in node.inputs)
    return None if q is None or scale is None or zero is None else Stored(q, scale, zero)


def _weights(editor: GraphEditor, name: str, op: Conv | MatMul, stored: Stored) -> _Factor:
    """The integers of weights as constants, with one scale, or one a column."""
    dtype = DType.I8 if stored.q.dtype == np.int8 else DType.U8
    _expect_bytes(op, dtype, stored.zero)
    rank = stored.q.ndim
    axis = 0 if isinstance(op, Conv) else rank - 2 if op.transpose_b else rank - 1
    arrays = []
    for array in (stored.scale, stored.zero):
        shape = (1,) * (rank - array.ndim) + array.shape
        if any(extent != 1 for place, extent in enumerate(shape) if place != axis):
            raise Obstacle(f"scales of '{name}' differ along what is summed")
        arrays.append(_each(array, stored.q.shape[axis]))
    return _Factor(
        editor.new_constant(f"{name}.stored", np.ascontiguousarray(stored.q), dtype),
        editor.new_constant(f"{name}.scale", arrays[0], DType.F32),
        editor.new_constant(f"{name}.zero", arrays[1], dtype),
    )


MULTIPLY_INTEGERS = Pass("multiply-integers", _run, pays_on=multiplies_integers)
