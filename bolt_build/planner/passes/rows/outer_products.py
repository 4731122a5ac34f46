"""Makes multiplications of products whose depth is one: every column with every row, which is what broadcasting does.

For example a distance that a layer takes in by itself, once the features beside it are multiplied apart from it
(`spread_columns`), and the first layer of a network of one number. A kernel of products reads whole tiles of depth.
"""

from __future__ import annotations

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_COLUMNS.name)
    for node in editor.nodes():
        if node.op != MatMul() or node.epilogue or editor.type(node.inputs[0]).shape[-1] != 1:
            continue
        chain, last, bias = Chain(editor, node.name), node.inputs[:2], node.inputs[2:]
        if bias:
            last = (chain.add(Binary("mul"), last, what="product"), *bias)
        op = Binary("add" if bias else "mul")
        editor.replace(node, *chain.nodes, Node(node.name, op, last, node.outputs, covers=node.covers))
        journal.did(node.name, "multiplies", "a product of one column with one row")
    return journal.result(editor.finish())


MULTIPLY_COLUMNS = Pass("multiply-columns", _run)
