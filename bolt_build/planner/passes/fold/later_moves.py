"""Does arithmetic before the transpose that makes channels the second axis, where a product is in front of it: so it
can be part of the product. ConvNeXt's blocks end like this: product, transpose, one factor a channel, residual.

Activations take any order of elements, so they go in front of all moves behind a product or a normalisation. Models
that normalise channels last bring them back before the activation, as timm's LayerNormAct2d does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_LATER.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None:
            continue
        if isinstance(node.op, Activation) and not node.epilogue:
            _activate_first(editor, journal, node)
            continue
        product = editor.producer(node.inputs[0])
        if not _moves_channels(node) or product is None or not isinstance(product.op, MatMul):
            continue
        obstacle = editor.not_private(product.outputs[0], node.outputs[0])
        if obstacle is None:
            _sink(editor, journal, node)
        elif any(isinstance(reader.op, Binary) for reader in editor.readers(node.outputs[0])):
            journal.declined(node.name, f"what follows it stays behind it: {obstacle}")
    return journal.result(editor.finish())


def _activate_first(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """Brings an activation in front of the moves that it reads, to the product or the normalisation behind which they
    stand."""
    moves, value = list[Node](), node.inputs[0]
    while editor.not_private(value) is None and (move := editor.producer(value)) is not None:
        if not isinstance(move.op, Transpose | Reshape) or move.epilogue:
            break
        moves.append(move)
        value = move.inputs[0]
    if not any(isinstance(move.op, Transpose) for move in moves) or editor.not_private(value) is not None:
        return
    source = editor.producer(value)
    if source is None or not isinstance(source.op, MatMul | Norm):
        return
    last = editor.new_value(f"{node.outputs[0]}.before", editor.type(value))
    behind = [replace(node, inputs=(value,), outputs=(last,))]
    for move in reversed(moves):
        made = node.outputs[0]
        if move is not moves[0]:
            made = editor.new_value(f"{node.outputs[0]}.before", editor.type(move.outputs[0]))
        behind.append(replace(move, inputs=(last,), outputs=(made,)))
        last = made
    for move in moves:
        editor.remove(move)
    editor.replace(node, *behind)
    journal.did(node.name, "computed before", f"what moves channels, where '{source.name}' can do it")


def _moves_channels(node: Node) -> bool:
    """Whether a node makes the last axis the second one."""
    if not isinstance(node.op, Transpose) or node.epilogue:
        return False
    rank = len(node.op.perm)
    return rank > 2 and node.op.perm == (0, rank - 1, *range(1, rank - 1))


def _sink(editor: GraphEditor, journal: Journal, move: Node) -> None:
    """Brings the arithmetic that reads what a transpose leaves in front of it, one operator after the other."""
    while editor.not_private(move.outputs[0]) is None:
        (reader,) = editor.readers(move.outputs[0])
        if not isinstance(reader.op, Binary) or reader.epilogue:
            return
        left = reader.inputs[0] == move.outputs[0]
        other = reader.inputs[1 if left else 0]
        found = _other_way(editor, move, reader, other)
        if isinstance(found, str):
            journal.declined(reader.name, f"behind the transpose '{move.name}': {found}")
            return
        operand, before = found
        x = move.inputs[0]
        between = editor.new_value(f"{reader.outputs[0]}.before", editor.type(x))
        inputs = (x, operand) if left else (operand, x)
        first = replace(reader, inputs=inputs, outputs=(between,))
        behind = replace(move, inputs=(between,), outputs=reader.outputs)
        editor.remove(move)
        editor.replace(reader, *before, first, behind)
        journal.did(reader.name, "computed before", f"the transpose '{move.name}', where a product can do it")
        move = behind


def _other_way(editor: GraphEditor, move: Node, reader: Node, other: str) -> tuple[str, tuple[Node, ...]] | str:
    """The other operand in the order that the transpose reads, and the nodes that make it; or why there is none."""
    assert isinstance(move.op, Transpose)
    there = editor.type(move.outputs[0])
    back = (0, *range(2, there.rank), 1)
    if editor.type(reader.outputs[0]) != there:
        return f"the result is {list(editor.type(reader.outputs[0]).shape)}"
    array = editor.constant(other)
    if array is not None:
        wide = array.reshape((1,) * (there.rank - array.ndim) + array.shape).transpose(back)
        kept = next((axis for axis, extent in enumerate(wide.shape) if extent != 1), there.rank - 1)
        plain = np.ascontiguousarray(wide.reshape(wide.shape[kept:]))
        return editor.new_constant(f"{other}.before", plain, editor.type(other).dtype), ()
    if editor.type(other) != there:
        return f"'{other}' is {list(editor.type(other).shape)}"
    producer = editor.producer(other)
    # What a convolution leaves lies channels last, and what was moved so undoes this move.
    if producer is None or not (isinstance(producer.op, Conv) or producer.op == move.op):
        return f"'{other}' is neither a convolution's result nor moved likewise"
    name = editor.free_node_name(f"{reader.name}.residual")
    types = Transpose(back).infer([there])
    value = editor.new_value(f"{other}.before", types[0])
    return value, (Node(name, Transpose(back), (other,), (value,)),)


MOVE_LATER = Pass("move-later", _run)
