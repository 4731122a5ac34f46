"""Makes a reshape of a gather that takes everything in the order in which it lies.

For example masks of transformers, which name the tokens of a batch one by one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Graph, Node, ShapeError
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_MOST = 1 << 20
"""Elements of what is looked through, where indices name single ones."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RESHAPE_GATHERS.name)
    for node in editor.nodes():
        if not _takes_all_in_order(editor, node):
            continue
        made = replace(node, op=Reshape(editor.type(node.outputs[0]).shape), inputs=node.inputs[:1])
        editor.replace(node, made)
        journal.did(node.name, "made a reshape", f"'{node.inputs[1]}' names everything in its order")
    return journal.result(editor.finish())


def _takes_all_in_order(editor: GraphEditor, node: Node) -> bool:
    """Whether constant indices name all elements one after the other."""
    if not isinstance(node.op, Gather | GatherND) or node.epilogue or editor.is_constant(node.inputs[0]):
        return False
    data, indices = editor.type(node.inputs[0]), editor.constant(node.inputs[1])
    all_of_it = data.elements == editor.type(node.outputs[0]).elements
    if indices is None or not all_of_it or not data.elements:
        return False
    if isinstance(node.op, Gather):  # the order of its axis says it
        extent = data.shape[node.op.axis]
        within = bool(((-extent <= indices) & (indices < extent)).all())
        return within and np.array_equal(indices.reshape(-1) % extent, np.arange(extent))
    if data.elements > _MOST:
        return False
    order = np.arange(data.elements)
    try:
        (found,) = node.op.evaluate([order.reshape(data.shape), indices])
    except ShapeError:  # an index that lies outside is an error of the run
        return False
    return np.array_equal(found.reshape(-1), order)


RESHAPE_GATHERS = Pass("reshape-gathers", _run)
