"""Makes a slice of a gather whose only index is a number along the first axis: that is a run of memory, a view.

For example swin V2's queries, keys and values, which one transpose puts behind each other.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.gather import Gather
from bolt_build.graph.ops.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import step_back
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_GATHERS.name)
    for node in editor.nodes():
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


SLICE_GATHERS = Pass("slice-gathers", _run)
