"""Computes elementwise in front of two transposes that undo each other, where they lie around nothing else.

What broadcasts is transposed instead, which is far smaller. For example decoders give rows of padding zeros behind
attention while heads are in front of rows: `where(seen [N, 1, S, 1], x [N, heads, S, D], 0)` between two transposes of
all heads, as transformers' own exporter writes it.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(CARRY_CHOICES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Where | Binary | Activation) or node.epilogue:
            continue
        around = _around(editor, node)
        if around is not None:
            _carry(editor, node, *around)
            journal.did(node.name, "carried", f"in front of '{around[0].name}', which '{around[1].name}' undoes")
    return journal.result(editor.finish())


def _around(editor: GraphEditor, node: Node) -> tuple[Node, Node] | None:
    """The transposes in front of the node and behind it, which undo each other; None where there are none."""
    (value,) = node.outputs
    shape = editor.type(value).shape
    whole = [name for name in node.inputs if not editor.is_constant(name) and editor.type(name).shape == shape]
    if len(whole) != 1 or editor.not_private(value) is not None or editor.not_private(whole[0]) is not None:
        return None
    first, readers = editor.producer(whole[0]), editor.readers(value)
    if first is None or len(readers) != 1:
        return None
    (back,) = readers
    if not all(isinstance(each.op, Transpose) and not each.epilogue for each in (first, back)):
        return None
    assert isinstance(first.op, Transpose)
    assert isinstance(back.op, Transpose)
    if tuple(first.op.perm[axis] for axis in back.op.perm) != tuple(range(len(shape))):
        return None
    elements = editor.type(value).elements
    others = sum(editor.type(name).elements for name in node.inputs if name != whole[0])
    return (first, back) if 2 * others <= elements else None


def _carry(editor: GraphEditor, node: Node, first: Node, back: Node) -> None:
    assert isinstance(back.op, Transpose)
    (moved,), made = first.outputs, list[Node]()
    inputs = [first.inputs[0] if name == moved else _turned(editor, made, node, name, back.op) for name in node.inputs]
    editor.remove(back)
    covers = joined(first.covers, node.covers, back.covers)
    editor.replace(node, *made, replace(node, inputs=tuple(inputs), outputs=back.outputs, covers=covers))
    editor.prune((moved,))


def _turned(editor: GraphEditor, made: list[Node], node: Node, name: str, back: Transpose) -> str:
    """What broadcasts, with its axes in the order that they have behind `back`."""
    type_ = editor.type(name)
    if type_.elements == 1:
        return name
    own = (1,) * (len(back.perm) - type_.rank) + type_.shape
    shape = tuple(own[axis] for axis in back.perm)
    kept = [axis for axis in back.perm if own[axis] != 1] == [axis for axis, size in enumerate(own) if size != 1]
    ops: list[Op] = (
        [Reshape(shape)] if kept else [*([Reshape(own)] if own != type_.shape else []), Transpose(back.perm)]
    )
    for op in ops:
        (result,) = op.infer([editor.type(name)])
        value = editor.new_value(f"{name}.turned", result)
        made.append(
            Node(editor.free_node_name(f"{node.name}.turned", [each.name for each in made]), op, (name,), (value,))
        )
        name = value
    return name


CARRY_CHOICES = Pass("carry-choices", _run)
