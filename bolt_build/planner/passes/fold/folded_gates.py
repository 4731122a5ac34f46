"""Folds constants that a gated product is multiplied by into the product's weights: (W x + b) g c is (c W x + c b) g.

NFNets scale what squeeze and excitation leaves, twice. Behind a gate no weight would take it otherwise.
"""

from __future__ import annotations

from functools import partial

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.patterns.image_numbers import numbers_of
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import (
    channel_axis,
    channel_vector,
    folded_inputs,
    scale_obstacle,
    weight_obstacle,
)
from bolt_build.planner.rewrite import GraphEditor, joined

_MUL = Binary("mul")


def _run(graph: Graph, *, fp16: bool) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_GATED.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and node.op == _MUL and not node.epilogue:
            _fold(editor, journal, node, fp16=fp16)
    return journal.result(editor.finish())


def _fold(editor: GraphEditor, journal: Journal, node: Node, *, fp16: bool) -> None:
    """The node as part of the gate in front of it, where that gates a product alone."""
    found = _gated(editor, node)
    if found is None:
        return
    gate, product, constant, scale = found
    obstacle = editor.not_private(*gate.outputs, *product.outputs) or weight_obstacle(editor, product)
    if obstacle is None and fp16:
        obstacle = scale_obstacle(constant, scale)
    if obstacle is not None:
        journal.declined(node.name, obstacle)
        return
    (value,) = product.outputs
    scaled = editor.new_value(f"{value}.scaled", editor.type(value))
    inputs = folded_inputs(editor, product, scale, None)
    editor.replace(product, Node(product.name, product.op, inputs, (scaled,), covers=product.covers))
    others = tuple(scaled if name == value else name for name in gate.inputs)
    editor.remove(gate)
    editor.replace(node, Node(node.name, _MUL, others, node.outputs, covers=joined(gate.covers, node.covers)))
    journal.did(node.name, "folded", f"into the weights of '{product.name}', which '{gate.name}' gates")


def _gated(editor: GraphEditor, node: Node) -> tuple[Node, Node, Array, Array] | None:
    """The gate in front of a multiplication by a constant of each channel or of all, the product that it gates, the
    constant, and it for each channel; None where there is none."""
    at = next((index for index, name in enumerate(node.inputs) if editor.is_constant(name)), None)
    gate = None if at is None else editor.producer(node.inputs[1 - at])
    if at is None or gate is None or gate.op != _MUL or gate.epilogue:
        return None
    for value in gate.inputs:
        product = editor.producer(value)
        if product is None or not isinstance(product.op, Conv | MatMul):
            continue
        type_ = editor.type(value)
        axis, constant = channel_axis(product, type_), editor.constant(node.inputs[at])
        scale = None if constant is None else channel_vector(constant, type_, axis)
        same = editor.type(node.outputs[0]) == type_
        if constant is not None and scale is not None and same and numbers_of(editor, gate, value, axis) is not None:
            return gate, product, constant, scale
    return None


FOLD_GATED = Pass("fold-gated", partial(_run, fp16=False), in_fp16=partial(_run, fp16=True))
