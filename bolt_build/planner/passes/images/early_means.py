"""Takes the mean of an image in front of the 1x1 convolution that it is of: mean(W x + b) is W mean(x) + b.

Squeeze and excitation behind the last 1x1 of a block gates what that leaves by a function of its mean. The gate is
known before the convolution then, whose kernel can multiply by it as it stores, and the mean is one of fewer channels.
Where a product with constant weights alone reads the mean, or a window over its channels as in ECA, both are one
product of single pixels. The same holds for rows of a matrix product and their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node, Op, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.patterns.image_numbers import numbers_of
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import SUFFIX, channel_axis, weight_obstacle
from bolt_build.planner.passes.fold.linear import composed, is_of_points, linear_behind
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target


@dataclass(frozen=True)
class _Mean:
    """A mean over all positions of what `product` leaves, and the `moves` between: at most one, which merges
    positions."""

    product: Node
    moves: tuple[Node, ...]
    reduce: Node


def _run(graph: Graph, *, gates: bool) -> PassResult:
    editor, journal = GraphEditor(graph), Journal("early-means")
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Reduce) or node.op.mode != "mean" or node.epilogue:
            continue
        if editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        mean = _between(editor, node) or _mean(editor, node)
        if isinstance(mean, str):
            journal.declined(node.name, mean)
        elif mean is not None:
            _take_early(editor, journal, mean, gates=gates)
    return journal.result(editor.finish())


def _between(editor: GraphEditor, node: Node) -> str | None:
    """Why a gated value whose mean it is is no linear function of what a 1x1 reads; None where it may be one."""
    found = editor.producer(node.inputs[0])
    if found is None or not isinstance(found.op, Activation):
        return None
    product = editor.producer(found.inputs[0])
    if product is None or not is_of_points(editor, product) or not _gates(editor, product, found.outputs[0]):
        return None
    return f"'{found.op.function}' between '{product.name}' and its mean is not linear"


def _gates(editor: GraphEditor, product: Node, value: str) -> tuple[Node, ...]:
    """Nodes that combine a value, which lies like the product's result, with one number of each image and channel."""
    channel = channel_axis(product, editor.type(value))
    return tuple(node for node in editor.readers(value) if numbers_of(editor, node, value, channel) is not None)


def _mean(editor: GraphEditor, node: Node) -> _Mean | str | None:
    """What a mean over all positions is of, where that is a product's result that is gated; why it is not over all of
    them; None of any other."""
    assert isinstance(node.op, Reduce)
    value, moves = node.inputs[0], tuple[Node, ...]()
    move = editor.producer(value)
    if move is not None and isinstance(move.op, Reshape) and editor.not_private(value) is None:
        moves, value = (move,), move.inputs[0]
    product = editor.producer(value)
    if product is None or not is_of_points(editor, product) or not _gates(editor, product, value):
        return None
    before, after = editor.type(value).shape, editor.type(node.inputs[0]).shape
    merges = isinstance(product.op, Conv) and before[:2] == after[:2] and len(after) > 2
    if moves and not merges:
        return f"the reshape in front of it does more than merge positions of what '{product.name}' leaves"
    positions = _positions(product, len(after))
    if not positions or node.op.axes != positions:
        return f"it is over axes {list(node.op.axes)} of {list(after)}, not over all positions of an image alone"
    return _Mean(product, moves, node)


def _positions(product: Node, rank: int) -> tuple[int, ...]:
    """The axes of the result between images and channels."""
    return tuple(range(2, rank)) if isinstance(product.op, Conv) else tuple(range(1, rank - 1))


