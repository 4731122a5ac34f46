"""Rounds channels between convolutions, and columns between matrix products, up to whole loads: the kernel that
computes them stores the padding as well.

For targets whose kernels load 16 bytes at once and would otherwise copy such an image into a padded one first. The
convolution that makes the channels gets rows of zero weights, the one that reads them columns of zeros: whatever
finite value the padding takes on its way (an activation of zero) counts for nothing. Between the two may stand what
keeps channels apart: pooling, activations, sums of tensors that are all padded. Constants with a number for each
channel get zeros: slopes of PRelu, scale and shift of a BatchNorm behind an activation.

Volumes are padded before they are flattened: what makes images of them, and volumes of images, stands between the
convolutions then.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.padding import padding_wishes
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import PaddingPolicy
from bolt_build.targets import Target

WHOLE = 8
"""Half-precision elements of a load of 16 bytes."""
_LARGEST = 1e4
"""Padding beyond it could overflow half precision on its way."""


def _run(graph: Graph, padding: PaddingPolicy, *, ranks: Container[int]) -> PassResult:
    """Of values that have so many axes."""
    editor, journal = GraphEditor(graph), Journal(PAD_CHANNELS.name)
    wishes, to = padding_wishes(graph.nodes, padding), padding.alignment
    for group in _groups(editor, to):
        if editor.type(group[0]).rank not in ranks:
            continue
        channels = editor.type(group[0]).shape[1]
        readers = [n for value in group for n in editor.readers(value) if _takes(editor, n, value)]
        if not readers:
            continue
        subject = _maker(editor, group).name
        makers = [node.name for value in group if (node := editor.producer(value)) is not None]
        wish, key = wishes.of((*makers, *(reader.name for reader in readers)))
        obstacle = f"{key} is never" if wish == "never" else _obstacle(editor, group, readers, wish)
        if obstacle is not None:
            journal.declined(subject, f"{channels} channels are no multiple of {to}, but {obstacle}")
            continue
        padded = -(-channels // to) * to
        reason = _gain(editor, group, readers, padded, to)
        _pad(editor, group, readers, padded)
        journal.did(subject, f"padded {channels} channels to {padded}", reason)
    return journal.result(editor.finish())


def _groups(editor: GraphEditor, to: int) -> list[list[str]]:
    """Values whose channels must be padded together, in the order in which they are made, each group at its first
    value; only those of images whose channels are no multiple of `to`."""
    group_of: dict[str, list[str]] = {}
    for node in editor.nodes():
        (value, *_) = node.outputs
        type = editor.type(value)
        if type.rank < 2 or type.shape[1] % to == 0:
            continue
        merged = group_of.setdefault(value, [value])
        for other in _tied(editor, node):
            joined = group_of.setdefault(other, [other])
            if joined is not merged:
                merged = [*joined, *merged]
                group_of.update(dict.fromkeys(merged, merged))
    return list({id(group): group for group in group_of.values()}.values())


def _tied(editor: GraphEditor, node: Node) -> Iterator[str]:
    """Values that the node reads with the channels of its output."""
    own = () if isinstance(node.op, Conv | MatMul) else node.op_inputs
    operands = [node.inputs[stage.operand] for stage in node.epilogue if stage.operand is not None]
    out = editor.type(node.outputs[0])
    if isinstance(node.op, Conv | MatMul | Pool | Activation | Binary):
        for name in (*own, *operands):
            type = editor.type(name)
            if not editor.is_constant(name) and type.rank == out.rank and type.shape[1] == out.shape[1]:
                yield name


def _takes(editor: GraphEditor, node: Node, value: str) -> bool:
    """True where the node is a product that can be given padded channels of `value`."""
    return _is_product(editor, node) and node.inputs[0] == value


def _is_product(editor: GraphEditor, node: Node) -> bool:
    """True for a convolution without groups, or a product of two matrices, whose weights are constant."""
    if not isinstance(node.op, Conv | MatMul) or not all(map(editor.is_constant, node.op_inputs[1:])):
        return False
    if isinstance(node.op, Conv):
        return node.op.groups == 1
    return not node.op.transpose_a and editor.type(node.inputs[0]).rank == editor.type(node.inputs[1]).rank == 2


def _maker(editor: GraphEditor, group: Sequence[str]) -> Node:
    return next(node for node in map(editor.producer, group) if node is not None)


def _obstacle(editor: GraphEditor, group: Sequence[str], readers: Sequence[Node], wish: str) -> str | None:
    """Why the group's channels stay as they are, None where they can be padded and, but where the recipe wants it
    always, that is worth it."""
    for value in group:
        if editor.is_output(value) or editor.is_input(value):
            return f"'{value}' is a graph {'output' if editor.is_output(value) else 'input'}"
        node = editor.producer(value)
        assert node is not None
        if (reason := _cannot_make(editor, node)) is not None:
            return f"'{value}' is made by '{node.name}', {reason}"
        for reader in editor.readers(value):
            # A product may read a value as its A operand and as its own residual.
            operands = [reader.inputs[stage.operand] for stage in reader.epilogue if stage.operand is not None]
            as_operand = value in operands or not _is_product(editor, reader)
            tied = reader.outputs[0] in group and value in _tied(editor, reader)
            untaken = (
                value in reader.op_inputs and isinstance(reader.op, Conv | MatMul) and not _takes(editor, reader, value)
            )
            if (as_operand and not tied) or untaken:
                return f"'{value}' is read by '{reader.name}', {reader.op.kind}"
    channels = editor.type(group[0]).shape[1]
    windows = [editor.type(reader.inputs[1]).shape[-1] for reader in readers if isinstance(reader.op, Conv)]
    if wish != "always" and channels < WHOLE and max(windows, default=1) > 1:
        return "so few are gathered by im2col, which copies them anyway"
    if not _stays_finite(editor, group):
        return "the padding would not stay a small finite number"
    return None


def _cannot_make(editor: GraphEditor, node: Node) -> str | None:
    """Why the node cannot compute padded channels, None where it can."""
    is_product = isinstance(node.op, Conv | MatMul)
    if is_product and not _is_product(editor, node):
        return f"a {node.op.kind} with groups, of more than two axes, or with weights that are not constant"
    if not is_product and not isinstance(node.op, Pool | Activation | Binary):
        return node.op.kind
    constants = [] if is_product else [*node.op_inputs]
    constants += [node.inputs[stage.operand] for stage in node.epilogue if stage.operand is not None]
    tied = set(_tied(editor, node))
    for name in constants:
        array = editor.constant(name)
        if name not in tied and (array is None or array.size != 1) and not _is_a_channel(editor, node, name):
            return f"with '{name}' of other channels"
    return None


def _is_a_channel(editor: GraphEditor, node: Node, name: str) -> bool:
    """True for a constant with a number for each of the channels that an elementwise node makes."""
    out, shape = editor.type(node.outputs[0]), editor.type(name).shape
    axis = len(shape) - (out.rank - 1)
    if not isinstance(node.op, Activation | Binary) or not editor.is_constant(name) or axis < 0 or prod(shape) == 1:
        return False
    return shape[axis] == out.shape[1] and prod(shape) == out.shape[1]


def _stays_finite(editor: GraphEditor, group: Sequence[str]) -> bool:
    """True where the padding, which begins as zero, is finite and small behind every node that makes a value."""
    lanes: dict[str, float] = {}

    def lane(name: str) -> Array:
        array = editor.constant(name)
        if array is None:
            return np.full(1, lanes[name], np.float64)
        # What is one number a channel is padded with zeros.
        return np.full(1, array.reshape(()) if array.size == 1 else 0.0, np.float64)

    for node in editor.nodes():
        if node.outputs[0] not in group:
            continue
        with np.errstate(all="ignore"):
            found = np.zeros(1)
            if isinstance(node.op, Activation | Binary):
                (found,) = node.op.evaluate([lane(name) for name in node.op_inputs])
            elif isinstance(node.op, Pool):
                found = lane(node.inputs[0])
            for stage in node.epilogue:
                sides = [found] if stage.operand is None else [found, lane(node.inputs[stage.operand])]
                (found,) = stage.op.evaluate(sides[::-1] if stage.swapped else sides)
        lanes[node.outputs[0]] = float(np.asarray(found).reshape(-1)[0])
    return all(abs(value) <= _LARGEST for value in lanes.values())


def _gain(editor: GraphEditor, group: Sequence[str], readers: Sequence[Node], padded: int, to: int) -> str:
    """What padding costs and saves, in bytes of half precision."""

    def nbytes(value: str, channels: int) -> int:
        shape = editor.type(value).shape
        return 2 * shape[0] * channels * prod(shape[2:])

    channels = editor.type(group[0]).shape[1]
    more = sum(nbytes(value, padded - channels) for value in group)
    copied = sum(nbytes(reader.inputs[0], padded) for reader in readers)
    names = ", ".join(f"'{reader.name}'" for reader in readers)
    if to != WHOLE:
        return f"{more} bytes more are stored, so that {names} can load {to} elements at once"
    return f"{more} bytes more are stored, and no copies of {copied} bytes are made for {names}"


def _pad(editor: GraphEditor, group: Sequence[str], readers: Sequence[Node], padded: int) -> None:
    """Every node that makes or takes the group's values does so with padded channels."""
    names = {}
    for value in group:
        type = editor.type(value)
        shape = (type.shape[0], padded, *type.shape[2:])
        names[value] = editor.new_value(f"{value}.padded", TensorType(type.dtype, shape))
    taking = {reader.name for reader in readers}
    for old in editor.nodes():
        makes, takes = old.outputs[0] in names, old.name in taking
        if not makes and not takes:
            continue
        inputs = list(old.inputs)
        if isinstance(old.op, Conv | MatMul):
            by_columns = isinstance(old.op, MatMul) and not old.op.transpose_b
            filters, channels = editor.type(inputs[1]).shape[1::-1] if by_columns else editor.type(inputs[1]).shape[:2]
            size = padded if makes else filters, padded if takes else channels
            inputs[1] = _widened(editor, inputs[1], size[::-1] if by_columns else size)
            if makes and len(old.op_inputs) > 2:
                inputs[2] = _widened(editor, inputs[2], (padded,))
        elif makes:
            inputs = [
                _channels_widened(editor, each, padded) if _is_a_channel(editor, old, each) else each for each in inputs
            ]
        inputs = [names.get(name, name) for name in inputs]
        outputs = tuple(names.get(name, name) for name in old.outputs)
        editor.replace(old, replace(old, inputs=tuple(inputs), outputs=outputs))


