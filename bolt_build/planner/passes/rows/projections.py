"""Computes an attention's queries, keys and values with one product where they are products of one input.

One product of three times the columns fills a GPU better than three, and reads its input once. Its rows are what packed
attention reads, so nothing is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Stored
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined

SUFFIX = ".projections"
"""Behind the name of the first of the weights, and of the biases, that have become one."""


@dataclass(frozen=True)
class Projection:
    """One operand of an attention: the product, and the reshape of its rows where there is one."""

    product: Node
    reshape: Node | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.product,) if self.reshape is None else (self.product, self.reshape)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_PROJECTIONS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Attention) or node.op.packed:
            continue
        found = [projection(editor, name) for name in node.inputs[:3]]
        projections = [each for each in found if each is not None]
        if len(projections) < 3:
            at = next(name for name, each in zip(node.inputs, found, strict=False) if each is None)
            journal.declined(node.name, f"'{at}' is no product of rows with a weight")
            continue
        obstacle = _obstacle(editor, node, projections)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        merged = _merge(editor, node, projections)
        names = ", ".join(f"'{each.product.name}'" for each in projections)
        journal.did(node.name, "merged", f"{names} into the product '{merged.name}'")
    return journal.result(editor.finish())


def projection(editor: GraphEditor, value: str) -> Projection | None:
    """The product that gives the rows of `value`, with a reshape behind it that keeps the rows whole."""
    node, reshape = editor.producer(value), None
    if node is not None and isinstance(node.op, Reshape) and not node.epilogue:
        if editor.type(value).shape[-1] != editor.type(node.inputs[0]).shape[-1]:
            return None
        node, reshape = editor.producer(node.inputs[0]), node
    if node is None or not isinstance(node.op, MatMul):
        return None
    return Projection(node, reshape)


def _obstacle(editor: GraphEditor, attention: Node, projections: list[Projection]) -> str | None:
    """Why the products cannot be one; None where they can."""
    op = attention.op
    assert isinstance(op, Attention)
    first = projections[0].product
    for each in projections:
        for node in each.nodes:
            if (why := editor.not_private(node.outputs[0])) is not None:
                return why
        if (why := weight_obstacle(editor, each.product)) is not None:
            return why
        if each.product.inputs[0] != first.inputs[0]:
            return f"'{first.name}' and '{each.product.name}' read different tensors"
        assert isinstance(each.product.op, MatMul)
        assert isinstance(first.op, MatMul)
        if each.product.op.transpose_a != first.op.transpose_a:
            return f"'{first.name}' and '{each.product.name}' read '{first.inputs[0]}' in different orders"
        if (each.reshape is None) != (projections[0].reshape is None):
            return f"only one of '{first.name}' and '{each.product.name}' has a reshape behind it"
    shape = op.extents([editor.type(name) for name in attention.inputs])
    if shape.columns != shape.depth:
        return f"heads have {shape.depth} elements in queries and keys, {shape.columns} in values"
    return None


def _merge(editor: GraphEditor, attention: Node, projections: list[Projection]) -> Node:
    """One product in the place of the last of the three, and the attention that reads it."""
    merged, packed, made = one_product(editor, attention, projections)
    for each in projections:
        for node in each.nodes:
            editor.remove(node)
    assert isinstance(attention.op, Attention)
    reader = replace(attention, op=replace(attention.op, packed=True), inputs=(packed, *attention.inputs[3:]))
    editor.replace(attention, *made, reader)
    return merged


def one_product(
    editor: GraphEditor, attention: Node, projections: Sequence[Projection]
) -> tuple[Node, str, list[Node]]:
    """One product for all of these, the value of its rows, and the nodes that make it, still to be put in front of the
    attention."""
    products = [each.product for each in projections]
    weight = _weights(editor, products)
    inputs = [products[0].inputs[0], weight]
    if any(len(product.inputs) > 2 for product in products):
        inputs.append(_biases(editor, products))
    op = products[0].op
    assert isinstance(op, MatMul)
    op = MatMul(op.transpose_a)
    (type_,) = op.infer([editor.type(name) for name in inputs])
    rows = editor.new_value(f"{attention.name}.projections", type_)
    covers = joined(*(node.covers for each in projections for node in each.nodes))
    merged = Node(products[0].name, op, tuple(inputs), (rows,), covers=covers)
    made, packed = [merged], rows
    reshape = projections[0].reshape
    if reshape is not None:
        shape = (*editor.type(reshape.outputs[0]).shape[:-1], type_.shape[-1])
        behind = Reshape(shape)
        packed = editor.new_value(f"{attention.name}.rows", behind.infer([type_])[0])
        made.append(Node(reshape.name, behind, (rows,), (packed,)))
    return merged, packed, made


def _weights(editor: GraphEditor, products: list[Node]) -> str:
    """The weights [K, N] side by side."""
    parts, stored = [], []
    for product in products:
        array, integers = editor.constant(product.inputs[1]), editor.stored(product.inputs[1])
        assert array is not None
        assert isinstance(product.op, MatMul)
        parts.append(array.T if product.op.transpose_b else array)
        if integers is not None:
            stored.append(Transpose((1, 0)).of_stored(integers) if product.op.transpose_b else integers)
    whole = _side_by_side(stored) if len(stored) == len(products) else None
    return _constant(editor, products[0].inputs[1], np.concatenate(parts, axis=1), products[0], whole)


def _side_by_side(parts: list[Stored]) -> Stored | None:
    """Integers of matrices [K, N] as those of one, where each has one scale, or one a column."""
    if len({part.q.dtype for part in parts}) > 1:
        return None
    found: list[list[Array]] = [[], [], []]
    for part in parts:
        for into, array in zip(found, (part.q, part.scale, part.zero), strict=True):
            rows = array.reshape((1,) * (2 - array.ndim) + array.shape)
            if array is not part.q and rows.shape[0] != 1:
                return None
            into.append(np.broadcast_to(rows, (rows.shape[0], part.q.shape[1])))
    return Stored(*(np.concatenate(each, axis=1) for each in found))


def _biases(editor: GraphEditor, products: list[Node]) -> str:
    """The biases behind each other, zeros where a product has none."""
    parts, name = [], ""
    for product in products:
        if len(product.inputs) > 2:
            array = editor.constant(product.inputs[2])
            assert array is not None
            parts.append(array)
            name = name or product.inputs[2]
        else:
            out = editor.type(product.outputs[0])
            parts.append(np.zeros(out.shape[-1], held_dtype(out.dtype)))
    return _constant(editor, name, np.concatenate(parts), products[0])


def _constant(editor: GraphEditor, name: str, array: Array, product: Node, stored: Stored | None = None) -> str:
    dtype = editor.type(product.inputs[1]).dtype
    held = array.astype(held_dtype(dtype), copy=False)
    return editor.new_constant(f"{name}{SUFFIX}", np.ascontiguousarray(held), dtype, stored)


MERGE_PROJECTIONS = Pass("merge-projections", _run)
