"""Shuffles channels in the store of a 1x1 convolution that computes some of them.

ShuffleNet's units concatenate channels that pass through with those that a 1x1 leaves, and interleave both. Elements of
half precision that lie apart in turns are slow to move. But a product writes its columns in whatever order its filters
have, and a filter of a single one leaves a channel as it is. So the 1x1 reads what passes through as well, with an
identity in its weights, and its filters are in the order of the shuffled channels: four times the operations of a
small product, and no step that moves elements. Products with one and sums with zeros are exact. An infinite input makes
NaN in all channels of its pixel. What passes through must be left alone by the activation behind the 1x1: a rectifier
gets a slope for each channel, which is one for those.

The first ShuffleNet shuffles what a 1x1 with groups leaves. No group has shuffled channels, but a product of all
channels has, with zeros where a group reads nothing: as many bytes, and a few operations more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined

_MOST = 1024
"""Channels, shuffled: the product of more takes longer than what it spares."""
_RECTIFIERS = ("relu", "leaky_relu")
_OPERATIONS = 256
"""Products of each element that a convolution reads or writes: of fewer, memory takes longer than tensor cores."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_SHUFFLES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, Conv) and node.op.groups > 1:
            _of_groups(editor, journal, node, node.op)
            continue
        if node is None or not isinstance(node.op, Concat) or node.op.axis != 1 or node.epilogue:
            continue
        readers = editor.readers(node.outputs[0])
        order = _order(editor, node, readers)
        if order is None:
            continue
        if (obstacle := _obstacle(editor, node, order)) is not None:
            journal.declined(node.name, f"its channels are shuffled, but {obstacle}")
            continue
        made = _multiply(editor, node, readers, order)
        journal.did(made, "multiplied", f"leaves the shuffled channels of '{node.name}', others with an identity")
    return journal.result(editor.finish())


def _of_groups(editor: GraphEditor, journal: Journal, node: Node, op: Conv) -> None:
    """A 1x1 with groups whose result is shuffled, as one of all channels that leaves them so."""
    readers = editor.readers(node.outputs[0])
    order = _order(editor, node, readers) if readers else None
    if order is None or prod(editor.type(node.inputs[1]).shape[2:]) != 1:
        return
    if (obstacle := _obstacle_in_groups(editor, node, len(order))) is not None:
        journal.declined(node.name, f"its channels are shuffled, but {obstacle}")
        return
    weights, dtype = editor.constant(node.inputs[1]), editor.type(node.inputs[1]).dtype
    assert weights is not None
    filters, depth = len(weights) // op.groups, weights.shape[1]
    whole = np.zeros((len(weights), depth * op.groups, *weights.shape[2:]), weights.dtype)
    for group in range(op.groups):
        rows = slice(group * filters, (group + 1) * filters)
        whole[rows, group * depth : (group + 1) * depth] = weights[rows]
    inputs = [node.inputs[0], editor.new_constant(f"{node.inputs[1]}.shuffled", whole[order], dtype)]
    if len(node.inputs) > 2:
        bias = editor.constant(node.inputs[2])
        assert bias is not None
        inputs.append(editor.new_constant(f"{node.inputs[2]}.shuffled", bias[order], editor.type(node.inputs[2]).dtype))
    (output,) = node.outputs
    made = editor.new_value(f"{output}.shuffled", editor.type(output))
    editor.replace(node, replace(node, op=replace(op, groups=1), inputs=tuple(inputs), outputs=(made,)))
    _read_in_order(editor, readers, made)
    journal.did(node.name, "multiplied", "leaves shuffled channels, with zeros where a group reads nothing")


def _obstacle_in_groups(editor: GraphEditor, node: Node, channels: int) -> str | None:
    """Why no product of all channels takes the place of one with groups; None where one may."""
    if editor.is_output(node.outputs[0]):
        return "they are a graph output"
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return f"'{node.name}' is no 1x1 of constant weights"
    if any(stage.operand is not None for stage in node.epilogue):
        return f"'{node.name}' has an operand that is not shuffled"
    given = editor.type(node.inputs[0]).shape[1]
    each = given * channels // (given + channels)
    return f"a product of all would be {each} operations of each element" if each > _OPERATIONS else None


def _order(editor: GraphEditor, node: Node, readers: Sequence[Node]) -> Array | None:
    """The channel of the concatenation that each shuffled one is, where all who read it shuffle them so; else None."""
    found: Array | None = None
    shape = editor.type(node.outputs[0]).shape
    for reader in readers:
        op = reader.op
        if not isinstance(op, Rearrange) or reader.epilogue or op.whole != shape or len(shape) < 3:
            return None
        inner = len(op.split) - len(shape) + 2
        fixed = (0, *range(inner, len(op.split)))
        if op.split[0] != shape[0] or op.split[inner:] != shape[2:] or any(op.perm[axis] != axis for axis in fixed):
            return None
        if prod(op.split[1:inner]) != shape[1] or op.shape[0] != shape[0] or op.shape[2:] != shape[2:]:
            return None
        channels = np.arange(shape[1]).reshape(op.split[1:inner])
        order = channels.transpose([axis - 1 for axis in op.perm[1:inner]]).reshape(-1)
        if found is not None and not np.array_equal(found, order):
            return None
        found = order
    return found


