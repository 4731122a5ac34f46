"""Computes poolings over three axes as ones over two, for which kernels let windows share what they read.

A window of one depth is one over images, of which there are more. A maximum of many elements is one over rows and
columns first, then over depths, whose rows are whole images: each element is read about twice, where windows of 3x3x3
read it 27 times. Windows that hardly overlap stay, and those over one axis.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.moves.stack import FoldDepth, UnfoldDepth
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.images.volumes import FLATTEN_VOLUMES
from bolt_build.planner.rewrite import GraphEditor

_MANY = 3
"""Times that windows read an element, from which on they are taken apart."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(POOL_VOLUMES.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Pool) or len(op.kernel) != 3 or node.epilogue:
            continue
        if (op.kernel[0], op.strides[0], op.pads_begin[0], op.pads_end[0]) == (1, 1, 0, 0):
            _of_images(editor, node, op)
            journal.did(node.name, "flattened", "each depth is an image")
        elif (
            op.mode == "max"
            and prod(op.kernel) > _MANY * prod(op.strides)
            and min(op.kernel[0], max(op.kernel[1:])) > 1
        ):
            _of_each(editor, node, op)
            journal.did(node.name, "taken apart", "a maximum over each image, and one over depths")
    return journal.result(editor.finish())


def _behind(op: Pool) -> Pool:
    """The pooling without its first axis."""
    return replace(
        op, kernel=op.kernel[1:], strides=op.strides[1:], pads_begin=op.pads_begin[1:], pads_end=op.pads_end[1:],
        dilations=op.dilations[1:],
    )  # fmt: skip


def _of_images(editor: GraphEditor, node: Node, op: Pool) -> None:
    """The pooling of each depth."""
    depths = editor.type(node.inputs[0]).shape[2]
    images, pooled = _steps(editor, node, node.inputs[0], FoldDepth(), _behind(op))
    last = Node(node.name, UnfoldDepth(depths), pooled.outputs, node.outputs)
    editor.replace(node, images, pooled, last)


def _of_each(editor: GraphEditor, node: Node, op: Pool) -> None:
    """Maxima of images, then of depths, over rows that are whole images."""
    shape, made = editor.type(node.inputs[0]).shape, editor.type(node.outputs[0]).shape
    lines = (*shape[:3], made[3] * made[4])
    down = replace(
        op, kernel=(op.kernel[0], 1), strides=(op.strides[0], 1), pads_begin=(op.pads_begin[0], 0),
        pads_end=(op.pads_end[0], 0), dilations=(op.dilations[0], 1),
    )  # fmt: skip
    steps = _steps(editor, node, node.inputs[0], FoldDepth(), _behind(op), UnfoldDepth(shape[2]), Reshape(lines), down)
    editor.replace(node, *steps, Node(node.name, Reshape(made), steps[-1].outputs, node.outputs))


def _steps(editor: GraphEditor, node: Node, value: str, *ops: Op) -> list[Node]:
    """Nodes behind each other, from a value on."""
    found = list[Node]()
    for op in ops:
        (type_,) = op.infer([editor.type(value)])
        name = f"{node.name}.{op.kind}{len(found) or ''}"
        made = editor.new_value(name, type_)
        found.append(Node(editor.free_node_name(name), op, (value,), (made,)))
        value = made
    return found


POOL_VOLUMES = Pass("pool-volumes", _run, pays_on=FLATTEN_VOLUMES.pays_on)
