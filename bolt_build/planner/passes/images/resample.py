"""Resizes images in one step on GPUs: interpolations along two axes beside each other would write and read what is
between them. Pixels that are repeated or left out, as the nearest ones are, are interpolations by one neighbour.

Places follow from shapes and attributes, as indices do: they are no weights of a model. What neighbours weigh is not
looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

MOST_TAPS = 8
"""Neighbours of a result along one axis: a kernel keeps as many rows in registers."""


@dataclass(frozen=True)
class _Axis:
    """One of the steps: a node, and the table of where its results begin. `weights` is None of a gather."""

    node: Node
    axis: int
    first: Array
    weights: str | None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RESAMPLE_IMAGES.name)
    for last in reversed(editor.nodes()):
        if editor.node(last.name) is not last:
            continue  # a step with the one behind it
        own = _axis(editor, journal, last)
        if own is None:
            continue
        before = _before(editor, journal, own)
        if before is None and own.weights is None:
            continue
        _replace(editor, [own] if before is None else [before, own])
        if before is None:
            journal.did(own.node.name, f"resampled along axis {own.axis}", "rows are interpolated as they are read")
        else:
            axes = " and ".join(str(axis) for axis in sorted((before.axis, own.axis)))
            journal.did(own.node.name, f"resampled along axes {axes} in one step", f"'{before.node.name}' is in front")
    return journal.result(editor.finish())


def _axis(editor: GraphEditor, journal: Journal, node: Node) -> _Axis | None:
    """None of a node that resizes nothing, or in a way that no kernel has."""
    if not isinstance(node.op, Interpolate | Gather) or node.epilogue:
        return None
    table = editor.constant(node.inputs[1])
    data = editor.type(node.inputs[0])
    if table is None or data.dtype not in PRECISIONS.values() or editor.is_constant(node.inputs[0]):
        return None
    extent = data.shape[node.op.axis]
    if isinstance(node.op, Gather):
        places = np.where(table < 0, table + extent, table)
        ordered = table.ndim == 1 and table.size > 0 and bool((np.diff(places) >= 0).all())
        inside = ordered and 0 <= places[0] <= places[-1] < extent
        return _Axis(node, node.op.axis, places.astype(np.int64), None) if inside else None
    if not editor.is_constant(node.inputs[2]):
        return None
    taps = table.shape[1]
    if taps > MOST_TAPS:
        journal.declined(node.name, f"a result is made of {taps} neighbours, of which a kernel keeps {MOST_TAPS}")
        return None
    first = beginnings(table, extent)
    if first is None:
        journal.declined(node.name, "what a result is made of does not lie beside each other")
        return None
    return _Axis(node, node.op.axis, first, node.inputs[2])


def beginnings(places: Array, extent: int) -> Array | None:
    """Where the neighbours of each result begin, in front of the edge too; None where they are not neighbours, of
    which those outside are the edge."""
    inside = places - np.arange(places.shape[1])
    # The last one at the front edge says how many are outside.
    front = -(np.count_nonzero(places == 0, axis=1) - 1)
    first = np.where(places[:, 0] > 0, inside[:, 0], front)
    again = np.clip(first[:, None] + np.arange(places.shape[1]), 0, extent - 1)
    return first.astype(np.int64) if np.array_equal(again, places) else None


def _before(editor: GraphEditor, journal: Journal, own: _Axis) -> _Axis | None:
    """The step in front that is along an axis beside this one's."""
    name = own.node.inputs[0]
    producer = editor.producer(name)
    if producer is None or (found := _axis(editor, journal, producer)) is None:
        return None
    if abs(found.axis - own.axis) != 1:
        return None
    if (reason := editor.not_private(name)) is not None:
        journal.declined(own.node.name, reason)
        return None
    return found


def _replace(editor: GraphEditor, steps: list[_Axis]) -> None:
    """One step in the place of the last of them."""
    (begin, *_), last = steps, steps[-1].node
    inputs, covers = [begin.node.inputs[0]], tuple(name for step in steps for name in step.node.covers)
    for step in sorted(steps, key=lambda each: each.axis):
        inputs.append(editor.new_constant(f"{step.node.name}.first", step.first, DType.I64))
        ones = np.ones((step.first.size, 1), np.float32)
        inputs.append(step.weights or editor.new_constant(f"{step.node.name}.weights", ones, DType.F32))
    op = Resample(tuple(sorted(step.axis for step in steps)))
    editor.replace(last, Node(last.name, op, tuple(inputs), last.outputs, covers=tuple(dict.fromkeys(covers))))
    for step in steps[:-1]:
        editor.remove(step.node)


RESAMPLE_IMAGES = Pass("resample-images", _run, pays_on=lambda target, precision: target.gpu is not None)
