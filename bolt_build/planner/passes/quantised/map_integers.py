"""Makes one step of an elementwise function of dequantised tensors and the quantisation behind it, such as a residual's
sum: integers are read and stored, a quarter of the bytes of numbers."""

from __future__ import annotations

from math import inf

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.quantised.integer_product import FACTORS
from bolt_build.graph.ops.quantised.quantised_map import QuantisedMap
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.quantised.multiply_integers import multiplies_integers
from bolt_build.planner.rewrite import GraphEditor, joined

SIDES = 3
"""Most tensors that one step reads."""
UNCHANGED = Activation("clip", -inf, inf)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MAP_INTEGERS.name)
    for node in editor.nodes():
        if isinstance(node.op, Quantize) and node.op.to in FACTORS and not node.epilogue:
            _merge(editor, journal, node)
    return journal.result(editor.finish())


def _merge(editor: GraphEditor, journal: Journal, last: Node) -> None:
    node = editor.producer(last.inputs[0])
    if _dequantised(editor, last.inputs[0]) is not None:
        _rescale(editor, journal, last)
        return
    if node is None or not isinstance(node.op, Activation | Binary):
        return
    backs = {name: back for name in node.inputs if (back := _dequantised(editor, name)) is not None}
    if not backs:
        return
    obstacle = editor.not_private(node.outputs[0])
    if obstacle is None and any(editor.type(name).dtype is not DType.F32 for name in (*node.inputs, *node.outputs)):
        obstacle = "it computes in another type than f32"
    if obstacle is None and len(node.inputs) > SIDES:
        obstacle = f"it reads over {SIDES} tensors"
    if obstacle is not None:
        journal.declined(last.name, f"stays behind '{node.name}': {obstacle}")
        return
    own = len(node.op_inputs)
    quantised = tuple(name in backs for name in node.inputs)
    inputs = [each for name in node.inputs for each in (backs[name].inputs if name in backs else (name,))]
    assert isinstance(last.op, Quantize)
    assert own == (2 if isinstance(node.op, Binary) else 1)
    op = QuantisedMap(node.op, last.op.to, quantised, node.epilogue)
    covers = joined(node.covers, last.covers)
    editor.remove(node)
    editor.replace(last, Node(last.name, op, (*inputs, *last.inputs[1:]), last.outputs, covers=covers))
    editor.prune(node.inputs)
    journal.did(last.name, "made", f"one step of '{node.name}' and the quantisation, of integers")


def _rescale(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """Integers of one scale as those of another: nothing is computed on the numbers in between."""
    back = editor.producer(last.inputs[0])
    assert back is not None
    assert isinstance(last.op, Quantize)
    op = QuantisedMap(UNCHANGED, last.op.to, (True,))
    covers = joined(back.covers, last.covers)
    editor.replace(last, Node(last.name, op, (*back.inputs, *last.inputs[1:]), last.outputs, covers=covers))
    editor.prune([back.outputs[0]])
    journal.did(last.name, "made", f"one step of '{back.name}' and the quantisation, of integers")


def _dequantised(editor: GraphEditor, name: str) -> Node | None:
    """What makes a value of integers, each with one scale."""
    node = editor.producer(name)
    if node is None or not isinstance(node.op, Dequantize) or node.epilogue:
        return None
    return node if editor.type(node.inputs[0]).dtype in FACTORS else None


MAP_INTEGERS = Pass("map-integers", _run, pays_on=multiplies_integers)
