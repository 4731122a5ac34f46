"""Folds BatchNorm into the Conv or MatMul before it; one that stands alone becomes a multiplication and an addition."""

from __future__ import annotations

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import fold_into, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor

NO_HOST = "no Conv or MatMul stands before it"


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_BATCH_NORM.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, BatchNorm) or node.epilogue:
            continue
        parameters = [array for array in map(editor.constant, node.inputs[1:]) if array is not None]
        if len(parameters) != 4:
            journal.declined(node.name, "its parameters are not constant")
            continue
        scale, shift = _scale_and_shift(parameters, node.op.epsilon)
        host = editor.producer(node.inputs[0])
        obstacle = _obstacle(editor, host, node)
        if host is not None and obstacle is None:
            fold_into(editor, host, node, scale, shift)
            journal.did(node.name, "folded", f"into the weights of '{host.name}'")
            continue
        _write_out(editor, node, scale, shift)
        journal.did(node.name, "made a multiplication and an addition", obstacle or NO_HOST)
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, host: Node | None, node: Node) -> str | None:
    """Why the node before cannot take the BatchNorm in; None where it can."""
    if host is None or not isinstance(host.op, Conv | MatMul):
        return NO_HOST
    if isinstance(host.op, MatMul) and editor.type(node.inputs[0]).rank != 2:
        return f"the channels of '{host.name}' are not its columns"
    return editor.not_private(node.inputs[0]) or weight_obstacle(editor, host)


def _scale_and_shift(parameters: list[Array], epsilon: float) -> tuple[Array, Array]:
    gamma, beta, mean, variance = (array.astype(np.float64) for array in parameters)
    with np.errstate(divide="ignore", invalid="ignore"):  # a model's own nonsense stays what it is
        scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def _write_out(editor: GraphEditor, node: Node, scale: Array, shift: Array) -> None:
    """y = x * scale + shift as two nodes with constants of shape [C, 1, ...]."""
    type = editor.type(node.outputs[0])
    shape = (type.shape[1], *([1] * (type.rank - 2)))
    names = []
    for label, array in (("scale", scale), ("shift", shift)):
        rounded = narrowed(array, held_dtype(type.dtype)).reshape(shape)
        names.append(editor.new_constant(f"{node.name}.{label}", rounded, type.dtype))
    scaled = editor.new_value(f"{node.outputs[0]}.scaled", type)
    name = editor.free_node_name(f"{node.name}.scale")
    multiply = Node(name, Binary("mul"), (node.inputs[0], names[0]), (scaled,), covers=node.covers)
    add = Node(node.name, Binary("add"), (scaled, names[1]), node.outputs, covers=node.covers)
    editor.replace(node, multiply, add)


FOLD_BATCH_NORM = Pass("fold-batch-norm", _run)
