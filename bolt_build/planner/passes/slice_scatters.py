"""Puts updates between slices of the data where a scatter's constant indices name a box of it.

PyTorch's exporters write an assignment to a slice, `x[:, :-1, :, w:] = y`, as ScatterND: an index for every element of
the slice. Scatters write one update after the other, because indices may name a place twice. Slices and a
concatenation move memory at its bandwidth, and need no indices.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.scatter import ScatterND
from bolt_build.graph.ops.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.attention_operands import Chain
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy

Box = tuple[tuple[int, int], ...]
"""Where each axis begins and ends."""


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_SCATTERS.name)
    for node in editor.nodes():
        if not isinstance(node.op, ScatterND) or node.op.reduction != "none":
            continue
        indices, shape = editor.constant(node.inputs[1]), editor.type(node.inputs[0]).shape
        if indices is None or not indices.size:
            continue
        box = _box(indices, shape)
        if box is None:
            journal.declined(node.name, f"'{node.inputs[1]}' names no box of '{node.inputs[0]}' in its order")
            continue
        _sliced(editor, node, shape, box)
        journal.did(node.name, "made slices", f"its indices are all of {_said(box)}")
    return journal.result(editor.finish())


def _box(indices: Array, shape: tuple[int, ...]) -> Box | None:
    """The box of the data that the indices name row by row, each place once; None where they name no box."""
    depth = indices.shape[-1]
    rows = indices.reshape(-1, depth)
    rows = np.where(rows < 0, rows + np.asarray(shape[:depth], rows.dtype), rows)
    first, last = rows[0], rows[-1]
    counts = tuple(int(count) for count in last - first + 1)
    if any(count < 1 for count in counts) or prod(counts) != len(rows):
        return None
    if (first < 0).any() or (last >= np.asarray(shape[:depth])).any():
        return None
    for axis in range(depth):
        along = [1] * depth
        along[axis] = counts[axis]
        wanted = np.arange(first[axis], last[axis] + 1).reshape(along)
        if (rows[:, axis].reshape(counts) != wanted).any():
            return None
    named = tuple((int(begin), int(begin) + count) for begin, count in zip(first, counts, strict=True))
    return (*named, *((0, extent) for extent in shape[depth:]))


def _sliced(editor: GraphEditor, node: Node, shape: tuple[int, ...], box: Box) -> None:
    data, _, updates = node.inputs
    chain = Chain(editor, f"{node.name}.slices")
    inside = tuple(end - begin for begin, end in box)
    value = updates
    if editor.type(updates).shape != inside:
        value = chain.add(Reshape(inside), [updates])
    cut = [axis for axis, bounds in enumerate(box) if bounds != (0, shape[axis])]
    for axis in reversed(cut):  # what lies beside the box along an axis has its extents along those in front
        (begin, end), extents = box[axis], list(editor.type(value).shape)
        sides = []
        for low, high in ((0, begin), (end, shape[axis])):
            lows = [box[other][0] if other < axis else 0 for other in range(len(shape))]
            lows[axis], extents[axis] = low, high - low
            part = Slice(tuple(lows), tuple(extents), (1,) * len(shape))
            sides.append(chain.add(part, [data]) if low < high else None)
        value = chain.add(Concat(axis), [each for each in (sides[0], value, sides[1]) if each is not None])
    if not chain.nodes:
        value = chain.add(Reshape(shape), [updates])
    *front, last = chain.nodes
    end_node = Node(node.name, last.op, last.inputs, node.outputs, covers=joined(node.covers))
    editor.replace(node, *front, end_node)


def _said(box: Box) -> str:
    return "[" + ", ".join(f"{begin}:{end}" for begin, end in box) + "]"


SLICE_SCATTERS = Pass("slice-scatters", _run)
