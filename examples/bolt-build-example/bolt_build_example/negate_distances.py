"""A pass: a negation behind distances becomes an attribute of theirs."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build_example.distances import Distances


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(NEGATE_DISTANCES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Distances) or node.epilogue:
            continue
        (output,) = node.outputs
        reason = editor.not_private(output)
        reader = next(iter(editor.readers(output)), None)
        if reader is None or reader.op != Activation("neg") or reader.epilogue:
            continue
        if reason is not None:
            journal.declined(node.name, reason)
            continue
        editor.remove(reader)
        # The node takes the place and the output's name of the one that it makes unnecessary.
        op = replace(node.op, negated=not node.op.negated)
        editor.replace(node, replace(node, op=op, outputs=reader.outputs, covers=(*node.covers, *reader.covers)))
        journal.did(node.name, "negated", f"{reader.name} is an attribute of it")
    return journal.result(editor.finish())


NEGATE_DISTANCES = Pass("negate-distances", _run, before="fuse-epilogues")
