"""Adds one of several constants to queries in the weights of their product, and what the others differ by behind it.

Relative positions of Transformer-XL's kind (XLNet, Funnel, Conformer) add a constant to queries for the scores with
keys, and another one for those with positions. Both sums would be steps of their own, and the product would be one
beside that of keys and values, which does not lie in heads. So the queries that attention reads are the product itself
here, and the others are these plus the difference of the constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import folded_inputs, weight_obstacle
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_EXCHANGE = (0, 2, 1, 3)
"""Of rows and heads."""


@dataclass(frozen=True)
class _Shift:
    """A sum with one number for each column of a product."""

    node: Node
    numbers: Array


@dataclass(frozen=True)
class _Queries:
    """The operand of an attention: a product, what moves its rows, the sum that the attention reads, what moves them
    back, and the other sums. `turned`: heads stand in front of rows in the sums."""

    product: Node
    views: tuple[Node, ...]
    own: _Shift
    rows: tuple[Node, ...]
    others: tuple[_Shift, ...]
    turned: bool


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SHIFT_QUERIES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Attention) or node.op.packed:
            continue
        for value in dict.fromkeys(node.inputs[:3]):
            found = _queries(editor, value)
            if isinstance(found, str):
                journal.declined(node.name, found)
            elif found is not None:
                _shift(editor, found, value)
                names = ", ".join(f"'{each.node.name}'" for each in found.others)
                journal.did(found.own.node.name, "folded", f"into '{found.product.name}', behind which {names} come")
    return journal.result(editor.finish())


def _queries(editor: GraphEditor, value: str) -> _Queries | str | None:
    """What gives the operand where it is one of several sums of a product with constants; why it stays where it is one
    that cannot change; None where it is none."""
    rows, node, turned = _moves(editor, value)
    if node is None or (constant := _constant(editor, node)) is None:
        return None
    (summed,) = (name for name in node.inputs if name != constant)
    views, product, turned_before = _moves(editor, summed)
    readers = editor.readers(summed)
    if product is None or not isinstance(product.op, MatMul) or len(readers) < 2 or turned != turned_before:
        return None
    if turned and not all(isinstance(each.op, Transpose) for each in (views[0], rows[-1])):
        return None  # what a reshape makes of the exchanged axes the other exchange does not undo
    columns = editor.type(product.outputs[0]).shape[-1]
    shifts = [_shift_of(editor, reader, summed, columns, turned) for reader in readers]
    if any(shift is None for shift in shifts) or editor.is_output(summed):
        return f"others than sums with constants of its columns read '{summed}'"
    found = [shift for shift in shifts if shift is not None]
    own = next(shift for shift in found if shift.node is node)
    others = tuple(shift for shift in found if shift.node is not node)
    queries = _Queries(product, views, own, rows, others, turned)
    return _obstacle(editor, queries, value) or queries


def _moves(editor: GraphEditor, value: str) -> tuple[tuple[Node, ...], Node | None, bool]:
    """Reshapes in front of the value, with one exchange of rows and heads among them at most, the last one first; what
    stands in front of these; and whether there is an exchange."""
    found: list[Node] = []
    turned, node = False, editor.producer(value)
    while node is not None and not node.epilogue:
        turns = isinstance(node.op, Transpose) and node.op.perm == _EXCHANGE
        if not isinstance(node.op, Reshape) and (turned or not turns):
            break
        turned = turned or turns
        found.append(node)
        node = editor.producer(node.inputs[0])
    return tuple(found), node, turned


def _obstacle(editor: GraphEditor, queries: _Queries, value: str) -> str | None:
    """Why the sum that the attention reads cannot be the product itself; None where it can."""
    product = queries.product
    assert isinstance(product.op, MatMul)
    if product.op.transpose_a:
        return f"'{product.name}' reads its rows transposed"
    if (why := weight_obstacle(editor, product)) is not None:
        return why
    private = [product, *queries.views[1:]] if queries.views else []
    for node in (*private, *((queries.own.node, *queries.rows[1:]) if queries.rows else ())):
        if (why := editor.not_private(node.outputs[0])) is not None:
            return why
    if editor.type(value).shape[-1] != editor.type(product.outputs[0]).shape[-1]:
        return f"'{value}' has no whole rows of '{product.name}'"
    return None


def _constant(editor: GraphEditor, node: Node) -> str | None:
    """The constant that the node adds to what is none; None where it does something else."""
    if node.op != Binary("add") or node.epilogue:
        return None
    found = [name for name in node.inputs if editor.is_constant(name)]
    return found[0] if len(found) == 1 else None


def _shift_of(editor: GraphEditor, node: Node, summed: str, columns: int, turned: bool) -> _Shift | None:
    """The node as a sum of `summed` with one number for each of so many columns, None where it is none."""
    constant, shape = _constant(editor, node), editor.type(summed).shape
    array = None if constant is None else editor.constant(constant)
    if array is None or editor.type(node.outputs[0]).shape != shape or array.ndim > len(shape):
        return None
    if turned and len(shape) != len(_EXCHANGE):
        return None
    aligned = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if turned:
        aligned, shape = aligned.transpose(_EXCHANGE), tuple(shape[axis] for axis in _EXCHANGE)
    count = next((count for count in range(1, len(shape) + 1) if prod(shape[-count:]) == columns), None)
    if count is None or any(extent != 1 for extent in aligned.shape[: len(shape) - count]):
        return None
    own = aligned.reshape(aligned.shape[len(shape) - count :])
    return _Shift(node, np.broadcast_to(own, shape[-count:]).reshape(-1).astype(np.float64))


def _shift(editor: GraphEditor, found: _Queries, value: str) -> None:
    """The operand as the product with the constant that it had, and the other sums behind it."""
    product, type_ = found.product, editor.type(value)
    inputs = folded_inputs(editor, product, None, found.own.numbers)
    covers = joined(*(node.covers for node in (product, *found.views[::-1], found.own.node, *found.rows[::-1])))
    made = [replace(product, inputs=(_as_rows(editor, inputs[0], type_.shape), *inputs[1:]), outputs=(value,))]
    if editor.type(made[0].inputs[0]).shape[:-1] != type_.shape[:-1]:
        behind = editor.new_value(f"{value}.flat", replace(type_, shape=editor.type(product.outputs[0]).shape))
        made = [replace(made[0], outputs=(behind,))]
        made.append(Node(editor.free_node_name(f"{product.name}.rows"), Reshape(type_.shape), (behind,), (value,)))
    made[0] = replace(made[0], covers=covers)
    removed = (found.own.node, *found.rows, *found.views, product)
    for shift in found.others:
        _difference(editor, found, shift, value)
    last, *rest = removed
    for node in rest:
        editor.remove(node)
    editor.replace(last, *made)
    editor.prune(product.inputs[:1])


def _difference(editor: GraphEditor, found: _Queries, shift: _Shift, value: str) -> None:
    """Another of the sums: the operand with what its constant has more than that of the operand."""
    (output,) = shift.node.outputs
    type_, shape = editor.type(value), editor.type(output).shape
    numbers = narrowed(shift.numbers - found.own.numbers, held_dtype(type_.dtype))
    name = editor.new_constant(f"{output}.difference", numbers, type_.dtype)
    between = editor.new_value(f"{output}.rows", type_)
    chain = Chain(editor, f"{shift.node.name}.apart")
    if found.turned:
        heads = chain.add(Reshape(tuple(shape[axis] for axis in _EXCHANGE)), [between])
        chain.add(Transpose(_EXCHANGE), [heads], output)
    else:
        chain.add(Reshape(shape), [between], output)
    editor.replace(shift.node, replace(shift.node, inputs=(value, name), outputs=(between,)), *chain.nodes)


def _as_rows(editor: GraphEditor, value: str, shape: tuple[int, ...]) -> str:
    """What a reshape made of rows `shape`, where the value is that: what products of keys and values read."""
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Reshape) or node.epilogue:
        return value
    front, own = editor.type(node.inputs[0]).shape, editor.type(value).shape
    return node.inputs[0] if front[:-1] == shape[:-1] and front[-1] == own[-1] else value


SHIFT_QUERIES = Pass("shift-queries", _run, pays_on=on_tensor_cores)
