"""Makes reductions of poolings whose window is the whole image, and of long axes along which it is: kernels of
reductions share elements among threads, those of poolings give a window to one."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_LONG = 16
"""Elements along whole axes from which on a step of their own pays."""
_MODES = {"average": "mean", "max": "max"}


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(REDUCE_WHOLE_WINDOWS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Pool) or not editor.type(node.outputs[0]).dtype.is_float:
            continue
        image, pooled = (editor.type(name).shape for name in (node.inputs[0], node.outputs[0]))
        whole = tuple(
            axis
            for axis, extents in enumerate(zip(node.op.kernel, node.op.pads_begin, node.op.pads_end, strict=True), 2)
            if extents == (image[axis], 0, 0) and image[axis] > 1
        )
        padded = any((*node.op.pads_begin, *node.op.pads_end))
        if not whole or (padded and node.op.mode == "average"):
            continue
        reduction = Reduce(_MODES[node.op.mode], whole)
        # Several windows with padding may see the same row of pixels.
        if all(axis in whole or image[axis] == pooled[axis] == 1 for axis in range(2, len(image))):
            editor.replace(node, replace(node, op=reduction))
            journal.did(node.name, f"made a {reduction.mode} of its pooling", "its window is the whole image")
        elif prod(image[axis] for axis in whole) >= _LONG:
            _apart(editor, node, node.op, reduction)
            axes = " and ".join(map(str, whole))
            journal.did(
                node.name, f"made a {reduction.mode} of a part of its pooling", f"its window is all of axis {axes}"
            )
    return journal.result(editor.finish())


def _apart(editor: GraphEditor, node: Node, op: Pool, reduction: Reduce) -> None:
    """The reduction, and the pooling of what it leaves."""
    (type_,) = reduction.infer([editor.type(node.inputs[0])])
    label = f"{node.name}.{reduction.mode}"
    value = editor.new_value(label, type_)
    kernel = tuple(1 if axis in reduction.axes else extent for axis, extent in enumerate(op.kernel, 2))
    first = Node(editor.free_node_name(label), reduction, node.inputs, (value,))
    editor.replace(node, first, replace(node, op=replace(op, kernel=kernel), inputs=(value,)))


REDUCE_WHOLE_WINDOWS = Pass("reduce-whole-windows", _run)
