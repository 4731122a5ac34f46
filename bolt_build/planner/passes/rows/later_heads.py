"""Computes row by row in front of what moves heads, where nothing but the move is read, or behind it.

Linear attention applies an activation to queries and keys once heads are in front of their rows, differential attention
takes a difference of two results and normalises each head. Computed first, an activation is part of the product in
front, and the move is next to the product of two tensors that reads its factors where they lie, or to the move that
undoes it. What a product of two tensors leaves is moved first: it stores its result where it is wanted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Cast, Reshape, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined

_LEAST_RANK = 4
"""Images, heads, rows and the elements of a head."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_HEADS_LATER.name)
    for node in editor.nodes():
        if node.epilogue or len(node.outputs) != 1 or not _by_rows(editor, node):
            continue
        moves = _moves(editor, node)
        if moves:
            _put(editor, node, moves)
            journal.did(node.name, "computed first", f"'{moves[0].name}' moves what it leaves")
        elif (back := _moved_behind(editor, node)) is not None:
            _put_behind(editor, node, back)
            journal.did(node.name, "computed last", f"'{back.name}' moves what it reads")
        now = editor.node(node.name)
        if now is not None and (cut := _cut(editor, now)) is not None:
            _put_uncut(editor, now, cut)
    return journal.result(editor.finish())


def _by_rows(editor: GraphEditor, node: Node) -> bool:
    """Whether each row of the last axis is computed by itself, whatever the order of the others."""
    rank = editor.type(node.outputs[0]).rank
    match node.op:
        case Activation() | Binary() | Where() | Cast():
            return rank >= _LEAST_RANK
        case Softmax(axis):
            return rank >= _LEAST_RANK and axis == rank - 1
        case Norm() as op:
            return rank >= _LEAST_RANK and op.axes == (rank - 1,) and op.groups == 1
    return False


def _moves(editor: GraphEditor, node: Node) -> list[Node]:
    """The transposes that bring whole tensors to the node, all alike: rows stay rows. None where others are large."""
    shape = editor.type(node.outputs[0]).shape
    found, rest = list[Node](), 0
    for index, name in enumerate(node.inputs):
        own = editor.type(name)
        if own.shape != shape or editor.is_constant(name):
            # Parameters of a normalisation have an element a column, or one.
            if isinstance(node.op, Norm) and (index == 0 or any(extent != 1 for extent in own.shape[:-1])):
                return []
            rest += 0 if editor.is_constant(name) else own.elements
            continue
        move = editor.producer(name)
        if move is None or not isinstance(move.op, Transpose) or move.epilogue or name in [x.outputs[0] for x in found]:
            return []
        if move.op.perm[-1] != len(shape) - 1 or editor.is_constant(move.inputs[0]):
            return []
        if editor.not_private(name) is not None or (found and found[0].op != move.op):
            return []
        if _placed(editor, move.inputs[0]):
            return []
        found.append(move)
    return found if 2 * rest <= editor.type(node.outputs[0]).elements else []


def _placed(editor: GraphEditor, value: str) -> bool:
    """Whether a product of two tensors leaves the value, which stores it where a move behind it wants it."""
    node = editor.producer(value)
    while node is not None and isinstance(node.op, Reshape) and not node.epilogue:
        node = editor.producer(node.inputs[0])
    if node is None or not isinstance(node.op, MatMul) or len(node.inputs) != 2:
        return False
    return not all(editor.is_constant(name) and editor.type(name).rank == 2 for name in node.inputs[1:])


def _moved_behind(editor: GraphEditor, node: Node) -> Node | None:
    """The one transpose that reads the node's result, where that is a product's of two tensors and little else."""
    (value,) = node.outputs
    shape = editor.type(value).shape
    whole = [name for name in node.inputs if editor.type(name).shape == shape]
    readers = editor.readers(value)
    if (
        isinstance(node.op, Norm)
        or len(whole) != 1
        or len(readers) != 1
        or editor.not_private(value, whole[0]) is not None
    ):
        return None
    product, (back,) = editor.producer(whole[0]), readers
    if product is None or not isinstance(product.op, MatMul) or product.epilogue or len(product.inputs) != 2:
        return None
    if any(map(editor.is_constant, product.inputs)) or not isinstance(back.op, Transpose) or back.epilogue:
        return None
    rest = sum(editor.type(name).elements for name in node.inputs if name != whole[0])
    few = back.op.perm[-1] == len(shape) - 1 and 2 * rest <= editor.type(value).elements
    return back if few else None


