"""Makes one gather of two along neighbouring axes and the transpose behind them, over both axes as one.

Exporters write torch's unfold so: rows of every window, columns of every window, and a transpose that brings what is of
one window together. Each of the three stores a tensor as many times as large as the image as a window has elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node, TensorType
from bolt_build.graph.ops.moves.gather import Gather, within
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined

_MOST = 1 << 22
"""Elements of the table that names what is taken."""


@dataclass(frozen=True)
class _Pair:
    """Two gathers behind each other, and their indices."""

    first: Node
    second: Node
    of_first: Array
    of_second: Array

    @property
    def axes(self) -> tuple[int, int]:
        """What they take along, of the first one's data."""
        assert isinstance(self.first.op, Gather)
        assert isinstance(self.second.op, Gather)
        first, second = self.first.op.axis, self.second.op.axis
        return first, second if second < first else second - self.of_first.ndim + 1


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(JOIN_GATHERS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Transpose) or node.epilogue:
            continue
        pair = _pair(editor, node.inputs[0])
        if pair is None:
            continue
        if (obstacle := _obstacle(editor, node.op, pair)) is not None:
            journal.declined(node.name, f"'{pair.first.name}' and '{pair.second.name}' stay apart: {obstacle}")
            continue
        _join(editor, node, node.op, pair)
        journal.did(node.name, "gathered at once", f"what '{pair.first.name}' and '{pair.second.name}' took")
    return journal.result(editor.finish())


def _pair(editor: GraphEditor, value: str) -> _Pair | None:
    """The two gathers by constant indices that a value comes of; None where it comes of others."""
    found = list[tuple[Node, Array]]()
    for _ in range(2):
        node = editor.producer(value)
        indices = None if node is None or not isinstance(node.op, Gather) else editor.constant(node.inputs[1])
        if node is None or node.epilogue or indices is None:
            return None
        found.append((node, indices))
        value = node.inputs[0]
    (second, of_second), (first, of_first) = found
    assert isinstance(first.op, Gather)
    assert isinstance(second.op, Gather)
    inside = first.op.axis <= second.op.axis < first.op.axis + of_first.ndim
    return None if inside or editor.is_constant(value) else _Pair(first, second, of_first, of_second)


def _obstacle(editor: GraphEditor, op: Transpose, pair: _Pair) -> str | None:
    """Why two gathers are not one; None where they may be."""
    for value in (*pair.first.outputs, *pair.second.outputs):
        if (reason := editor.not_private(value)) is not None:
            return reason
    before, behind = sorted(pair.axes)
    if behind != before + 1:
        return "they take along axes that are no neighbours"
    last = before + pair.of_first.ndim + pair.of_second.ndim
    if any(op.perm[axis] != axis for axis in (*range(before), *range(last, len(op.perm)))):
        return "the transpose moves other axes too"
    shape = editor.type(pair.first.inputs[0]).shape
    for axis, indices in zip(pair.axes, (pair.of_first, pair.of_second), strict=True):
        if indices.size and not -shape[axis] <= indices.min() <= indices.max() < shape[axis]:
            return f"an index lies outside of an axis of {shape[axis]}"
    many = pair.of_first.size * pair.of_second.size
    return f"they name {many} places, over {_MOST}" if many > _MOST else None


def _join(editor: GraphEditor, node: Node, op: Transpose, pair: _Pair) -> None:
    """[..., A, B, ...] as [..., A B, ...], of which one table of places takes, in the order of the transpose."""
    (data, *_), (before, _) = pair.first.inputs, sorted(pair.axes)
    type_ = editor.type(data)
    rows, columns = type_.shape[before : before + 2]
    places = (pair.of_first, pair.of_second) if pair.axes[0] == before else (pair.of_second, pair.of_first)
    row, column = within(places[0], rows), within(places[1], columns)
    table = np.add.outer(row.astype(np.int64) * columns, column.astype(np.int64))
    table = table.transpose([axis - before for axis in op.perm[before : before + table.ndim]])
    flat = (*type_.shape[:before], prod((rows, columns)), *type_.shape[before + 2 :])
    value = editor.new_value(f"{data}.flat", TensorType(type_.dtype, flat))
    reshape = Node(editor.free_node_name(f"{node.name}.flat"), Reshape(flat), (data,), (value,))
    name = editor.new_constant(f"{node.name}.places", np.ascontiguousarray(table), DType.I64)
    covers = joined(pair.first.covers, pair.second.covers, node.covers)
    made = Node(node.name, Gather(before), (value, name), node.outputs, covers=covers)
    taken = node.inputs
    editor.replace(node, reshape, made)
    editor.prune(taken)


JOIN_GATHERS = Pass("join-gathers", _run)
