"""Leaves rows where they are between two moves that undo each other, with only what works row by row between them.

torch's MultiheadAttention brings sequences to the front, multiplies, and brings images back. A product with a weight
takes rows in any order: so it takes them as they lie, and both transposes are gone. The same holds of normalisations of
rows, activations, and arithmetic with one number a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import Digit, View, grouped, whole


@dataclass(frozen=True)
class _Way:
    """What lies between `source` and the tensor with the same rows in the same order that the last of `nodes` gives."""

    source: str
    nodes: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(CARRY_MOVES.name)
    for old in editor.nodes():
        for reader in editor.readers(old.outputs[0]):  # several products may read what one move brings them
            node = editor.node(old.name)
            if node is None or not _is_move(node) or editor.is_output(node.outputs[0]):
                break
            way = _way(editor, node, reader) if editor.node(reader.name) == reader else None
            if way is not None:
                back = way.nodes[-1]
                _straighten(editor, way)
                journal.did(node.name, "removed", f"'{back.name}' undoes it, and rows alone are computed between them")
    return journal.result(editor.finish())


def _is_move(node: Node) -> bool:
    return isinstance(node.op, Reshape | Transpose) and not node.epilogue


def _way(editor: GraphEditor, first: Node, reader: Node) -> _Way | None:
    """From what `first` moves for `reader`, as far as rows are in order again; None where they never are."""
    nodes = [first]
    while (before := editor.producer(nodes[0].inputs[0])) is not None:
        if not _is_move(before) or not isinstance(before.op, Reshape):
            break
        if editor.not_private(before.outputs[0]) is not None:
            break
        nodes.insert(0, before)
    source = nodes[0].inputs[0]
    if editor.type(source).rank < 2:  # one row: products take matrices
        return None
    view: View | None = whole(editor, source)
    for node in nodes:
        view = _moved(editor, view, node)
    if view is None:
        return None
    at, computed, best = first.outputs[0], False, 0
    while True:
        if _is_move(reader):
            view = _moved(editor, view, reader)
        elif _is_of_rows(editor, reader, at):
            width = editor.type(reader.outputs[0]).shape[-1]
            view, computed = _widened(view, width), True
        else:
            break
        if view is None:
            break
        nodes.append(reader)
        at = reader.outputs[0]
        if computed and _is_move(reader) and _in_order(editor, view) and _pays(editor, source, nodes):
            best = len(nodes)
        if editor.not_private(at) is not None or not editor.readers(at):
            break
        (reader,) = editor.readers(at)
    return _Way(source, tuple(nodes[:best])) if best else None


def _pays(editor: GraphEditor, source: str, nodes: list[Node]) -> bool:
    """Whether a transpose goes, or all moves do."""
    lead, end = editor.type(source).shape[:-1], editor.type(nodes[-1].outputs[0]).shape[:-1]
    return lead == end or any(isinstance(node.op, Transpose) for node in nodes)


def _moved(editor: GraphEditor, view: View | None, node: Node) -> View | None:
    """The view behind the move `node`; None where the last axis is not that of the source any more."""
    if view is None or not view.axes:  # a scalar has no rows
        return None
    last = view.axes[-1]
    view = view.moved(node.op, editor.type(node.outputs[0]).shape)
    return view if view is not None and last and view.axes and view.axes[-1] == last else None


def _widened(view: View, width: int) -> View | None:
    """The view with rows of another width."""
    if width == 1:
        return None
    return replace(view, axes=(*view.axes[:-1], (Digit(width, view.axes[-1][0].axis, 1),)))


def _in_order(editor: GraphEditor, view: View) -> bool:
    """Whether rows stand in the source's order."""
    shape, columns = editor.type(view.source).shape[:-1], view.axes[-1]
    digits = [digit for axis in view.axes[:-1] for digit in axis]
    axes = grouped(digits, shape)
    if axes is None:
        return False
    begin = (0,) * (len(shape) + 1)
    rows = tuple((Digit(size, axis, 1),) if size != 1 else () for axis, size in enumerate(shape))
    return View(view.source, begin, (*axes, columns)) == View(view.source, begin, (*rows, columns))


def _is_of_rows(editor: GraphEditor, node: Node, value: str) -> bool:
    """Whether each row of the node's result follows from the same row of `value`, read once, and constants."""
    if node.epilogue or len(node.outputs) != 1 or node.inputs.count(value) != 1:
        return False
    others = [name for name in node.inputs if name != value]
    if not all(editor.is_constant(name) for name in others):
        return False
    match node.op:
        case Activation():
            return True
        case MatMul(transpose_a):
            return node.inputs[0] == value and not transpose_a and editor.type(node.inputs[1]).rank == 2
        case Norm(_, axes, _, groups):
            last = editor.type(value).rank - 1
            return node.inputs[0] == value and axes == (last,) and groups == 1 and _by_column(editor, others)
        case Binary():
            return editor.type(node.outputs[0]) == editor.type(value) and _by_column(editor, others)
    return False


def _by_column(editor: GraphEditor, names: list[str]) -> bool:
    return all(editor.type(name).rank <= 1 for name in names)


def _straighten(editor: GraphEditor, way: _Way) -> None:
    """What is computed on the way, of the source as it is."""
    output = way.nodes[-1].outputs[0]
    rank = editor.type(way.source).rank
    at, covers, ops = way.source, tuple[str, ...](), [node for node in way.nodes if not _is_move(node)]
    for node in way.nodes[way.nodes.index(ops[0]) :]:
        if _is_move(node):
            editor.remove(node)
    for node in way.nodes:
        covers = joined(covers, node.covers)
        if _is_move(node):
            continue
        old = next(name for name in node.inputs if not editor.is_constant(name))
        inputs = tuple(at if name == old else name for name in node.inputs)
        op = _of_rank(node.op, rank)
        (type_,) = op.infer([editor.type(name) for name in inputs])
        ends = node is ops[-1] and type_ == editor.type(output)
        at = output if ends else editor.new_value(f"{node.name}.in_place", type_)
        made = replace(node, op=op, inputs=inputs, outputs=(at,), covers=covers)
        editor.replace(node, made)
        covers = ()
    if at != output:
        back = way.nodes[-1]
        last = editor.producer(at)
        assert last is not None
        editor.replace(last, last, Node(back.name, Reshape(editor.type(output).shape), (at,), (output,), covers=covers))
    elif covers:
        last = editor.producer(at)
        assert last is not None
        editor.replace(last, replace(last, covers=joined(last.covers, covers)))
    first = next(node for node in way.nodes if not _is_move(node))
    editor.prune([name for name in first.inputs if not editor.is_constant(name)])


def _of_rank(op: Op, rank: int) -> Op:
    return replace(op, axes=(rank - 1,)) if isinstance(op, Norm) else op


CARRY_MOVES = Pass("carry-moves", _run)
