"""Computes what mixes the heads of scores as a convolution over planes: CaiT's heads talk to each other on both sides
of a softmax.

A model brings heads last, multiplies them by a small matrix, and brings them back. As a convolution of one position
over as many planes as there are heads nothing moves, and what is in front of it and behind it has rows of neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor, joined

MOST = 16
"""Heads on either side: kernels for few planes have no more."""
_LAST, _BACK = (0, 2, 3, 1), (0, 3, 1, 2)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MIX_HEADS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, MatMul) or node.op.transpose_a or node.epilogue:
            continue
        front, behind = editor.producer(node.inputs[0]), editor.readers(node.outputs[0])
        if front is None or not _turns(front, _LAST) or len(behind) != 1 or not _turns(behind[0], _BACK):
            continue
        if (obstacle := _obstacle(editor, node, front)) is not None:
            journal.declined(node.name, obstacle)
            continue
        _mix(editor, node, front, behind[0])
        journal.did(node.name, "made a convolution", "it mixes planes where they lie")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, front: Node) -> str | None:
    """Why a product between both turns is no convolution over planes; None where it is one."""
    if (obstacle := editor.not_private(front.outputs[0], node.outputs[0])) is not None:
        return obstacle
    weights = editor.constant(node.inputs[1])
    if weights is None or weights.ndim != 2:
        return f"'{node.inputs[1]}' is no constant matrix"
    if max(weights.shape) > MOST:
        return f"it mixes {weights.shape[0]} by {weights.shape[1]} heads, and kernels of few planes take {MOST} at most"
    return None if editor.type(node.inputs[0]).elements else "there is nothing to mix"


def _turns(node: Node, perm: tuple[int, ...]) -> bool:
    return isinstance(node.op, Transpose) and node.op.perm == perm and not node.epilogue


def _mix(editor: GraphEditor, node: Node, front: Node, behind: Node) -> None:
    assert isinstance(node.op, MatMul)
    array, dtype = editor.constant(node.inputs[1]), editor.type(node.inputs[1]).dtype
    assert array is not None
    filters = array if node.op.transpose_b else array.T
    planes = np.ascontiguousarray(filters[:, :, None, None].astype(held_dtype(dtype)))
    weights = editor.new_constant(f"{node.inputs[1]}.planes", planes, dtype)
    conv = replace(
        node, op=Conv((1, 1), (0, 0), (0, 0), (1, 1), 1), inputs=(front.inputs[0], weights, *node.inputs[2:]),
        outputs=behind.outputs, covers=joined(*(each.covers for each in (front, node, behind))),
    )  # fmt: skip
    editor.remove(front)
    editor.remove(node)
    editor.replace(behind, conv)


MIX_HEADS = Pass("mix-heads", _run, pays_on=PLACE_PRODUCTS.pays_on)
