"""Puts updates between slices of the data where a scatter's constant indices name a box of it.

PyTorch's exporters write an assignment to a slice, `x[:, :-1, :, w:] = y`, as ScatterND: an index for every element of
the slice. torch.export writes one to a place of an axis, `x[:, t] = y`, as ScatterElements. Scatters write one update
after the other, because indices may name a place twice. Slices and a concatenation move memory at its bandwidth, and
need no indices.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_MOVES = 4
"""Reshapes and expansions between an arange and its indices."""
Box = tuple[tuple[int, int], ...]
"""Where each axis begins and ends."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SLICE_SCATTERS.name)
    for node in editor.nodes():
        if not isinstance(node.op, ScatterND | ScatterElements) or node.op.reduction != "none":
            continue
        shape = editor.type(node.inputs[0]).shape
        if isinstance(node.op, ScatterND):
            named = named_indices(editor, node.inputs[1])
        else:
            named = _named_elements(editor, node.inputs[1], node.op.axis)
        if named is None:
            continue
        box = named_box(named, shape)
        if box is None:
            journal.declined(node.name, f"'{node.inputs[1]}' names no box of '{node.inputs[0]}' in its order")
            continue
        _sliced(editor, node, shape, box)
        journal.did(node.name, "made slices", f"its indices are all of {_said(box)}")
    return journal.result(editor.finish())


def named_indices(editor: GraphEditor, value: str) -> list[Array] | None:
    """What an index says along each axis of the data, broadcast to the places of updates; None of one that data decide.

    Exporters concatenate an arange along each axis, expanded to all places. So many indices are no constant: a kernel
    repeats them."""
    indices = editor.constant(value)
    if indices is not None:
        return [indices[..., axis] for axis in range(indices.shape[-1])] if indices.size else None
    whole, node = editor.type(value), editor.producer(value)
    if node is None or not isinstance(node.op, Concat) or node.op.axis != whole.rank - 1:
        return None
    found = list[Array]()
    for name in node.inputs:
        index = _expanded(editor, name, whole.shape[:-1])
        if index is None:
            return None
        found.append(index)
    return found


def _named_elements(editor: GraphEditor, value: str, axis: int) -> list[Array] | None:
    """What indices of single elements along `axis` say along each axis of the data; None of those that data decide."""
    places, index = editor.type(value).shape, editor.constant(value)
    for _ in range(_MOVES):
        node = editor.producer(value)
        if index is not None or node is None or node.epilogue or not isinstance(node.op, Expand | Reshape):
            break
        value = node.inputs[0]
        found = editor.constant(value)
        index = found.reshape(()) if found is not None and found.size == 1 else None
    if index is None or not index.size or not all(places):
        return None
    found_along = np.meshgrid(*(np.arange(extent) for extent in places), indexing="ij", sparse=True)
    named: list[Array] = [np.broadcast_to(along, places) for along in found_along]
    named[axis] = np.broadcast_to(index, places)
    return named


def _expanded(editor: GraphEditor, value: str, places: tuple[int, ...]) -> Array | None:
    """The constant of which a reshape of an expansion is [*places, 1], broadcast to `places` without its memory."""
    if editor.type(value).shape != (*places, 1):
        return None
    for _ in range(_MOVES):
        array, node = editor.constant(value), editor.producer(value)
        if array is not None:
            if array.shape == (*places, 1):
                array = array[..., 0]
            try:
                return np.broadcast_to(array, places)
            except ValueError:
                return None
        if node is None or node.epilogue or not isinstance(node.op, Expand | Reshape):
            return None
        if isinstance(node.op, Reshape) and editor.type(node.inputs[0]).shape != places:
            return None
        if isinstance(node.op, Expand) and editor.type(value).shape != places:
            return None
        value = node.inputs[0]
    return None


def named_box(named: list[Array], shape: tuple[int, ...]) -> Box | None:
    """The box of the data that the indices name row by row, each place once; None where they name no box."""
    places = named[0].shape
    bounds = []
    for index, extent in zip(named, shape, strict=False):
        first, last = (int(index.flat[at]) for at in (0, -1))
        begin, end = (each + extent if each < 0 else each for each in (first, last))
        if not 0 <= begin <= end < extent:
            return None
        bounds.append((begin, end + 1))
    counts = tuple(end - begin for begin, end in bounds)
    if prod(counts) != prod(places) or tuple(n for n in counts if n > 1) != tuple(n for n in places if n > 1):
        return None
    axes = iter([axis for axis, extent in enumerate(places) if extent > 1])
    for index, extent, (begin, end) in zip(named, shape, bounds, strict=False):
        wanted = np.arange(begin, end)
        along = [1] * len(places)
        if end - begin > 1:
            along[next(axes)] = end - begin
        wanted = wanted.reshape(along)
        if not ((index == wanted) | (index == wanted - extent)).all():
            return None
    return (*bounds, *((0, extent) for extent in shape[len(named) :]))


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
