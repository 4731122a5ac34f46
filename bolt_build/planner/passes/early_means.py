"""Takes the mean of an image in front of the 1x1 convolution that it is of: mean(W x + b) is W mean(x) + b.

Squeeze and excitation behind the last 1x1 of a block gates what that leaves by a function of its mean. The gate is
known before the convolution then, whose kernel can multiply by it as it stores, and the mean is one of fewer channels.
Where a product with constant weights alone reads the mean, both products of single pixels are one. The same holds for
rows of a matrix product and their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.image_numbers import numbers_of
from bolt_build.graph.ir import Array, Graph, Node, TensorType
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.channels import SUFFIX, channel_axis, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy


@dataclass(frozen=True)
class _Mean:
    """A mean over all positions of what `product` leaves, and the `moves` between: one reshape that merges positions, at
    most."""

    product: Node
    moves: tuple[Node, ...]
    reduce: Node


@dataclass(frozen=True)
class _Behind:
    """The product with constant weights that alone reads a mean, and the reshapes between."""

    moves: tuple[Node, ...]
    product: Node


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(EARLY_MEANS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Reduce) or node.op.mode != "mean" or node.epilogue:
            continue
        if editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        if (obstacle := _between(editor, node)) is not None:
            journal.declined(node.name, obstacle)
        elif (mean := _mean(editor, node)) is not None:
            _take_early(editor, journal, mean)
    return journal.result(editor.finish())


def _between(editor: GraphEditor, node: Node) -> str | None:
    """Why a gated value whose mean it is is no linear function of what a 1x1 reads; None where it may be one."""
    found = editor.producer(node.inputs[0])
    if found is None or not isinstance(found.op, Activation):
        return None
    product = editor.producer(found.inputs[0])
    if product is None or not _multiplies_points(editor, product) or not _gates(editor, product, found.outputs[0]):
        return None
    return f"'{found.op.function}' between '{product.name}' and its mean is not linear"


def _gates(editor: GraphEditor, product: Node, value: str) -> tuple[Node, ...]:
    """Nodes that combine a value, which lies like the product's result, with one number of each image and channel."""
    channel = channel_axis(product, editor.type(value))
    return tuple(node for node in editor.readers(value) if numbers_of(editor, node, value, channel) is not None)


def _multiplies_points(editor: GraphEditor, node: Node) -> bool:
    """Whether a node is a convolution of single positions, or a product with a matrix of constants."""
    if isinstance(node.op, Conv):
        return prod(editor.type(node.inputs[1]).shape[2:]) == 1
    return isinstance(node.op, MatMul) and editor.type(node.inputs[1]).rank == 2


def _mean(editor: GraphEditor, node: Node) -> _Mean | None:
    """What a mean over all positions is of, where that is a product's result that is gated; None of any other."""
    assert isinstance(node.op, Reduce)
    value, moves = node.inputs[0], tuple[Node, ...]()
    move = editor.producer(value)
    if move is not None and isinstance(move.op, Reshape) and editor.not_private(value) is None:
        before, after = editor.type(move.inputs[0]).shape, editor.type(value).shape
        if before[:2] != after[:2] or len(after) < 3 or node.op.axes != tuple(range(2, len(after))):
            return None
        moves, value = (move,), move.inputs[0]
    product = editor.producer(value)
    if product is None or not _multiplies_points(editor, product) or not _gates(editor, product, value):
        return None
    if moves and not isinstance(product.op, Conv):
        return None
    rank = editor.type(value).rank
    positions = _positions(product, rank)
    whole = moves or node.op.axes == positions
    return _Mean(product, moves, node) if whole and positions else None


def _positions(product: Node, rank: int) -> tuple[int, ...]:
    """The axes of the result between images and channels."""
    return tuple(range(2, rank)) if isinstance(product.op, Conv) else tuple(range(1, rank - 1))


def _take_early(editor: GraphEditor, journal: Journal, mean: _Mean) -> None:
    behind = _behind(editor, mean.reduce.outputs[0], editor.type(mean.product.outputs[0]), mean.product)
    obstacle = _obstacle(editor, mean) or _too_long(editor, mean, behind)
    if obstacle is not None:
        journal.declined(mean.reduce.name, obstacle)
        return
    early, made = _early(editor, mean)
    if behind is None:
        _multiply_alone(editor, mean, early, made)
        journal.did(mean.reduce.name, "taken", f"of what '{mean.product.name}' reads, and multiplied by its weights")
    else:
        _multiply_once(editor, mean, behind, early, made)
        journal.did(
            mean.reduce.name, "taken",
            f"of what '{mean.product.name}' reads, whose weights are part of those of '{behind.product.name}'",
        )  # fmt: skip