def _obstacle(editor: GraphEditor, node: Node, order: Array) -> str | None:
    """Why the convolution behind the last part does not leave all channels, None where it can."""
    passing, last = node.inputs[:-1], node.inputs[-1]
    conv = editor.producer(last)
    if editor.is_output(node.outputs[0]) or len(order) > _MOST:
        return "they are a graph output" if editor.is_output(node.outputs[0]) else f"there are over {_MOST}"
    if conv is None or not isinstance(conv.op, Conv) or conv.op.groups != 1 or last in passing:
        return f"no convolution computes '{last}'"
    weights = editor.type(conv.inputs[1]).shape
    plain = set(conv.op.strides) == {1} and not any((*conv.op.pads_begin, *conv.op.pads_end))
    if prod(weights[2:]) != 1 or not plain or not all(map(editor.is_constant, conv.op_inputs[1:])):
        return f"'{conv.name}' is no 1x1 of constant weights"
    if editor.not_private(last) is not None:
        return f"'{last}' is read by others as well"
    stages = [stage.op for stage in conv.epilogue]
    if len(stages) > 1 or any(not isinstance(op, Activation) or op.function not in _RECTIFIERS for op in stages):
        return f"what follows '{conv.name}' would change the others"
    return None


def _slope(editor: GraphEditor, passing: Sequence[str], conv: Node) -> float | None:
    """What the activation behind the convolution multiplies negative numbers with; None where there is none, or it
    leaves alone what passes through."""
    for stage in conv.epilogue:
        assert isinstance(stage.op, Activation)
        if stage.op.function == "leaky_relu":
            return stage.op.alpha
        if not all(_is_rectified(editor, name) for name in passing):
            return 0.0
    return None


def _is_rectified(editor: GraphEditor, name: str) -> bool:
    """True where relu leaves the value as it is."""
    made = editor.producer(name)
    while made is not None and not made.epilogue and isinstance(made.op, Rearrange | Slice | Pool):
        if isinstance(made.op, Pool) and made.op.mode != "max":
            return False
        made = editor.producer(made.inputs[0])
    if made is None:
        return False
    if isinstance(made.op, Concat) and not made.epilogue:
        return all(_is_rectified(editor, each) for each in made.inputs)
    last = made.epilogue[-1].op if made.epilogue else made.op
    return isinstance(last, Activation) and last.function == "relu"


def _multiply(editor: GraphEditor, node: Node, readers: Sequence[Node], order: Array) -> str:
    """The 1x1 over all channels, and slices of what it leaves. Returns its name."""
    (output,), passing = node.outputs, node.inputs[:-1]
    conv = editor.producer(node.inputs[-1])
    assert conv is not None
    given, type = conv.inputs[0], editor.type(output)
    through, depth = sum(editor.type(name).shape[1] for name in passing), editor.type(given).shape[1]
    array, dtype = editor.constant(conv.inputs[1]), editor.type(conv.inputs[1]).dtype
    assert array is not None
    whole = np.zeros((through + len(array), through + depth, *array.shape[2:]), array.dtype)
    identity = np.eye(through, dtype=array.dtype)
    whole[:through, :through] = identity.reshape(through, through, *array.shape[2:])
    whole[through:, through:] = array
    shape = (type.shape[0], through + depth, *type.shape[2:])
    inputs = [editor.new_value(f"{output}.given", replace(type, shape=shape))]
    inputs.append(editor.new_constant(f"{conv.inputs[1]}.shuffled", np.ascontiguousarray(whole[order]), dtype))
    if len(conv.op_inputs) > 2:
        bias = editor.constant(conv.inputs[2])
        assert bias is not None
        wide = np.concatenate([np.zeros(through, bias.dtype), bias])[order]
        inputs.append(editor.new_constant(f"{conv.inputs[2]}.shuffled", wide, editor.type(conv.inputs[2]).dtype))
    made = editor.new_value(f"{output}.shuffled", type)
    covers = joined(conv.covers, node.covers)
    name = editor.free_node_name(f"{node.name}.given")
    join = Node(name, node.op, (*passing, given), (inputs[0],), covers=node.covers)
    product = replace(conv, inputs=tuple(inputs), outputs=(made,), covers=covers)
    behind = list[Node]()
    if (slope := _slope(editor, passing, conv)) is not None:
        slopes = np.concatenate([np.ones(through), np.full(len(array), slope)])[order].astype(array.dtype)
        shares = editor.new_constant(f"{output}.slopes", slopes.reshape(-1, *(1,) * (len(shape) - 2)), dtype)
        linear = editor.new_value(f"{output}.linear", type)
        product = replace(product, name=editor.free_node_name(f"{conv.name}.linear"), outputs=(linear,), epilogue=())
        behind = [Node(conv.name, Binary("prelu"), (linear, shares), (made,), covers=covers)]
    editor.remove(conv)
    editor.replace(node, join, product, *behind)
    _read_in_order(editor, readers, made)
    return conv.name


def _read_in_order(editor: GraphEditor, readers: Sequence[Node], shuffled: str) -> None:
    """Slices of what is in order already, in the place of movements."""
    for reader in readers:
        assert isinstance(reader.op, Rearrange)
        rank = len(reader.op.shape)
        op = Slice((0, reader.op.begin, *(0,) * (rank - 2)), reader.op.shape, (1,) * rank)
        editor.replace(reader, replace(reader, op=op, inputs=(shuffled,)))


MULTIPLY_SHUFFLES = Pass("multiply-shuffles", _run, pays_on=PAD_CHANNELS.pays_on)
