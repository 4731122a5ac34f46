"""Lets arithmetic broadcast by itself what an expand repeats for it. For example torch's normalize divides by norms
that it has made as large as what they divide.

A transpose between them moves what is repeated instead: the relative positions of a bottleneck transformer are one
row of each image's rows, repeated and then turned, and one column.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, ShapeError, TensorType
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.expand import Expand
from bolt_build.graph.ops.shape import Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(BROADCAST.name)
    for expand in editor.nodes():
        if not isinstance(expand.op, Expand) or expand.epilogue:
            continue
        (source,), (large,) = expand.inputs, expand.outputs
        for name in [reader.name for reader in editor.readers(large)]:
            reader = editor.node(name)  # it may read what another reader turns as well, and be another node by now
            if reader is None or large not in reader.inputs:
                continue
            if isinstance(reader.op, Transpose):
                _turn_first(editor, journal, expand, reader, reader.op)
            elif _broadcasts(editor, reader, large, editor.type(source)):
                _read(editor, journal, expand, reader, large, source)
        editor.prune([large])
    return journal.result(editor.finish())


def _turn_first(editor: GraphEditor, journal: Journal, expand: Node, turn: Node, op: Transpose) -> None:
    """What an expand repeats, transposed before arithmetic broadcasts it, where that alone reads what is transposed."""
    (source,), (large,) = expand.inputs, turn.outputs
    readers, small = editor.readers(large), editor.type(source)
    if small.rank != len(op.perm) or editor.is_output(large) or not readers:
        return
    (turned,) = op.infer([small])
    if not all(_broadcasts(editor, reader, large, turned) for reader in readers):
        return
    value = editor.new_value(f"{large}.once", turned)
    editor.replace(turn, Node(turn.name, op, (source,), (value,), covers=turn.covers))
    for reader in readers:
        _read(editor, journal, expand, reader, large, value)


def _read(editor: GraphEditor, journal: Journal, expand: Node, reader: Node, large: str, small: str) -> None:
    inputs = tuple(small if name == large else name for name in reader.inputs)
    editor.replace(reader, replace(reader, inputs=inputs))
    journal.did(reader.name, "broadcasts", f"'{small}' without the expand '{expand.name}'")


def _broadcasts(editor: GraphEditor, reader: Node, large: str, small: TensorType) -> bool:
    """Whether a node is arithmetic, and its result of `small` for `large` has the type that it has now."""
    if not isinstance(reader.op, Binary) or reader.epilogue:
        return False
    types = [small if name == large else editor.type(name) for name in reader.inputs]
    try:
        return reader.op.infer(types) == (editor.type(reader.outputs[0]),)
    except ShapeError:
        return False


BROADCAST = Pass("broadcast", _run)
