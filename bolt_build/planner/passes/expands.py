"""Lets arithmetic broadcast by itself what an expand repeats for it. For example torch's normalize divides by norms
that it has made as large as what they divide."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, ShapeError
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.expand import Expand
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(BROADCAST.name)
    for expand in editor.nodes():
        if not isinstance(expand.op, Expand) or expand.epilogue:
            continue
        (source,), (large,) = expand.inputs, expand.outputs
        for reader in editor.readers(large):
            inputs = tuple(source if name == large else name for name in reader.inputs)
            if isinstance(reader.op, Binary) and not reader.epilogue and _gives_the_same(editor, reader, inputs):
                editor.replace(reader, replace(reader, inputs=inputs))
                journal.did(reader.name, "broadcasts", f"'{source}' without the expand '{expand.name}'")
        editor.prune([large])
    return journal.result(editor.finish())


def _gives_the_same(editor: GraphEditor, reader: Node, inputs: tuple[str, ...]) -> bool:
    """Whether the node's result of `inputs` has the type that it has now."""
    try:
        return reader.op.infer([editor.type(name) for name in inputs]) == (editor.type(reader.outputs[0]),)
    except ShapeError:
        return False


BROADCAST = Pass("broadcast", _run)
