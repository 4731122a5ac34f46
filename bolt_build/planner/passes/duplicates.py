"""Computes the same thing once: nodes with equal operators and equal inputs become one.

Constants count as equal only by name. Equal contents prove nothing about the next weights that are loaded.
"""

from __future__ import annotations

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy

COMMUTATIVE = ("add", "mul", "max", "min")


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_DUPLICATES.name)
    first: dict[object, str] = {}
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or len(node.outputs) != 1:
            continue
        known = editor.node(first.setdefault(_key(node), node.name))
        if known is None or known.name == node.name:
            continue
        obstacle = editor.stand_in(node.outputs[0], known.outputs[0])
        if obstacle is None:
            journal.did(node.name, "merged", f"computes the same as '{known.name}'")
        else:
            journal.declined(node.name, f"computes the same as '{known.name}', but {obstacle}")
    return journal.result(editor.finish())


def _key(node: Node) -> object:
    inputs = node.inputs
    if isinstance(node.op, Binary) and node.op.function in COMMUTATIVE and not node.epilogue:
        inputs = tuple(sorted(inputs))
    return node.op, inputs, node.epilogue


MERGE_DUPLICATES = Pass("merge-duplicates", _run)
