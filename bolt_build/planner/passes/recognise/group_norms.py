"""Recognises the normalisation of groups of channels that torch-script writes for GroupNorm: a reshape that makes a row
of each group, the normalisation of rows, the reshape back, and a scale and a bias a channel.

Rows of groups lie in planes, so images with channels last would be brought into planes and back around each of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import channel_vector
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_GROUP_NORMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Norm) or node.epilogue:
            continue
        apart, back = editor.producer(node.inputs[0]), _only_reader(editor, node.outputs[0])
        if apart is not None and back is not None and _are_groups(editor, apart, node, back):
            _replace(editor, journal, apart, node, back)
    return journal.result(editor.finish())


def _only_reader(editor: GraphEditor, value: str) -> Node | None:
    """The node that alone reads the value, where it has no epilogue."""
    readers = editor.readers(value)
    return readers[0] if readers and editor.not_private(value) is None and not readers[0].epilogue else None


def _are_groups(editor: GraphEditor, apart: Node, norm: Node, back: Node) -> bool:
    """Whether the normalisation is of whole groups of channels of what `apart` reshapes, and `back` undoes that."""
    if not isinstance(apart.op, Reshape) or not isinstance(back.op, Reshape) or apart.epilogue:
        return False
    image, rows = editor.type(apart.inputs[0]).shape, editor.type(norm.inputs[0]).shape
    if editor.type(back.outputs[0]).shape != image or len(image) < 3 or len(rows) < 3:
        return False
    if not isinstance(norm.op, Norm) or norm.op.groups != 1 or norm.op.axes != tuple(range(2, len(rows))):
        return False
    if rows[0] != image[0] or image[1] % rows[1] or rows == image:
        return False
    return all(
        (array := editor.constant(name)) is not None
        and channel_vector(array, editor.type(norm.inputs[0]), 1) is not None
        for name in norm.inputs[1:]
    )


def _replace(editor: GraphEditor, journal: Journal, apart: Node, norm: Node, back: Node) -> None:
    assert isinstance(norm.op, Norm)
    (x,), rows, image = apart.inputs, editor.type(norm.inputs[0]), editor.type(back.outputs[0])
    groups, channels = rows.shape[1], image.shape[1]
    scale, shift = np.ones(channels), np.zeros(channels)
    for index, name in enumerate(norm.inputs[1:]):
        array = editor.constant(name)
        assert array is not None
        by_group = channel_vector(array, rows, 1)
        assert by_group is not None
        spread = np.repeat(by_group, channels // groups)
        scale, shift = (scale * spread, shift) if index == 0 else (scale, shift + spread)
    last, covers = back, joined(apart.covers, norm.covers, back.covers)
    while (reader := _only_reader(editor, last.outputs[0])) is not None:
        vector = _by_channel(editor, reader, last.outputs[0])
        if vector is None or not isinstance(reader.op, Binary):
            break
        scale, shift = (scale * vector, shift * vector) if reader.op.function == "mul" else (scale, shift + vector)
        editor.remove(last)
        last, covers = reader, joined(covers, reader.covers)
    shape, made = (channels, *(1,) * (image.rank - 2)), []
    for label, array in (("scale", scale), ("shift", shift)):
        rounded = narrowed(array, held_dtype(image.dtype)).reshape(shape)
        made.append(editor.new_constant(f"{norm.name}.{label}", rounded, image.dtype))
    op = replace(norm.op, axes=tuple(range(1, image.rank)), groups=groups)
    editor.replace(last, Node(last.name, op, (x, *made), last.outputs, covers=covers))
    editor.prune([norm.outputs[0]])
    what = f"{channels} channels in {groups} group" + "s" * (groups > 1)
    journal.did(last.name, "recognised group norm", what)


def _by_channel(editor: GraphEditor, reader: Node, value: str) -> Array | None:
    """The numbers a channel that the node multiplies `value` with, or adds to it; None where it does something else."""
    if not isinstance(reader.op, Binary) or reader.op.function not in ("mul", "add"):
        return None
    array = editor.constant(next(name for name in reader.inputs if name != value))
    if array is None or editor.type(reader.outputs[0]) != editor.type(value):
        return None
    return channel_vector(array, editor.type(value), 1)


RECOGNISE_GROUP_NORMS = Pass("recognise-group-norms", _run)