def _take_early(editor: GraphEditor, journal: Journal, mean: _Mean, *, gates: bool) -> None:
    behind = linear_behind(editor, mean.reduce.outputs[0], editor.type(mean.product.outputs[0]).shape[0])
    obstacle = _obstacle(editor, mean) or _too_long(editor, mean, behind, gates=gates)
    if obstacle is not None:
        journal.declined(mean.reduce.name, obstacle)
        return
    early, made = _early(editor, mean)
    if not behind:
        _multiply_alone(editor, mean, early, made)
        journal.did(mean.reduce.name, "taken", f"of what '{mean.product.name}' reads, and multiplied by its weights")
    else:
        _multiply_once(editor, mean, behind, early, made)
        journal.did(
            mean.reduce.name, "taken",
            f"of what '{mean.product.name}' reads, whose weights are part of those of '{behind[-1].name}'",
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
    own = (*mean.moves, mean.reduce, *_gates(editor, product, value)[:1])
    other = next((each for each in editor.readers(value) if each not in own), None)
    return None if other is None else f"'{other.name}' reads '{value}' as well, which is stored for it"


def _too_long(editor: GraphEditor, mean: _Mean, behind: tuple[Node, ...], *, gates: bool) -> str | None:
    """Why the mean in front of the product, with the product of it, would take longer than it saves. `gates`: kernels
    gate what they store, so a product of single pixels takes the place of a pass over the result."""
    y, given = editor.type(mean.product.outputs[0]), _read(editor, mean.product)
    if prod(given) > y.elements:
        return f"'{mean.product.name}' reads {list(given)}, more than it leaves"
    weights = editor.type(mean.product.inputs[1]).elements
    if behind:
        outputs = editor.type(behind[-1].outputs[0]).elements // y.shape[0]
        channels = given[channel_axis(mean.product, y)]
        weights = outputs * channels - editor.type(behind[-1].inputs[1]).elements
    if weights > 0 and not (gates and (behind or weights <= 2 * y.elements)):
        return f"a product of single pixels would read {weights} weights more, for a result of {y.elements} elements"
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
    made += _under_its_name(editor, reduce, op, (early, *product.inputs[1:]), reduce.covers)
    _replace(editor, mean, made)


def _multiply_once(editor: GraphEditor, mean: _Mean, behind: tuple[Node, ...], early: str, made: list[Node]) -> None:
    """Both products as one, in the place of the one behind."""
    last = behind[-1]
    weights, bias = composed(editor, mean.product, behind)
    rows = isinstance(last.op, MatMul)
    given = editor.type(last.inputs[0]).shape[:-1] if rows else (editor.type(early).shape[0],)
    given = (*given, weights.shape[1], *(() if rows else (1, 1)))
    if given != editor.type(early).shape:
        moved = editor.new_value(f"{early}.moved", TensorType(editor.type(early).dtype, given))
        made.append(Node(editor.free_node_name(moved), Reshape(given), (early,), (moved,)))
        early = moved
    _replace(editor, mean, made)
    for node in behind[:-1]:
        editor.remove(node)
    if rows:
        op, stored = last.op, weights if last.op == MatMul(transpose_b=True) else weights.T
    else:
        op, stored = Conv((1, 1), (0, 0), (0, 0), (1, 1)), weights[:, :, None, None]
    dtype = editor.type(last.inputs[1]).dtype
    inputs = [early, _constant(editor, _folded(last.inputs[1]), stored, dtype)]
    if bias is not None:
        name = _folded(last.inputs[2]) if len(last.inputs) > 2 else f"{last.name}.bias"
        inputs.append(_constant(editor, name, bias, dtype))
    editor.replace(last, *_under_its_name(editor, last, op, tuple(inputs), joined(*(each.covers for each in behind))))


def _under_its_name(
    editor: GraphEditor, old: Node, op: Op, inputs: tuple[str, ...], covers: tuple[str, ...]
) -> tuple[Node, ...]:
    """The operator with the output of a node that it takes the place of, moved where it has another shape."""
    (type_,), (output,) = op.infer([editor.type(name) for name in inputs]), old.outputs
    if type_ == editor.type(output):
        return (Node(old.name, op, inputs, old.outputs, covers=covers),)
    value = editor.new_value(f"{old.name}.product", type_)
    product = Node(editor.free_node_name(value), op, inputs, (value,), covers=covers)
    return product, Node(old.name, Reshape(editor.type(output).shape), (value,), old.outputs)


def _constant(editor: GraphEditor, name: str, array: Array, dtype: DType) -> str:
    """A constant computed in float64, rounded once: to its element type or, of half precision, to fp32."""
    return editor.new_constant(name, narrowed(np.ascontiguousarray(array), held_dtype(dtype)), dtype)


def _folded(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}{SUFFIX}"


def _replace(editor: GraphEditor, mean: _Mean, made: list[Node]) -> None:
    editor.replace(mean.reduce, *made)
    for node in mean.moves:
        editor.remove(node)


def _stores_gate(target: Target, precision: str) -> bool:
    """Whether the store of WGMMA's products gates what it stores, as that of a warp's instructions does not."""
    return on_tensor_cores(target, precision) and target.gpu is not None and target.gpu.warpgroup_mma


EARLY_MEANS = Pass("early-means", partial(_run, gates=False), pays_on=lambda *of: not _stores_gate(*of))
EARLY_GATES = Pass("early-means", partial(_run, gates=True), pays_on=_stores_gate)
"""The same where kernels can gate what they store."""