def _obstacle(editor: GraphEditor, mean: _Mean) -> str | None:
    """Why the mean is not taken in front of the product, None where it may be."""
    product, value = mean.product, mean.product.outputs[0]
    if (reason := weight_obstacle(editor, product)) is not None:
        return reason
    if isinstance(product.op, Conv) and product.op.groups != 1:
        return f"'{product.name}' has groups"
    if isinstance(product.op, Conv) and any((*product.op.pads_begin, *product.op.pads_end)):
        return f"'{product.name}' pads what it reads with zeros"
    if isinstance(product.op, MatMul) and product.op.transpose_a:
        return f"'{product.name}' reads rows as columns"
    if editor.is_output(value):
        return f"'{value}' is a graph output"
    gates = _gates(editor, product, value)
    others = [each for each in editor.readers(value) if each not in gates and not isinstance(each.op, Reduce | Reshape)]
    if others or len(gates) > 1:
        return f"'{(others or gates[1:])[0].name}' reads '{value}' as well, which is stored for it"
    return None


def _too_long(editor: GraphEditor, mean: _Mean, behind: _Behind | None) -> str | None:
    """Why the mean in front of the product, with the product of it, would take longer than it saves."""
    y, given = editor.type(mean.product.outputs[0]), _read(editor, mean.product)
    if prod(given) > y.elements:
        return f"'{mean.product.name}' reads {list(given)}, more than it leaves"
    weights = editor.type(mean.product.inputs[1]).elements
    if behind is None and weights > 2 * y.elements:
        return f"a product of single pixels would read {weights} weights again, for a result of {y.elements} elements"
    return None


def _read(editor: GraphEditor, product: Node) -> tuple[int, ...]:
    """The shape of what a product of points reads of its input."""
    shape = editor.type(product.inputs[0]).shape
    if not isinstance(product.op, Conv):
        return shape
    return (*shape[:2], *(ceil(extent / step) for extent, step in zip(shape[2:], product.op.strides, strict=True)))


def _early(editor: GraphEditor, mean: _Mean) -> tuple[str, list[Node]]:
    """The mean of what the product reads, and the nodes that make it."""
    product, nodes = mean.product, list[Node]()
    value, type_ = product.inputs[0], editor.type(product.inputs[0])
    given = _read(editor, product)
    if given != type_.shape:
        assert isinstance(product.op, Conv)
        op = Slice((0,) * type_.rank, given, (1, 1, *product.op.strides))
        read = editor.new_value(f"{product.name}.read", TensorType(type_.dtype, given))
        nodes.append(Node(editor.free_node_name(read), op, (value,), (read,)))
        value = read
    reduce = Reduce("mean", _positions(product, type_.rank))
    (averaged,) = reduce.infer([editor.type(value)])
    early = editor.new_value(f"{mean.reduce.name}.early", averaged)
    nodes.append(Node(editor.free_node_name(early), reduce, (value,), (early,), covers=mean.reduce.covers))
    return early, nodes


def _multiply_alone(editor: GraphEditor, mean: _Mean, early: str, made: list[Node]) -> None:
    """The product of the mean, under the name and with the output of the mean that it takes the place of."""
    product, reduce = mean.product, mean.reduce
    op = replace(product.op, strides=(1,) * len(product.op.strides)) if isinstance(product.op, Conv) else product.op
    inputs, (output,) = (early, *product.inputs[1:]), reduce.outputs
    (type_,) = op.infer([editor.type(name) for name in inputs])
    if type_ == editor.type(output):
        made.append(Node(reduce.name, op, inputs, reduce.outputs, covers=reduce.covers))
    else:
        value = editor.new_value(f"{reduce.name}.product", type_)
        made.append(Node(editor.free_node_name(value), op, inputs, (value,), covers=reduce.covers))
        made.append(Node(reduce.name, Reshape(editor.type(output).shape), (value,), reduce.outputs))
    _replace(editor, mean, made)


