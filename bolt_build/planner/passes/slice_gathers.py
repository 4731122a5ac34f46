"""Makes a slice of a gather whose only index is a number along the first axis: that is a run of memory, a view.

For example swin V2's queries, keys and values, which one transpose puts behind each other. One that takes everything in
order is a reshape, as transformers looks up in a mask which keys are there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.gather import Gather, GatherND
from bolt_build.graph.ops.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import step_back
from bolt_build.schema.recipe import Policy

_MOST = 1 << 20
"""Elements of what is looked through."""


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_GATHERS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Gather | GatherND) or node.epilogue or editor.is_constant(node.inputs[0]):
            continue
        if _takes_everything(editor, node):
            whole = Reshape(editor.type(node.outputs[0]).shape)
            editor.replace(node, replace(node, op=whole, inputs=node.inputs[:1]))
            journal.did(node.name, "made a reshape", f"'{node.inputs[1]}' takes everything in order")
            continue
        if not isinstance(node.op, Gather) or node.op.axis != 0:
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


def _takes_everything(editor: GraphEditor, node: Node) -> bool:
    """Whether constant indices name all elements one after the other."""
    data, result = (editor.type(name) for name in (node.inputs[0], node.outputs[0]))
    indices = editor.constant(node.inputs[1])
    if indices is None or data.elements != result.elements or not 0 < data.elements <= _MOST:
        return False
    order = np.arange(data.elements)
    (found,) = node.op.evaluate([order.reshape(data.shape), indices])
    return bool((found.reshape(-1) == order).all())


SLICE_GATHERS = Pass("slice-gathers", _run)
