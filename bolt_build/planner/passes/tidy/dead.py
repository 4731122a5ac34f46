"""Removes nodes whose outputs nobody reads."""

from __future__ import annotations

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(REMOVE_DEAD.name)
    for node in reversed(editor.nodes()):
        if not any(editor.is_output(name) or editor.readers(name) for name in node.outputs):
            editor.remove(node)
            journal.did(node.name, "removed", "nobody reads its output")
    return journal.result(editor.finish())


REMOVE_DEAD = Pass("remove-dead", _run)
