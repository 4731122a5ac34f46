"""Computes once what a model computes alike for many overlapping cuts of one tensor, whose results it concatenates.

Exporters write a step of each kind for every cut: correlations of a pixel with 81 neighbours in another image (PWC-Net,
FlowNet), costs of 48 disparities (stereo), neighbours that predicted kernels weigh. Such steps have little to do each.
One gather puts the cuts beside each other, and what follows is done to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

_FEWEST = 4
"""Cuts that are worth it."""
_MOST_PLACES, _MOST = 1 << 22, 1 << 27
"""Elements of the table that names what is taken, and of a tensor that holds all cuts: each would be large enough for
steps of its own."""

Shape = tuple[int, ...]


class _Unlike(Exception):
    """Why values are not computed alike."""


@dataclass(frozen=True)
class _Window:
    """A cut of `source` [begin, begin + count), which reads zeros outside of it."""

    source: str
    begin: tuple[int, ...]
    count: tuple[int, ...]


@dataclass(frozen=True)
class _Shared:
    """A value that all branches read, in whose shape an axis of one element is put at `place`; none where it has no
    such axis."""

    value: str
    place: int


@dataclass(frozen=True)
class _Cuts:
    """The windows of all branches, beside each other along a new axis at `place`."""

    windows: tuple[_Window, ...]
    place: int


@dataclass(frozen=True)
class _Done:
    """What `op` makes of all branches."""

    op: Op
    inputs: tuple[_Shared | _Cuts | _Done, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATHER_WINDOWS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Concat) or node.epilogue or len(node.inputs) < _FEWEST:
            continue
        shape = editor.type(node.inputs[0]).shape
        if shape[node.op.axis] != 1 or len(set(node.inputs)) == 1:
            continue
        place = _place(shape, node.op.axis)
        try:
            made = _alike(editor, node.inputs, place)
        except _Unlike as unlike:
            if unlike.args:
                journal.declined(node.name, str(unlike))
            continue
        if not _has_cuts(made):  # the same value again and again
            continue
        _build(editor, node, made)
        journal.did(node.name, "gathered its windows", f"{len(node.inputs)} cuts of one tensor are computed alike")
    return journal.result(editor.finish())


def _has_cuts(made: _Shared | _Cuts | _Done) -> bool:
    """Whether branches differ by their cuts; otherwise nothing puts them beside each other."""
    return isinstance(made, _Cuts) or (isinstance(made, _Done) and any(map(_has_cuts, made.inputs)))


def _place(shape: Shape, axis: int) -> int:
    """Where the results' new axis stands, the furthest behind that changes no order of elements."""
    while axis < len(shape) and shape[axis] == 1:
        axis += 1
    return axis


def _alike(editor: GraphEditor, values: Sequence[str], place: int) -> _Shared | _Cuts | _Done:
    """How all `values` are computed at once. Raises _Unlike, with a reason where only sizes are against it."""
    shapes = {editor.type(value).shape for value in values}
    if len(shapes) != 1:
        raise _Unlike
    (shape,) = shapes
    if len(set(values)) == 1:
        return _Shared(values[0], place)
    if prod(shape) * len(values) > _MOST:
        raise _Unlike(f"{len(values)} cuts of {prod(shape)} elements are computed apart: {_MOST} would be kept at most")
    windows = tuple(_window(editor, value) for value in values)
    if _overlap(windows):
        return _Cuts(windows, place)
    nodes = [editor.producer(value) for value in values]
    first = nodes[0]
    if first is None or any(
        node is None or node.op != first.op or node.epilogue or len(node.inputs) != len(first.inputs) for node in nodes
    ):
        raise _Unlike
    if editor.not_private(*values) is not None:
        raise _Unlike
    branches = [node for node in nodes if node is not None]
    op, count = first.op, len(values)
    if isinstance(op, Activation) and len(first.inputs) == 1:
        return _Done(op, (_alike(editor, [node.inputs[0] for node in branches], place),))
    if isinstance(op, Binary):
        sides = []
        for side in range(2):
            names = [node.inputs[side] for node in branches]
            own = place - len(shape) + len(editor.type(names[0]).shape)
            if own < 0 and len(set(names)) > 1:
                raise _Unlike
            sides.append(_alike(editor, names, max(own, 0)))
        return _Done(op, tuple(sides))
    names, given = [node.inputs[0] for node in branches], editor.type(first.inputs[0]).shape
    if isinstance(op, Reduce):
        kept = [axis for axis in range(len(given)) if op.keepdims or axis not in op.axes]
        own = kept[place] if place < len(kept) else len(given)
        axes = tuple(axis + (axis >= own) for axis in op.axes)
        return _Done(replace(op, axes=axes), (_alike(editor, names, own),))
    if isinstance(op, Reshape):
        own = _before_reshape(given, prod(shape[:place]))
        return _Done(Reshape((*shape[:place], count, *shape[place:])), (_alike(editor, names, own),))
    raise _Unlike


