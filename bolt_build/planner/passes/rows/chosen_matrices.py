"""Makes one product of rows with the matrices that indices choose for them: the experts of a mixture.

Exporters multiply rows with all matrices and take what each row's own gave, or gather a matrix for each row. A kernel
multiplies neighbouring rows of one matrix together, and reads each matrix that is chosen once a tile. For example 128
experts of which each token has 8 are sixteen products in the place of one where all are computed, and a gathered matrix
is written and read again for each row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Chosen:
    """`rows`, in the shape [R, K] or one that becomes it, times the matrix of a stack [E, ...] that `index` chooses."""

    rows: str
    stack: str
    index: str
    transpose_b: bool


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(CHOSEN_MATRICES.name)
    for node in editor.nodes():
        if node.epilogue or editor.node(node.name) is None:
            continue
        match node.op:
            case Gather(0):
                found = _of_all(editor, node)
            case MatMul():
                found = _of_gathered(editor, node, node.op)
            case _:
                continue
        if isinstance(found, _Chosen):
            _put(editor, journal, node, found)
        elif found is not None:
            journal.declined(node.name, found)
    return journal.result(editor.finish())


def _of_all(editor: GraphEditor, node: Node) -> _Chosen | str | None:
    """What a gather takes of products with all matrices: the row of the one that its index chooses."""
    every, place = node.inputs
    flat = _inner(editor, every, Reshape)
    product = None if flat is None else editor.producer(flat.inputs[0])
    if flat is None or product is None or not isinstance(product.op, MatMul) or product.epilogue:
        return None
    shape = editor.type(product.outputs[0]).shape
    index = _index_of(editor, place, shape[1]) if len(shape) == 3 else None
    if index is None or editor.type(flat.outputs[0]).shape != (shape[0] * shape[1], shape[2]):
        return None
    if (why := editor.not_private(product.outputs[0])) is not None:
        return f"'{product.name}' multiplies with all matrices, and {why}"
    rows, stack = product.inputs[:2]
    one = editor.type(rows).shape in ((1, *editor.type(rows).shape[-2:]), editor.type(rows).shape[-2:])
    if len(product.inputs) > 2 or product.op.transpose_a or not one or not _is_stack(editor, stack, shape[0]):
        return f"'{product.name}' is no product of rows with a stack of matrices"
    return _Chosen(rows, stack, index, product.op.transpose_b)


def _inner(editor: GraphEditor, value: str, kind: type[Reshape]) -> Node | None:
    """The node that makes a value which nothing else reads, if it is of this kind."""
    node = editor.producer(value)
    if node is None or not isinstance(node.op, kind) or node.epilogue or editor.not_private(value) is not None:
        return None
    return node


def _index_of(editor: GraphEditor, place: str, rows: int) -> str | None:
    """The index of which `place` is so many times as much, plus each row's own number."""
    total = editor.producer(place)
    if total is None or total.op != Binary("add") or total.epilogue:
        return None
    for behind, own in (total.inputs, total.inputs[::-1]):
        numbers, product = editor.constant(own), editor.producer(behind)
        if numbers is None or not np.array_equal(numbers, np.arange(rows)):
            continue
        if product is None or product.op != Binary("mul") or product.epilogue:
            continue
        for index, factor in (product.inputs, product.inputs[::-1]):
            count = editor.constant(factor)
            if count is not None and count.size == 1 and int(count.reshape(-1)[0]) == rows:
                return index if editor.type(index).shape == (rows,) else None
    return None


def _of_gathered(editor: GraphEditor, node: Node, op: MatMul) -> _Chosen | str | None:
    """A product of single rows with a matrix that was gathered for each, or the other way round."""
    if len(node.inputs) > 2 or op.transpose_a:
        return None
    for side in (1, 0):
        gather, other = editor.producer(node.inputs[side]), node.inputs[1 - side]
        if gather is None or not _takes_matrices(editor, gather) or gather.epilogue:
            continue
        stack, index = gather.inputs
        matrices, rows = (editor.type(each).shape for each in (stack, other))
        if len(matrices) != 3 or len(rows) != 3 or editor.type(index).elements != rows[0]:
            continue
        columns = rows[1] if op.transpose_b else rows[2]
        if not _is_stack(editor, stack, matrices[0]) or (rows[1] if side == 1 else columns) != 1:
            continue
        if (why := editor.not_private(gather.outputs[0])) is not None:
            return f"the matrices of '{gather.name}' are gathered, and {why}"
        # of the transposed product matrices stand on the right: their columns are what was multiplied
        return _Chosen(other, stack, index, op.transpose_b if side == 1 else True)
    return None


def _takes_matrices(editor: GraphEditor, node: Node) -> bool:
    """Whether the node takes slices along the first axis, each by one index."""
    indices = editor.type(node.inputs[1]).shape if len(node.inputs) == 2 else ()
    match node.op:
        case Gather(0):
            return len(indices) == 1
        case GatherND(0):
            return len(indices) == 2 and indices[1] == 1
    return False


def _is_stack(editor: GraphEditor, name: str, count: int) -> bool:
    return editor.is_constant(name) and editor.type(name).rank == 3 and editor.type(name).shape[0] == count


def _put(editor: GraphEditor, journal: Journal, node: Node, found: _Chosen) -> None:
    chain = Chain(editor, f"{node.name}.chosen")
    shape, matrices = editor.type(found.rows).shape, editor.type(found.stack).shape
    op = ChosenMatMul(found.transpose_b)
    depth = matrices[2 if op.transpose_b else 1]
    count = editor.type(found.index).elements
    rows = found.rows if shape == (count, depth) else chain.add(Reshape((count, depth)), [found.rows])
    flat = editor.type(found.index).shape == (count,)
    index = found.index if flat else chain.add(Reshape((count,)), [found.index])
    (value,) = node.outputs
    made = (count, matrices[1 if op.transpose_b else 2])
    if editor.type(value).shape == made:
        last = Node(node.name, op, (rows, found.stack, index), (value,))
    else:
        product = chain.add(op, [rows, found.stack, index])
        last = Node(node.name, Reshape(editor.type(value).shape), (product,), (value,))
    editor.replace(node, *chain.nodes, last)
    removed = editor.prune(node.inputs)
    covers = joined(*(each.covers for each in removed), node.covers)
    product_node = last if isinstance(last.op, ChosenMatMul) else chain.nodes[-1]
    editor.replace(product_node, Node(product_node.name, op, product_node.inputs, product_node.outputs, covers=covers))
    journal.did(
        node.name, "multiplied with chosen matrices", f"{count} rows, {matrices[0]} matrices of {depth}x{made[1]}"
    )


CHOSEN_MATRICES = Pass("chosen-matrices", _run, pays_on=PLACE_PRODUCTS.pays_on)