def _widened(editor: GraphEditor, name: str, size: tuple[int, ...]) -> str:
    """The constant with its first axes filled up with zeros to `size`."""
    array, type = editor.constant(name), editor.type(name)
    assert array is not None
    shape = (*size, *array.shape[len(size) :])
    wide = np.zeros(shape, array.dtype)
    wide[tuple(slice(extent) for extent in array.shape)] = array
    return editor.new_constant(f"{name.removesuffix('.padded')}.padded", wide, type.dtype)


def _channels_widened(editor: GraphEditor, name: str, padded: int) -> str:
    """The constant with a number for each channel, and zeros for the padding."""
    shape = editor.type(name).shape
    axis = next(place for place, extent in enumerate(shape) if extent > 1)
    return _widened(editor, name, (*shape[:axis], padded))


def _loads_whole(target: Target, precision: str) -> bool:
    """Kernels of tensor cores load 16 bytes at once."""
    return target.gpu is not None and target.gpu.instruction(precision) is not None


_VOLUME = 5
PAD_VOLUMES = Pass("pad-channels", by_padding=partial(_run, ranks=(_VOLUME,)), pays_on=_loads_whole)
PAD_CHANNELS = Pass("pad-channels", by_padding=partial(_run, ranks=range(_VOLUME)), pays_on=_loads_whole)