def _put_behind(editor: GraphEditor, node: Node, back: Node) -> None:
    assert isinstance(back.op, Transpose)
    shape, made = editor.type(node.outputs[0]).shape, list[Node]()
    (whole,) = (name for name in node.inputs if editor.type(name).shape == shape)
    (type_,) = back.op.infer([editor.type(whole)])
    moved = editor.new_value(f"{whole}.moved", type_)
    made.append(Node(editor.free_node_name(f"{node.name}.moved"), back.op, (whole,), (moved,)))
    inputs = tuple(moved if name == whole else _turned(editor, made, node, name, back.op.perm) for name in node.inputs)
    editor.remove(back)
    covers = joined(node.covers, back.covers)
    editor.replace(node, *made, replace(node, inputs=inputs, outputs=back.outputs, covers=covers))


def _cut(editor: GraphEditor, node: Node) -> Node | None:
    """The reshape that cuts rows of a product with weights into heads, to which the node applies an activation. One
    that meets a number behind it is one step with that: ELU + 1."""
    if not isinstance(node.op, Activation) or _meets_number(editor, node.outputs[0]):
        return None
    (value,) = node.inputs
    cut = editor.producer(value)
    if cut is None or not isinstance(cut.op, Reshape) or cut.epilogue or editor.not_private(value) is not None:
        return None
    if editor.not_private(cut.inputs[0]) is not None:
        return None
    product = editor.producer(cut.inputs[0])
    if product is not None and isinstance(product.op, Binary):  # its bias
        whole = [name for name in product.inputs if not editor.is_constant(name)]
        product = editor.producer(whole[0]) if len(whole) == 1 else None
    return cut if product is not None and isinstance(product.op, MatMul) and not product.epilogue else None


def _meets_number(editor: GraphEditor, value: str) -> bool:
    """Whether arithmetic with one number follows, behind moves."""
    for node in editor.readers(value):
        if isinstance(node.op, Binary) and any(editor.type(name).elements == 1 for name in node.inputs):
            return True
        if isinstance(node.op, Transpose | Reshape) and _meets_number(editor, node.outputs[0]):
            return True
    return False


def _put_uncut(editor: GraphEditor, node: Node, cut: Node) -> None:
    (whole,), (value,) = cut.outputs, node.outputs
    (type_,) = node.op.infer([editor.type(cut.inputs[0])])
    first = editor.new_value(f"{value}.whole", type_)
    name = editor.free_node_name(f"{node.name}.cut")
    covers = joined(cut.covers, node.covers)
    made = replace(node, inputs=cut.inputs, outputs=(first,), covers=covers)
    editor.replace(node, made, Node(name, Reshape(editor.type(value).shape), (first,), (value,)))
    editor.prune((whole,))


def _put(editor: GraphEditor, node: Node, moves: list[Node]) -> None:
    move = moves[0]
    assert isinstance(move.op, Transpose)
    back = tuple(int(axis) for axis in np.argsort(move.op.perm))
    sources = {each.outputs[0]: each.inputs[0] for each in moves}
    made = list[Node]()
    inputs = tuple(
        sources[name] if name in sources else _turned(editor, made, node, name, back) for name in node.inputs
    )
    (value,) = node.outputs
    (type_,) = node.op.infer([editor.type(name) for name in inputs])
    first = editor.new_value(f"{value}.first", type_)
    covers = joined(*(each.covers for each in moves), node.covers)
    name = editor.free_node_name(f"{node.name}.moved", [each.name for each in made])
    editor.replace(
        node,
        *made,
        replace(node, inputs=inputs, outputs=(first,), covers=covers),
        Node(name, move.op, (first,), (value,)),
    )
    editor.prune(sources)


def _turned(editor: GraphEditor, made: list[Node], node: Node, name: str, back: tuple[int, ...]) -> str:
    """What broadcasts, with its axes as they lie in front of the move."""
    type_ = editor.type(name)
    own = (1,) * (len(back) - type_.rank) + type_.shape
    if all(own[axis] == 1 or axis == place for place, axis in enumerate(back)):
        return name
    constant, stored = editor.constant(name), editor.stored(name)
    if constant is not None and stored is None:
        turned = np.ascontiguousarray(constant.reshape(own).transpose(back))
        return editor.new_constant(f"{name}.turned", turned, type_.dtype)
    for op in (Reshape(own), Transpose(back)):
        if isinstance(op, Reshape) and own == type_.shape:
            continue
        (result,) = op.infer([editor.type(name)])
        value = editor.new_value(f"{name}.turned", result)
        free = editor.free_node_name(f"{node.name}.turned", [each.name for each in made])
        made.append(Node(free, op, (name,), (value,)))
        name = value
    return name


MOVE_HEADS_LATER = Pass("move-heads-later", _run)
