"""Makes a slice of a gather whose only index is a number along the first axis: that is a run of memory, a view.

For example swin V2's queries, keys and values, which one transpose puts behind each other. Networks of videos flatten
frames into the batch, and take one frame of each clip where they lie apart again: that is a slice of the batch, whose
images stay as they lie.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import step_back

_CLIPS = 5
"""Axes of clips, frames, and what an image has."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_GATHERS.name)
    for node in editor.nodes():
        if (frame := _frame(editor, node)) is not None:
            _take(editor, node, *frame)
            journal.did(node.name, "made a slice", f"takes one of {frame[1].step[0]} images that '{frame[0]}' has")
            continue
        if not isinstance(node.op, Gather) or node.op.axis != 0 or editor.is_constant(node.inputs[0]):
            continue
        taken = step_back(editor, node)
        if taken is None:
            continue
        (type_,) = taken.infer([editor.type(node.inputs[0])])
        own = editor.new_value(f"{node.outputs[0]}.taken", type_)
        name = editor.free_node_name(f"{node.name}.taken")
        back = Reshape(editor.type(node.outputs[0]).shape)
        slice_ = Node(name, taken, node.inputs[:1], (own,))
        editor.replace(node, slice_, replace(node, op=back, inputs=(own,)))
        journal.did(node.name, "made a slice", f"'{node.inputs[1]}' is one number")
    return journal.result(editor.finish())


def _frame(editor: GraphEditor, node: Node) -> tuple[str, Slice] | None:
    """Images of which a reshape makes clips, and the slice of them that the node takes as one frame of each clip; None
    of other nodes."""
    if node.epilogue or not isinstance(node.op, Gather | Slice) or editor.is_constant(node.inputs[0]):
        return None
    if isinstance(node.op, Gather) and node.op.axis != 1:
        return None
    clips, made = editor.type(node.inputs[0]).shape, editor.producer(node.inputs[0])
    taken = node.op if isinstance(node.op, Slice) else step_back(editor, node)
    if not isinstance(taken, Slice) or made is None or not isinstance(made.op, Reshape) or made.epilogue:
        return None
    images = editor.type(made.inputs[0]).shape
    if len(clips) < _CLIPS or images != (clips[0] * clips[1], *clips[2:]) or clips[1] == 1:
        return None
    if taken.count != (clips[0], 1, *clips[2:]) or set(taken.step) != {1}:
        return None
    ones = (1,) * (len(images) - 1)
    return made.inputs[0], Slice((taken.begin[1], *taken.begin[2:]), (clips[0], *clips[2:]), (clips[1], *ones))


def _take(editor: GraphEditor, node: Node, images: str, slice_: Slice) -> None:
    output = editor.type(node.outputs[0])
    if output.shape == slice_.count:
        editor.replace(node, replace(node, op=slice_, inputs=(images,)))
        return
    own = editor.new_value(f"{node.outputs[0]}.frame", replace(output, shape=slice_.count))
    first = Node(editor.free_node_name(f"{node.name}.frame"), slice_, (images,), (own,))
    editor.replace(node, first, replace(node, op=Reshape(output.shape), inputs=(own,)))


SLICE_GATHERS = Pass("slice-gathers", _run)
