"""Makes one step of a quantisation and what undoes it: numbers stay what they are stored as, rounded to a grid."""

from __future__ import annotations

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.quantised.quantize import Dequantize, FakeQuantize, Quantize
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FAKE_QUANTISE.name)
    for node in editor.nodes():
        if isinstance(node.op, Dequantize):
            _merge(editor, journal, node)
    return journal.result(editor.finish())


def _merge(editor: GraphEditor, journal: Journal, back: Node) -> None:
    first = editor.producer(back.inputs[0])
    if first is None or not isinstance(first.op, Quantize) or first.epilogue or back.epilogue:
        return
    obstacle = editor.not_private(first.outputs[0])
    if obstacle is None and editor.type(first.inputs[0]).dtype is not editor.type(back.outputs[0]).dtype:
        obstacle = "it makes numbers of another type"
    pairs = zip(first.inputs[1:], back.inputs[1:], strict=True)
    if obstacle is None and not all(same_numbers(editor, a, b) for a, b in pairs):
        obstacle = "its scale or zero point is another one"
    if obstacle is not None:
        journal.declined(back.name, obstacle)
        return
    merged = Node(
        back.name, FakeQuantize(first.op.to), first.inputs, back.outputs, covers=joined(first.covers, back.covers)
    )
    editor.remove(first)
    editor.replace(back, merged)
    journal.did(back.name, "merged", f"with '{first.name}'")


def same_numbers(editor: GraphEditor, a: str, b: str) -> bool:
    """Whether two values are one, or constants with the same elements."""
    left, right = editor.constant(a), editor.constant(b)
    return a == b or (
        left is not None and right is not None and left.shape == right.shape and np.array_equal(left, right)
    )


FAKE_QUANTISE = Pass("fake-quantise", _run)
