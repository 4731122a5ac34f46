"""Recognises squares: a multiplication of a value with itself, and a power of 2. As an activation it is part of the
kernel in front of it, where a product reads no operand twice. For example StarReLU and squared ReLU end with one.

It runs behind the passes that look for formulas, which have multiplications in them.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.formula import Reader
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_SQUARES.name)
    reader = Reader(editor)
    for node in editor.nodes():
        if not _is_square(reader, node) or node.epilogue:
            continue
        type_ = editor.type(node.outputs[0])
        if type_.dtype in PRECISIONS.values() and editor.type(node.inputs[0]) == type_:
            editor.replace(node, replace(node, op=Activation("square"), inputs=node.inputs[:1]))
            journal.did(node.name, "recognised square", "x * x")
    return journal.result(editor.finish())


def _is_square(reader: Reader, node: Node) -> bool:
    match node.op:
        case Binary("mul"):
            return node.inputs[0] == node.inputs[1]
        case Binary("pow"):
            return reader.scalar(node.inputs[1]) == 2.0
    return False


RECOGNISE_SQUARES = Pass("recognise-squares", _run)
