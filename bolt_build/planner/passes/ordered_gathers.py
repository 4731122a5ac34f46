"""Makes a reshape of a gather that takes everything in the order in which it lies.

For example masks of transformers, which name the tokens of a batch one by one.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.gather import Gather, GatherND
from bolt_build.graph.ops.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RESHAPE_GATHERS.name)
    for node in editor.nodes():
        if not _takes_all_in_order(editor, node):
            continue
        made = replace(node, op=Reshape(editor.type(node.outputs[0]).shape), inputs=node.inputs[:1])
        editor.replace(node, made)
        journal.did(node.name, "made a reshape", f"'{node.inputs[1]}' names everything in its order")
    return journal.result(editor.finish())


def _takes_all_in_order(editor: GraphEditor, node: Node) -> bool:
    if not isinstance(node.op, Gather | GatherND) or node.epilogue or editor.is_constant(node.inputs[0]):
        return False
    indices, shape = editor.constant(node.inputs[1]), editor.type(node.inputs[0]).shape
    if indices is None or not indices.size:
        return False
    if isinstance(node.op, Gather):
        extents, places = shape[node.op.axis : node.op.axis + 1], indices.reshape(-1, 1)
    else:
        extents, places = shape[: indices.shape[-1]], indices.reshape(-1, indices.shape[-1])
    if (isinstance(node.op, GatherND) and node.op.batch_dims) or len(places) != prod(extents):
        return False
    steps = np.cumprod((1, *extents[:0:-1]))[::-1]
    return np.array_equal(places % extents @ steps, np.arange(len(places)))


RESHAPE_GATHERS = Pass("reshape-gathers", _run)
