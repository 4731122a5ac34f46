"""Makes a slice of a gather whose constant indices are a run of slices along the first axis, named one by one.

PyTorch's exporters write `x[:, :, [-1]]` so: the axis is moved to the front, and each index is a tuple of one number.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.gather import GatherND
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_TUPLES.name)
    for node in editor.nodes():
        if not isinstance(node.op, GatherND) or node.epilogue or editor.is_constant(node.inputs[0]):
            continue
        taken = _taken(editor, node, node.op)
        if taken is None:
            continue
        (type_,) = taken.infer([editor.type(node.inputs[0])])
        own = editor.new_value(f"{node.outputs[0]}.taken", type_)
        slice_ = Node(editor.free_node_name(f"{node.name}.taken"), taken, node.inputs[:1], (own,))
        back = replace(node, op=Reshape(editor.type(node.outputs[0]).shape), inputs=(own,))
        editor.replace(node, slice_, back)
        journal.did(node.name, "made a slice", f"'{node.inputs[1]}' names {taken.count[0]} of the first axis")
    return journal.result(editor.finish())


def _taken(editor: GraphEditor, node: Node, op: GatherND) -> Slice | None:
    """The slice along the first axis that the indices name in its order, each once."""
    indices, shape = editor.constant(node.inputs[1]), editor.type(node.inputs[0]).shape
    if op.batch_dims or indices is None or not indices.size or indices.shape[-1] != 1:
        return None
    extent, named = shape[0], [int(each) for each in indices.reshape(-1)]
    if not all(-extent <= each < extent for each in named):  # an error of the run
        return None
    places = [each % extent for each in named]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step < 1 or places != list(range(places[0], places[-1] + 1, step)):
        return None
    rest = shape[1:]
    return Slice((places[0], *(0,) * len(rest)), (len(places), *rest), (step, *(1,) * len(rest)))


SLICE_TUPLES = Pass("slice-tuples", _run)