def _before_reshape(shape: Shape, elements: int) -> int:
    """The last place in front of which the shape has so many elements. Raises _Unlike where there is none."""
    places = [place for place in range(len(shape) + 1) if prod(shape[:place]) == elements]
    if not places:
        raise _Unlike
    return places[-1]


def _window(editor: GraphEditor, value: str) -> _Window:
    """The furthest tensor that a value is a cut of, perhaps with zeros around it."""
    shape = editor.type(value).shape
    node = editor.producer(value)
    here = _Window(value, (0,) * len(shape), shape)
    if node is None or node.epilogue:
        return here
    if isinstance(node.op, Slice) and all(step == 1 for step in node.op.step):
        inner = _window(editor, node.inputs[0])
        begin = tuple(a + b for a, b in zip(inner.begin, node.op.begin, strict=True))
        return _Window(inner.source, begin, node.op.count)
    if isinstance(node.op, Pad) and node.op.mode == "constant" and node.op.value == 0:
        inner = _window(editor, node.inputs[0])
        extents = editor.type(inner.source).shape
        sides = zip(inner.begin, inner.count, node.op.begin, node.op.end, extents, strict=True)
        for first, count, before, behind, extent in sides:
            if min(before, behind) < 0 or (before and first > 0) or (behind and first + count < extent):
                return here
        begins = tuple(a - b for a, b in zip(inner.begin, node.op.begin, strict=True))
        return _Window(inner.source, begins, shape)
    return here


def _overlap(windows: Sequence[_Window]) -> bool:
    """Whether windows of one tensor lie apart and share elements: those that share none are better moved as they
    are."""
    first, second = windows[:2]
    apart = len({window.begin for window in windows}) > 1
    return (
        apart
        and len({window.source for window in windows}) == 1
        and all(abs(a - b) < count for a, b, count in zip(first.begin, second.begin, first.count, strict=True))
    )


def _build(editor: GraphEditor, node: Node, made: _Shared | _Cuts | _Done) -> None:
    added = list[Node]()

    def add(op: Op, *inputs: str) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.outputs[0]}.{op.kind}", type_)
        names = {each.name for each in added}
        added.append(Node(editor.free_node_name(f"{node.name}.{op.kind}", names), op, inputs, (value,)))
        return value

    def result(of: _Shared | _Cuts | _Done) -> str:
        if isinstance(of, _Shared):
            shape = editor.type(of.value).shape
            return add(Reshape((*shape[: of.place], 1, *shape[of.place :])), of.value) if of.place else of.value
        if isinstance(of, _Done):
            return add(of.op, *map(result, of.inputs))
        return _gathered(of)

    def _gathered(of: _Cuts) -> str:
        x = of.windows[0].source
        extents, count = editor.type(x).shape, of.windows[0].count
        begins = np.asarray([window.begin for window in of.windows])
        low = np.maximum(-begins.min(0), 0)
        high = np.maximum((begins + count).max(0) - extents, 0)
        if low.any() or high.any():
            x = add(Pad(tuple(map(int, low)), tuple(map(int, high))), x)
        padded = editor.type(x).shape
        cut = [axis for axis, extent in enumerate(padded) if begins[:, axis].any() or count[axis] != extent]
        lead = min(of.place, *cut)
        flat = add(Reshape((*padded[:lead], prod(padded[lead:]))), x)
        table = _table(begins + low, count, padded, lead, of.place)
        return add(Gather(lead), flat, editor.new_constant(f"{node.name}.places", table, DType.I64))

    value = result(made)
    last = Reshape(editor.type(node.outputs[0]).shape)
    editor.replace(node, *added, Node(node.name, last, (value,), node.outputs, covers=node.covers))
    editor.prune(node.inputs)


def _table(begins: Array, count: Shape, extents: Shape, lead: int, place: int) -> Array:
    """Where the elements of all windows lie in the axes from `lead` on, as one: the windows' axis is at `place`."""
    rank = len(extents) - lead
    found = np.zeros((len(begins), *(1,) * rank), np.int64)
    for axis in range(lead, len(extents)):
        own = [1] * (rank + 1)
        own[0], own[1 + axis - lead] = len(begins), count[axis]
        at = (begins[:, axis, None] + np.arange(count[axis])).reshape(own)
        found = found + at * prod(extents[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(found, 0, place - lead))


GATHER_WINDOWS = Pass("gather-windows", _run, pays_on=on_tensor_cores)