def _multiply_once(editor: GraphEditor, mean: _Mean, behind: _Behind, early: str, made: list[Node]) -> None:
    """Both products as one, in the place of the one behind."""
    product = behind.product
    read = editor.type(product.inputs[0]).shape
    at = channel_axis(product, editor.type(product.inputs[0]))
    given = tuple(_matrix(editor, mean.product).shape[1] if axis == at else extent for axis, extent in enumerate(read))
    if given != editor.type(early).shape:
        moved = editor.new_value(f"{early}.moved", TensorType(editor.type(early).dtype, given))
        made.append(Node(editor.free_node_name(moved), Reshape(given), (early,), (moved,)))
        early = moved
    inputs = (early, *_composed(editor, mean.product, product))
    covers = joined(*(each.covers for each in (*behind.moves, product)))
    _replace(editor, mean, made)
    editor.replace(product, replace(product, inputs=inputs, covers=covers))
    for node in reversed(behind.moves):
        editor.remove(node)


def _replace(editor: GraphEditor, mean: _Mean, made: list[Node]) -> None:
    editor.replace(mean.reduce, *made)
    for node in mean.moves:
        editor.remove(node)


def _behind(editor: GraphEditor, value: str, y: TensorType, first: Node) -> _Behind | None:
    """The product of single pixels that alone reads a mean of `y`; None where another node, or more than one, reads it."""
    moves, channels = list[Node](), y.shape[channel_axis(first, y)]
    while editor.not_private(value) is None and len(editor.readers(value)) == 1:
        (node,) = editor.readers(value)
        if isinstance(node.op, Reshape) and not node.epilogue:
            moves.append(node)
            (value,) = node.outputs
            continue
        type_ = editor.type(value)
        if not _multiplies_points(editor, node) or node.inputs[0] != value or weight_obstacle(editor, node) is not None:
            return None
        plain = _is_plain(node) and type_.shape[channel_axis(node, type_)] == channels
        return _Behind(tuple(moves), node) if plain and type_.elements == y.shape[0] * channels else None
    return None


def _is_plain(node: Node) -> bool:
    """Whether a product of points multiplies every pixel as it is."""
    if isinstance(node.op, Conv):
        return node.op.groups == 1 and not any((*node.op.pads_begin, *node.op.pads_end))
    return isinstance(node.op, MatMul) and not node.op.transpose_a


def _composed(editor: GraphEditor, first: Node, second: Node) -> tuple[str, ...]:
    """Weights and bias of both products, one behind the other: computed in float64 and rounded once."""
    ones, others = _matrix(editor, first), _matrix(editor, second)
    dtype, weight = editor.type(second.inputs[1]).dtype, editor.constant(second.inputs[1])
    assert weight is not None
    both = others @ ones
    rows_first = isinstance(second.op, Conv) or (isinstance(second.op, MatMul) and second.op.transpose_b)
    shape = (*both.shape, *weight.shape[2:])
    made = narrowed((both if rows_first else both.T).reshape(shape if rows_first else both.T.shape), held_dtype(dtype))
    inputs = [editor.new_constant(_name(second.inputs[1]), made, dtype)]
    front, own = _bias(editor, first), _bias(editor, second)
    if front is not None or own is not None:
        total = np.zeros(len(others)) if front is None else others @ front
        total = total if own is None else total + own
        out = editor.type(second.outputs[0]).dtype
        name = _name(second.inputs[2]) if own is not None else f"{second.name}.bias"
        inputs.append(editor.new_constant(name, narrowed(total, held_dtype(out)), out))
    return tuple(inputs)


def _matrix(editor: GraphEditor, product: Node) -> Array:
    """Constant weights as [outputs, inputs] in float64."""
    weight = editor.constant(product.inputs[1])
    assert weight is not None
    flat = weight.astype(np.float64).reshape(weight.shape[:2])
    return flat.T if isinstance(product.op, MatMul) and not product.op.transpose_b else flat


def _bias(editor: GraphEditor, product: Node) -> Array | None:
    bias = editor.constant(product.inputs[2]) if len(product.inputs) > 2 else None
    return None if bias is None else bias.astype(np.float64)


def _name(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}{SUFFIX}"


EARLY_MEANS = Pass("early-means", _run)
