"""Folds arithmetic with one constant, or one a channel, into the weights and bias of the Conv or MatMul before it, or
into the scale and bias of the normalisation before it.

A reshape between them that keeps rows whole is left behind. For example torch's BatchNorm1d takes matrices, so a
product of [images, rows, columns] is flattened for it, and LeViT's blocks would be twice as many steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import (
    channel_axis,
    channel_vector,
    fold_into,
    scale_obstacle,
    weight_obstacle,
)
from bolt_build.planner.rewrite import GraphEditor, joined

FUNCTIONS = ("add", "sub", "mul", "div")


def _run(graph: Graph, *, fp16: bool) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_AFFINE.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        while node is not None and isinstance(node.op, Conv | MatMul) and not node.epilogue:
            _compute_before_reshape(editor, journal, node)
            node = _fold_reader(editor, journal, node, fp16=fp16)
        while node is not None and isinstance(node.op, Norm) and not node.epilogue:
            node = _fold_behind_norm(editor, journal, node)
    return journal.result(editor.finish())


def _fold_reader(editor: GraphEditor, journal: Journal, node: Node, *, fp16: bool) -> Node | None:
    """The node with the arithmetic behind it taken in; None where there is none, or it stays."""
    out = editor.type(node.outputs[0])
    for reader in editor.readers(node.outputs[0]):
        if not isinstance(reader.op, Binary) or reader.op.function not in FUNCTIONS or reader.epilogue:
            continue
        left = reader.inputs[0] == node.outputs[0]
        other = reader.inputs[1 if left else 0]
        array = editor.constant(other)
        vector = None if array is None else channel_vector(array, out, channel_axis(node, out))
        if array is None or vector is None or editor.type(reader.outputs[0]) != out:
            continue
        obstacle = editor.not_private(node.outputs[0]) or weight_obstacle(editor, node)
        if reader.op.function == "div" and not left:
            obstacle = f"'{node.outputs[0]}' is the divisor"
        scale, shift = scale_and_shift(reader.op.function, vector, left)
        if obstacle is None and fp16:
            obstacle = scale_obstacle(array, scale)
        if obstacle is not None:
            journal.declined(reader.name, obstacle)
            continue
        merged = fold_into(editor, node, reader, scale, shift)
        journal.did(reader.name, "folded", f"into the weights of '{node.name}'")
        return merged
    return None


def _fold_behind_norm(editor: GraphEditor, journal: Journal, node: Node) -> Node | None:
    """The normalisation with the arithmetic of its only reader taken in, where its scale and bias, if there are any,
    and the reader's constant are one number a channel, along the second axis or the last; None where they are not."""
    out, reader = editor.type(node.outputs[0]), _only_reader(editor, node.outputs[0])
    if reader is None or not isinstance(reader.op, Binary) or reader.op.function not in FUNCTIONS:
        return None
    left = reader.inputs[0] == node.outputs[0]
    if editor.type(reader.outputs[0]) != out or (reader.op.function == "div" and not left):
        return None
    arrays = [editor.constant(name) for name in (*node.inputs[1:], reader.inputs[1 if left else 0])]
    for axis in dict.fromkeys((1, out.rank - 1)) if out.rank > 1 else ():
        found = [None if array is None else channel_vector(array, out, axis) for array in arrays]
        vectors = [vector for vector in found if vector is not None]
        if len(vectors) < len(arrays):
            continue
        *own, constant = vectors
        scale, shift = scale_and_shift(reader.op.function, constant, left)
        factor, bias = (own[0] if own else np.ones(out.shape[axis])), (own[1] if len(own) > 1 else None)
        if scale is not None:
            factor, bias = factor * scale, None if bias is None else bias * scale
        if shift is not None:
            bias = shift if bias is None else bias + shift
        made, shape = [], (-1, *(1,) * (out.rank - 1 - axis))
        for label, array in (("scale", factor), *((("bias", bias),) if bias is not None else ())):
            held = narrowed(array, held_dtype(out.dtype)).reshape(shape)
            made.append(editor.new_constant(f"{node.name}.{label}", held, out.dtype))
        covers = joined(node.covers, reader.covers)
        merged = replace(node, name=reader.name, inputs=(node.inputs[0], *made), outputs=reader.outputs, covers=covers)
        editor.remove(node)
        editor.replace(reader, merged)
        journal.did(reader.name, "folded", f"into the scale and bias of '{node.name}'")
        return merged
    return None


def _compute_before_reshape(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """Brings arithmetic that could be folded in front of the reshape between it and the product."""
    move = _only_reader(editor, node.outputs[0])
    if not isinstance(node.op, MatMul) or move is None or not isinstance(move.op, Reshape):
        return
    reader, out, rows = _only_reader(editor, move.outputs[0]), *map(editor.type, (node.outputs[0], move.outputs[0]))
    if reader is None or not isinstance(reader.op, Binary) or reader.op.function not in FUNCTIONS:
        return
    left = reader.inputs[0] == move.outputs[0]
    other = reader.inputs[1 if left else 0]
    array = editor.constant(other)
    if array is None or not rows.rank or channel_vector(array, rows, rows.rank - 1) is None:
        return
    if rows.shape[-1] != out.shape[-1] or editor.type(reader.outputs[0]) != rows or weight_obstacle(editor, node):
        return
    between = editor.new_value(f"{reader.outputs[0]}.before", out)
    row = editor.new_constant(f"{other}.row", array.reshape(-1), editor.type(other).dtype)
    inputs = (node.outputs[0], row) if left else (row, node.outputs[0])
    behind = replace(move, inputs=(between,), outputs=reader.outputs)
    editor.remove(move)
    editor.replace(reader, replace(reader, inputs=inputs, outputs=(between,)), behind)
    journal.did(reader.name, "computed before", f"the reshape '{move.name}', where a product can do it")


def _only_reader(editor: GraphEditor, value: str) -> Node | None:
    """The node that alone reads the value, where it has no epilogue."""
    readers = editor.readers(value)
    return readers[0] if readers and editor.not_private(value) is None and not readers[0].epilogue else None


def scale_and_shift(function: str, c: Array, left: bool) -> tuple[Array | None, Array | None]:
    """y = x * scale + shift for x (function) c, or c (function) x where x is not the left side."""
    match function:
        case "add":
            return None, c
        case "sub":
            return (None, -c) if left else (-np.ones_like(c), c)
        case "mul":
            return c, None
    with np.errstate(divide="ignore"):
        return 1 / c, None


FOLD_AFFINE = Pass("fold-affine", partial(_run, fp16=False), in_fp16=partial(_run, fp16=True))
