"""Recognises Sinkhorn's iterations that an exporter unrolled: rows and columns divided by their sums, in turns.

Hyper-connections keep the matrix that mixes the streams of a layer doubly stochastic so (DeepSeek-V4, GLM-5):

    for _ in range(iterations): a = a / (a.sum(-2, keepdim=True) + eps); a = a / (a.sum(-1, keepdim=True) + eps)

Exported, twenty iterations are 120 nodes a sublayer, each of which moves a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.sinkhorn import MOST, Sinkhorn
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.norm_parts import mean_of, number_of, plain
from bolt_build.planner.rewrite import GraphEditor, joined

_FEWEST = 3
"""Turns: one is a normalisation of its own."""


@dataclass(frozen=True)
class _Turn:
    """A division of `value` by the sums over an axis and an epsilon."""

    value: str
    axis: int
    epsilon: float


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_SINKHORN.name)
    known = set[str]()  # divisions of iterations that were looked at
    for old in reversed(editor.nodes()):
        last = editor.node(old.name)
        if last is None or last.op != Binary("div") or last.epilogue or last.name in known:
            continue
        if editor.type(last.outputs[0]).dtype not in PRECISIONS.values():
            continue  # doubles have kernels of divisions and of sums alone
        turns, node = list[_Turn](), last
        while (turn := _turn(editor, node)) is not None and _follows(turns, turn):
            turns.append(turn)
            known.add(node.name)
            above = plain(editor, turn.value)
            if above is None or _read_elsewhere(editor, turn.value) or above.op != Binary("div"):
                break
            node = above
        if len(turns) < _FEWEST:
            continue
        rows, columns = editor.type(last.outputs[0]).shape[-2:]
        if rows * columns > MOST:
            words = f"matrices of {rows}x{columns} have more than the {MOST} elements that a thread keeps"
            journal.declined(last.name, f"sinkhorn: {words}")
            continue
        _replace(editor, journal, last, turns)
    return journal.result(editor.finish())


def _turn(editor: GraphEditor, node: Node) -> _Turn | None:
    """The division that the node is, where it divides by the sums of a value's rows or columns."""
    value, below = node.inputs
    shape, epsilon, total = editor.type(node.outputs[0]).shape, 0.0, plain(editor, below)
    if len(shape) < 2 or editor.type(value).shape != shape or editor.not_private(below) is not None:
        return None
    if total is not None and total.op == Binary("add"):
        found = [(sums, number_of(editor, other)) for sums, other in (total.inputs, total.inputs[::-1])]
        sums, number = next(((sums, number) for sums, number in found if number is not None), (below, None))
        if number is None or editor.not_private(sums) is not None:
            return None
        below, epsilon = sums, number
    mean = mean_of(editor, below)
    if mean is None or mean.value != value or len(mean.axes) != 1 or any(map(editor.not_private, mean.inside)):
        return None
    axis = mean.axes[0] - len(shape)
    if axis not in (-1, -2) or not isclose(mean.times, shape[axis], rel_tol=1e-6):
        return None
    return _Turn(value, axis, epsilon)


def _follows(turns: list[_Turn], turn: _Turn) -> bool:
    """Whether the turn is one in front of those that were found, the last first."""
    return not turns or (turns[-1].axis != turn.axis and turns[-1].epsilon == turn.epsilon)


def _read_elsewhere(editor: GraphEditor, value: str) -> bool:
    """Whether anything but a turn's sum and its division needs the value."""
    return editor.is_output(value) or len(editor.readers(value)) > 2


def _replace(editor: GraphEditor, journal: Journal, last: Node, turns: list[_Turn]) -> None:
    first = turns[-1]
    op = Sinkhorn(len(turns), first.axis == -1, first.epsilon)
    made = replace(last, op=op, inputs=(first.value,))
    editor.replace(last, made)
    removed = editor.prune(last.inputs)
    editor.replace(made, replace(made, covers=joined(*(node.covers for node in removed), made.covers)))
    lines = "rows and columns" if op.rows_first else "columns and rows"
    journal.did(last.name, "recognised sinkhorn iterations", f"{len(turns)} turns of {lines} divided by their sums")


RECOGNISE_SINKHORN = Pass("recognise-sinkhorn", _run)
