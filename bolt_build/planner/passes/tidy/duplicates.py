"""Computes the same thing once: nodes with equal operators and equal inputs become one.

Constants count as equal only by name. Equal contents prove nothing about the next weights that are loaded. What hides a
key and what does not, in the masks of each layer, are no weights: zero, and a number that no score changes.

A reduction that keeps its axes and one that leaves them out compute the same numbers: exporters write both where a
model takes mean and variance of a tensor.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_scores import LEAST, number
from bolt_build.planner.rewrite import GraphEditor

COMMUTATIVE = ("add", "mul", "max", "min")


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_DUPLICATES.name)
    first: dict[object, str] = {}
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or len(node.outputs) != 1:
            continue
        known = editor.node(first.setdefault(_key(editor, node), node.name))
        if known is None or known.name == node.name:
            continue
        if node.op != known.op and isinstance(node.op, Reduce):
            shaped = Reshape(editor.type(node.outputs[0]).shape)
            editor.replace(node, replace(node, op=shaped, inputs=known.outputs))
            journal.did(node.name, "merged", f"computes the same numbers as '{known.name}'")
            continue
        obstacle = editor.stand_in(node.outputs[0], known.outputs[0])
        if obstacle is None:
            journal.did(node.name, "merged", f"computes the same as '{known.name}'")
        else:
            journal.declined(node.name, f"computes the same as '{known.name}', but {obstacle}")
    return journal.result(editor.finish())


def _key(editor: GraphEditor, node: Node) -> object:
    inputs: tuple[object, ...] = node.inputs
    if isinstance(node.op, Where):
        levels = [_level(editor, name) for name in node.inputs[1:]]
        if None not in levels:
            inputs = (node.inputs[0], *levels)
    elif isinstance(node.op, Binary) and node.op.function in COMMUTATIVE and not node.epilogue:
        inputs = tuple(sorted(node.inputs))
    if isinstance(node.op, Reduce) and not node.epilogue:
        return replace(node.op, keepdims=True), inputs, node.epilogue
    return node.op, inputs, node.epilogue


def _level(editor: GraphEditor, value: str) -> object:
    """A constant by what it is, where it hides keys or shows them; None of any other."""
    level = number(editor, value)
    return (level, editor.type(value)) if level is not None and (level == 0.0 or level <= LEAST) else None


MERGE_DUPLICATES = Pass("merge-duplicates", _run)
