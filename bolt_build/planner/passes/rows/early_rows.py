"""Computes only those rows of which something is read later.

Vision transformers classify by one token: of what the last layer makes of the other 196, nothing is read. So what takes
the token is moved in front of products, normalisations, activations and sums, as far as they work row by row, and of
slices of columns where the same rows are taken of all of them: of both sides of a gate.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import step_back

LEAST_GAIN = 2
"""So many times fewer rows must be left: what takes them costs a step of its own."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SELECT_EARLY.name)
    waiting = [node.name for node in editor.nodes()]
    made: dict[tuple[str, Slice], str] = {}
    while waiting:
        node = editor.node(waiting.pop())
        taken = None if node is None else _taken(editor, node)
        if node is None or taken is None:
            continue
        source = editor.producer(node.inputs[0])
        axes = tuple(axis for axis, count in enumerate(taken.count) if count != editor.type(node.inputs[0]).shape[axis])
        if source is None:
            continue
        if (obstacle := editor.not_private(node.inputs[0])) is not None:
            if _is_of_rows(editor, source, axes):
                journal.declined(node.name, f"stays behind '{source.name}': {obstacle}")
            continue
        sides = _sides(editor, source, taken)
        if not sides and not _is_of_rows(editor, source, axes):
            continue
        waiting += sides
        waiting += _moved_in_front(editor, node, source, taken, made)
        journal.did(node.name, "moved", f"in front of '{source.name}', of which nothing else is read")
    return journal.result(editor.finish())


def _taken(editor: GraphEditor, node: Node) -> Slice | None:
    """What the node takes of its input where that is some neighbouring rows: few of all, and whole ones."""
    op = step_back(editor, node)
    if not isinstance(op, Slice) or editor.is_constant(node.inputs[0]):
        return None
    shape = editor.type(node.inputs[0]).shape
    rows = len(shape) > 1 and op.count[-1] == shape[-1] and all(step == 1 for step in op.step)
    before, after = 1, 1
    for extent, count in zip(shape, op.count, strict=True):
        before, after = before * extent, after * count
    return op if rows and 0 < after * LEAST_GAIN <= before else None


def _is_of_rows(editor: GraphEditor, node: Node, axes: tuple[int, ...]) -> bool:
    """Whether what the node gives at a place along `axes` follows from its inputs at the same place alone."""
    out = editor.type(node.outputs[0])
    if node.epilogue or len(node.outputs) != 1 or out.rank - 1 in axes:
        return False
    match node.op:
        case Activation():
            return True
        case MatMul(transpose_a):
            constant = all(editor.is_constant(name) for name in node.inputs[1:])
            return not transpose_a and constant and editor.type(node.inputs[1]).rank == 2
        case Norm(_, normalised, _, groups):
            by_column = all(editor.type(name).rank <= 1 for name in node.inputs[1:])
            return groups == 1 and not set(axes) & set(normalised) and by_column
        case Binary():
            same = [editor.type(name).shape == out.shape for name in node.inputs]
            return any(same) and all(
                alike or editor.type(name).rank <= 1 for alike, name in zip(same, node.inputs, strict=True)
            )
    return False


def _sides(editor: GraphEditor, source: Node, taken: Slice) -> list[str]:
    """Where the source is one of several slices of columns of which all the same rows are taken: what takes them."""
    if not _cuts_columns(editor, source):
        return []
    found = []
    for side in editor.readers(source.inputs[0]):
        reader = side
        if _cuts_columns(editor, side):
            if editor.not_private(side.outputs[0]) is not None:
                return []
            (reader,) = editor.readers(side.outputs[0])
            found.append(reader.name)
        rows = _taken(editor, reader)
        if rows is None or (rows.begin[:-1], rows.count[:-1]) != (taken.begin[:-1], taken.count[:-1]):
            return []
    return found


def _cuts_columns(editor: GraphEditor, node: Node) -> bool:
    """Whether a node takes some columns of all rows."""
    if not isinstance(node.op, Slice) or node.epilogue:
        return False
    shape, op = editor.type(node.inputs[0]).shape, node.op
    return op.count[:-1] == shape[:-1] and op.count != shape and not any(op.begin[:-1])


def _moved_in_front(
    editor: GraphEditor, node: Node, source: Node, taken: Slice, made: dict[tuple[str, Slice], str]
) -> list[str]:
    """`source` of what is taken of its inputs; the names of the nodes that may take something now.

    Whatever takes rows of a tensor stands right behind what gives it, so that everybody can read them.
    """
    shape = editor.type(source.outputs[0]).shape
    inputs, here = [], list[Node]()
    for index, name in enumerate(source.inputs):
        whole = editor.type(name).shape
        if (isinstance(source.op, MatMul | Norm) and index > 0) or whole[:-1] != shape[:-1]:
            inputs.append(name)
            continue
        op = replace(taken, count=(*taken.count[:-1], whole[-1]))
        known = made.get((name, op))
        if known is None or editor.producer(known) is None:
            (type_,) = op.infer([editor.type(name)])
            known = made[(name, op)] = editor.new_value(f"{name}.taken", type_)
            called = f"{source.name}.rows" if index == 0 else f"{source.name}.rows.{index}"
            taking = Node(editor.free_node_name(called), op, (name,), (known,))
            producer = editor.producer(name)
            if producer is None:
                here.append(taking)
            else:
                editor.replace(producer, producer, taking)
        inputs.append(known)
    own = source.op
    if isinstance(own, Slice):  # of columns, of the rows that are left
        own = replace(own, count=(*taken.count[:-1], own.count[-1]))
    (type_,) = own.infer([editor.type(name) for name in inputs])
    fits = type_ == editor.type(node.outputs[0])
    output = node.outputs[0] if fits else editor.new_value(f"{source.name}.taken", type_)
    rows = replace(source, op=own, inputs=tuple(inputs), outputs=(output,), covers=joined(source.covers, node.covers))
    behind = [] if fits else [Node(node.name, Reshape(editor.type(node.outputs[0]).shape), (output,), node.outputs)]
    editor.remove(node)
    editor.replace(source, *here, rows, *behind)
    return [reader.name for name in source.inputs for reader in editor.readers(name)]


SELECT_EARLY = Pass("select-early", _run)
