"""Rounds the result of a product of integers where it is made: the quantisation behind it becomes part of the step."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.quantised.integer_product import FACTORS
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct
from bolt_build.graph.ops.quantised.quantize import Quantize
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.quantised.multiply_integers import multiplies_integers
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ROUND_PRODUCTS.name)
    for node in editor.nodes():
        if isinstance(node.op, QuantisedProduct) and not node.op.rounds:
            _round(editor, journal, node)
    return journal.result(editor.finish())


def _round(editor: GraphEditor, journal: Journal, node: Node) -> None:
    (output,), op = node.outputs, node.op
    assert isinstance(op, QuantisedProduct)
    readers = [each for each in editor.readers(output) if isinstance(each.op, Quantize)]
    if not readers:
        return
    reader = readers[0]
    assert isinstance(reader.op, Quantize)
    why = editor.not_private(output)
    if why is None and reader.op.to not in FACTORS:
        why = f"its integers are of {reader.op.to.value}"
    if why is None and any(editor.type(name).rank or not editor.is_constant(name) for name in reader.inputs[1:]):
        why = "parts of it have scales of their own"
    if why is not None:
        journal.declined(reader.name, f"stays out of '{node.name}': {why}")
        return
    behind = node.inputs[op.own :]
    stages = tuple(
        replace(stage, operand=None if stage.operand is None else stage.operand + 2) for stage in node.epilogue
    )
    inputs, covers = (*node.inputs[: op.own], *reader.inputs[1:], *behind), joined(node.covers, reader.covers)
    fused = Node(reader.name, replace(op, to=reader.op.to, stages=stages), inputs, reader.outputs, covers=covers)
    editor.remove(node)
    editor.replace(reader, fused)
    journal.did(reader.name, "made", f"a part of '{node.name}', which stores integers")


ROUND_PRODUCTS = Pass("round-products", _run, pays_on=multiplies_integers)
