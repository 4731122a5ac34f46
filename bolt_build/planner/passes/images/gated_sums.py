"""Makes one gate of a gate and the residual beside it: x g s + t + x is x (g s + 1) + t, where g is one number a
channel of each image. The response normalisation of ConvNeXt V2 ends like this.

What is left of the large tensor is one multiplication, which a product behind it does as it loads, and a shift, which
is folded into that product's bias.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass
class _Gated:
    """What stands between x and a sum with it, from the last on: multiplications with constants and one addition."""

    gate: str = ""
    scales: list[str] = field(default_factory=list)
    shift: str | None = None
    nodes: list[Node] = field(default_factory=list)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATE_SUMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.op != Binary("add") or node.epilogue:
            continue
        if editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        for x, other in (node.inputs, node.inputs[::-1]):
            found = _gated(editor, x, other)
            if found is not None and editor.type(x) == editor.type(node.outputs[0]):
                _replace(editor, node, x, found)
                journal.did(node.name, "made one gate", f"of '{found.nodes[-1].name}' and the sum with '{x}'")
                break
    return journal.result(editor.finish())


def _gated(editor: GraphEditor, x: str, value: str) -> _Gated | None:
    """`value` as x times a gate, with constants; None where it is none, or others read what lies between."""
    found = _Gated()
    while True:
        node = editor.producer(value)
        if node is None or node.epilogue or not isinstance(node.op, Binary) or editor.not_private(value) is not None:
            return None
        found.nodes.append(node)
        if node.op.function == "mul" and x in node.inputs:
            found.gate = node.inputs[1 if node.inputs[0] == x else 0]
            return found if _is_gate(editor, found.gate, x) else None
        constant = next((name for name in node.inputs if editor.is_constant(name)), None)
        if constant is None or not _is_small(editor, constant, x):
            return None
        if node.op.function == "mul":
            found.scales.append(constant)
        elif node.op.function == "add" and found.shift is None and not found.scales:
            found.shift = constant
        else:
            return None
        value = node.inputs[0] if node.inputs[1] == constant else node.inputs[1]


def _is_gate(editor: GraphEditor, gate: str, x: str) -> bool:
    return not editor.is_constant(gate) and editor.type(gate).rank == editor.type(x).rank and _is_small(editor, gate, x)


def _is_small(editor: GraphEditor, name: str, x: str) -> bool:
    """Whether the value is much smaller than x: it differs along two axes at most, images and channels."""
    wide = sum(extent != 1 for extent in editor.type(name).shape)
    return wide <= 2 and editor.type(name).elements < editor.type(x).elements


def _replace(editor: GraphEditor, node: Node, x: str, found: _Gated) -> None:
    """The same with the residual in the gate; what was x times the gate stands in the place of the sum."""
    made: list[Node] = []

    def add(op: Op, *inputs: str, output: str | None = None) -> str:
        label = editor.free_node_name(f"{node.name}.gate.{len(made)}")
        (type_,) = op.infer([editor.type(name) for name in inputs])
        name = output or editor.new_value(label, type_)
        made.append(Node(node.name if output else label, op, inputs, (name,)))
        return name

    gate, dtype = found.gate, editor.type(x).dtype
    for scale in reversed(found.scales):
        gate = add(Binary("mul"), gate, scale)
    one = editor.new_constant(f"{node.name}.one", np.ones((), held_dtype(dtype)), dtype)
    gate = add(Binary("add"), gate, one)
    if found.shift is None:
        add(Binary("mul"), x, gate, output=node.outputs[0])
    else:
        add(Binary("add"), add(Binary("mul"), x, gate), found.shift, output=node.outputs[0])
    covers = joined(*(each.covers for each in reversed(found.nodes)), node.covers)
    last = made.pop()
    for each in found.nodes:
        editor.remove(each)
    editor.replace(node, *made, Node(last.name, last.op, last.inputs, last.outputs, covers=covers))


GATE_SUMS = Pass("gate-sums", _run)
