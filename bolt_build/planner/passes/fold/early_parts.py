"""Normalises and activates the parts of a concatenation in front of it, where each is a convolution's own result.

A BatchNorm behind a concatenation is no convolution's: it would be a pass over memory, with the activation behind it.
For each part it is folded into the weights of the convolution, and the activation is in its epilogue. For example
windows of several sizes side by side, as in MixNet, and the two halves of a cross-stage block.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.fuse.epilogues import IN_KERNEL
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(NORM_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Concat) or node.op.axis != 1:
            continue
        while (reader := _reader(editor, node)) is not None:
            if (obstacle := _obstacle(editor, node)) is not None:
                journal.declined(reader.name, obstacle)
                break
            node = _lift(editor, node, reader)
            journal.did(reader.name, "computed before", f"the concatenation '{node.name}', part by part")
    return journal.result(editor.finish())


def _reader(editor: GraphEditor, concat: Node) -> Node | None:
    """What alone reads the concatenation, where a convolution in front of it could do that: a BatchNorm of constants,
    or an activation."""
    readers = editor.readers(concat.outputs[0])
    if len(readers) != 1 or readers[0].epilogue or editor.not_private(concat.outputs[0]) is not None:
        return None
    (reader,) = readers
    if isinstance(reader.op, BatchNorm):
        return reader if all(map(editor.is_constant, reader.inputs[1:])) else None
    return reader if isinstance(reader.op, Activation) and reader.op.function in IN_KERNEL else None


def _obstacle(editor: GraphEditor, concat: Node) -> str | None:
    """Why the parts stay as they are: one of them is no convolution's alone, or computed further already."""
    for name in concat.inputs:
        value, node = name, editor.producer(name)
        while node is not None and isinstance(node.op, BatchNorm | Activation) and not node.epilogue:
            if (obstacle := editor.not_private(value)) is not None:
                return obstacle
            (value,) = node.inputs[:1]
            node = editor.producer(value)
        if node is None or not isinstance(node.op, Conv):
            return f"'{name}' is no result of a convolution"
        if (obstacle := editor.not_private(value) or weight_obstacle(editor, node)) is not None:
            return obstacle
    return None


def _lift(editor: GraphEditor, concat: Node, reader: Node) -> Node:
    """The concatenation of what the reader makes of each part."""
    begin, made = 0, list[Node]()
    for part in concat.inputs:
        type_ = editor.type(part)
        channels = slice(begin, begin + type_.shape[1])
        inputs = [part]
        for name in reader.inputs[1:]:
            array = editor.constant(name)
            assert array is not None
            inputs.append(editor.new_constant(f"{name}.part", array[channels], editor.type(name).dtype))
        label = f"{reader.name}.{len(made)}"
        value, name = editor.new_value(label, type_), editor.free_node_name(label)
        made.append(Node(name, reader.op, tuple(inputs), (value,), covers=reader.covers))
        begin = channels.stop
    whole = replace(concat, inputs=tuple(node.outputs[0] for node in made), outputs=reader.outputs)
    editor.remove(reader)
    editor.replace(concat, *made, whole)
    return whole


NORM_PARTS = Pass("norm-parts", _run)
