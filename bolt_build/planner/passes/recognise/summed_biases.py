"""Biases of attention's scores by rows and columns of an image: ViTDet, and SAM as it was published, add them to scores
whose queries and keys are split into rows and columns, and make matrices of the sum again. What is added is summed up
first and made matrices of, so that the scores stay matrices: then attention takes the sum for its mask.
"""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.recognise.attention_scores import scores_of
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Split:
    """Scores `value` as matrices; the nodes that split them and add to them, and what these add. `obstacle` says why a
    value between them must stay, None where none must."""

    value: str
    nodes: tuple[Node, ...]
    added: tuple[str, ...]
    obstacle: str | None = None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SUM_BIASES.name)
    for node in editor.nodes():
        if isinstance(node.op, Softmax) and node.op.axis == editor.type(node.inputs[0]).rank - 1:
            last = editor.producer(node.inputs[0])
            if last is not None and isinstance(last.op, Reshape) and editor.not_private(last.outputs[0]) is None:
                _summed(editor, journal, last)
    return journal.result(editor.finish())


def _summed(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """Adds the sum of what is added to the scores in front of `last`, where they are split there."""
    shape, apart = editor.type(last.outputs[0]).shape, editor.type(last.inputs[0]).shape
    split = _split(editor, last.inputs[0], shape[-2:])
    if split is None or not split.added:
        return
    obstacle = split.obstacle or scores_of(editor, split.value)
    if isinstance(obstacle, str):
        journal.declined(last.name, obstacle)
        return
    chain = Chain(editor, f"{last.name}.bias")
    total, *others = split.added
    for other in others:
        total = chain.add(Binary("add"), [total, other])
    if editor.type(total).shape != apart:
        total = chain.add(Expand(apart), [total])
    total, value = chain.add(Reshape(shape), [total]), split.value
    if editor.type(value).shape != shape:
        value = chain.add(Reshape(shape), [value])
    covers = joined(last.covers, *(node.covers for node in split.nodes))
    editor.replace(last, *chain.nodes, Node(last.name, Binary("add"), (value, total), last.outputs, covers=covers))
    editor.prune(last.inputs)
    journal.did(last.name, "added up", f"what is added to scores of {list(shape[-2:])} as {list(apart)}")


def _split(editor: GraphEditor, value: str, matrix: tuple[int, ...]) -> _Split | None:
    """The scores behind sums, in front of the reshape that splits them."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return None
    obstacle = editor.not_private(value)
    whole = isinstance(node.op, Reshape) and editor.type(node.inputs[0]).shape[-2:] == matrix
    if whole and editor.type(value).shape[-2:] != matrix:
        return _Split(node.inputs[0], (node,), (), obstacle)
    if node.op != Binary("add"):
        return None
    for scores, other in (node.inputs, node.inputs[::-1]):
        if editor.type(scores).shape == editor.type(value).shape:
            found = _split(editor, scores, matrix)
            if found is not None:
                return _Split(found.value, (*found.nodes, node), (*found.added, other), found.obstacle or obstacle)
    return None


SUM_BIASES = Pass("sum-biases", _run)
