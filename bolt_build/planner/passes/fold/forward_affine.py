"""Folds arithmetic with one constant, or one a channel, into the weights of the Convs and MatMuls that read it.

Arithmetic in front of a product is free in weights, where behind an activation it is a pass over memory. For example
networks without normalisation scale what an activation leaves, and StarReLU ends with a scale and a bias.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.affine import scale_and_shift
from bolt_build.planner.passes.fold.channels import SUFFIX, channel_vector, scale_obstacle, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined

FUNCTIONS = ("add", "sub", "mul", "div")


def _run(graph: Graph, *, fp16: bool) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_FORWARD.name)
    # The last of several first: what is in front of it then is read by the product.
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Binary) or node.op.function not in FUNCTIONS or node.epilogue:
            continue
        source = next((at for at, name in enumerate(node.inputs) if editor.constant(name) is None), None)
        if source is not None and len(node.inputs) == 2 and editor.constant(node.inputs[1 - source]) is not None:
            _fold(editor, journal, node, source, fp16=fp16)
    return journal.result(editor.finish())


def _fold(editor: GraphEditor, journal: Journal, node: Node, source: int, *, fp16: bool) -> None:
    (value,), x = node.outputs, node.inputs[source]
    readers, type_ = editor.readers(value), editor.type(value)
    products = [each for each in readers if isinstance(each.op, Conv | MatMul)]
    if not products or len(products) != len(readers) or type_ != editor.type(x):
        return
    obstacle = f"'{value}' is a graph output" if editor.is_output(value) else None
    obstacle = obstacle or next((why for each in products if (why := _obstacle(editor, node, each, source))), None)
    if obstacle is None and fp16:
        constant = editor.constant(node.inputs[1 - source])
        assert constant is not None
        obstacle = scale_obstacle(constant, _affine(editor, node, products[0], source)[0])
    if obstacle is not None:
        journal.declined(node.name, obstacle)
        return
    for product in products:
        scale, shift = _affine(editor, node, product, source)
        editor.replace(product, _folded(editor, product, node, x, scale, shift))
    editor.remove(node)
    names = ", ".join(f"'{each.name}'" for each in products)
    journal.did(node.name, "folded", f"into the weights of {names} behind it")


def _obstacle(editor: GraphEditor, node: Node, product: Node, source: int) -> str | None:
    """Why the product cannot do the arithmetic; None where it can."""
    assert isinstance(node.op, Binary)
    if product.inputs.count(node.outputs[0]) != 1 or product.inputs[0] != node.outputs[0]:
        return f"'{product.name}' reads it otherwise than to multiply it with its weights"
    if (why := weight_obstacle(editor, product)) is not None:
        return why
    if node.op.function == "div" and source == 1:
        return f"'{node.inputs[1]}' is the divisor"
    array, type_ = editor.constant(node.inputs[1 - source]), editor.type(node.outputs[0])
    if array is None or channel_vector(array, type_, _channel(product, type_.rank)) is None:
        return f"'{node.inputs[1 - source]}' is not one number a channel of '{product.name}'"
    if isinstance(product.op, MatMul) and product.op.transpose_a:
        return f"'{product.name}' reads rows as columns"
    if isinstance(product.op, Conv) and any((*product.op.pads_begin, *product.op.pads_end)):
        shifts = node.op.function in ("add", "sub")
        return f"'{product.name}' pads what it reads with zeros" if shifts else None
    return None


def _channel(product: Node, rank: int) -> int:
    return 1 if isinstance(product.op, Conv) else rank - 1


def _affine(editor: GraphEditor, node: Node, product: Node, source: int) -> tuple[Array | None, Array | None]:
    assert isinstance(node.op, Binary)
    array, type_ = editor.constant(node.inputs[1 - source]), editor.type(node.outputs[0])
    assert array is not None
    vector = channel_vector(array, type_, _channel(product, type_.rank))
    assert vector is not None
    return scale_and_shift(node.op.function, vector, source == 0)


def _folded(editor: GraphEditor, product: Node, node: Node, x: str, scale: Array | None, shift: Array | None) -> Node:
    """The product of x * scale + shift: computed in float64 and rounded once."""
    weight, dtype = editor.constant(product.inputs[1]), editor.type(product.inputs[1]).dtype
    assert weight is not None
    inputs = [x, *product.inputs[1:]]
    if scale is not None:
        scaled = weight.astype(np.float64) * _of_weight(product, scale, weight)
        made = narrowed(scaled, held_dtype(dtype))
        inputs[1] = editor.new_constant(_name(product.inputs[1]), made, dtype)
    if shift is not None:
        terms = weight.astype(np.float64) * _of_weight(product, shift, weight)
        rows_first = isinstance(product.op, Conv) or (isinstance(product.op, MatMul) and product.op.transpose_b)
        total = terms.sum(axis=tuple(range(1, terms.ndim)) if rows_first else 0)
        bias = editor.constant(inputs[2]) if len(inputs) > 2 else None
        total = total if bias is None else total + bias.astype(np.float64)
        out = editor.type(product.outputs[0]).dtype
        name = _name(inputs[2]) if bias is not None else f"{product.name}.bias"
        inputs[2:] = [editor.new_constant(name, narrowed(total, held_dtype(out)), out)]
    return replace(product, inputs=tuple(inputs), covers=joined(node.covers, product.covers))


def _of_weight(product: Node, vector: Array, weight: Array) -> Array:
    """One number an input channel, in the form of the weight."""
    if isinstance(product.op, Conv):
        groups = product.op.groups
        of_group = np.repeat(vector.reshape(groups, -1), len(weight) // groups, axis=0)
        return of_group.reshape(*weight.shape[:2], *(1,) * (weight.ndim - 2))
    assert isinstance(product.op, MatMul)
    return vector if product.op.transpose_b else vector[:, None]


def _name(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}{SUFFIX}"


FOLD_FORWARD = Pass("fold-forward", partial(_run, fp16=False), in_fp16=partial(_run, fp16=True))
