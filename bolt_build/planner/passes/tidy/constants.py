"""Computes nodes whose inputs are all constants."""

from __future__ import annotations

from bolt_build.graph.arrays import held, held_dtype, narrowed
from bolt_build.graph.budget import Budget
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.reference import evaluate_node
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

FREE_BYTES = 1 << 20
"""Results up to this size are always folded."""

GROWTH = 2
"""Larger ones only up to this many times the bytes of the inputs: no engine should carry what a kernel can spread."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_CONSTANTS.name)
    budget = Budget(value.type.nbytes for value in graph.values if value.constant is not None)
    for node in editor.nodes():
        arrays = [array for array in map(editor.constant, node.inputs) if array is not None]
        if not arrays or len(arrays) != len(node.inputs):
            continue
        why_not = _growth(editor, node.outputs, arrays) or _too_much(editor, node, budget)
        if why_not is not None:
            journal.declined(node.name, why_not)
            continue
        budget.take(sum(editor.type(name).nbytes for name in node.outputs))
        editor.remove(node)
        results = evaluate_node(node, [held(array) for array in arrays])
        for name, array in zip(node.outputs, results, strict=True):
            editor.make_constant(name, narrowed(array, held_dtype(editor.type(name).dtype)))
        journal.did(node.name, "folded", "all of its inputs are constant")
    return journal.result(editor.finish())


def _growth(editor: GraphEditor, outputs: tuple[str, ...], inputs: list[Array]) -> str | None:
    """Why folding would make the weights table too large; None where it would not."""
    made, given = sum(editor.type(name).nbytes for name in outputs), sum(array.nbytes for array in inputs)
    if made <= max(FREE_BYTES, GROWTH * given):
        return None
    return f"folding would store {made} bytes in place of {given}"


def _too_much(editor: GraphEditor, node: Node, budget: Budget) -> str | None:
    """Why computing the node now would take too long or too much memory; None where it would not."""
    types = [editor.type(name) for name in node.op_inputs]
    return budget.refuse(node.op, types, editor.type(node.outputs[0]))


FOLD_CONSTANTS = Pass("fold-constants", _run)
