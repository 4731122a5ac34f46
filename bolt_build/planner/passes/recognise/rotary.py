"""Recognises rotary embedding that a model spells out: pairs of a head's elements turned by angles that rows have.

Pairs are halves of the turned elements or neighbours; the turned other of a pair is made of slices that are put
together again, or both elements are computed apart. Elements and rows that pass by, as a class token does, are turned
by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, ShapeError
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.heads import Rotary
from bolt_build.graph.ops.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy


@dataclass(frozen=True)
class _Turned:
    """The value that is turned, how, and the values of cosines and sines; `halves`: they have a number a pair."""

    x: str | _Part
    interleaved: bool
    cos: str
    sin: str
    halves: bool = False


@dataclass(frozen=True)
class _Part:
    """What slices take of `source`: of each axis `count` elements from `begin` on, each `step` further."""

    source: str
    begin: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_ROTARY.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        if node.op == Binary("add"):
            found = _sum(editor, node)
        elif isinstance(node.op, Concat | Reshape):
            found = _pairs(editor, node)
            if found is None and isinstance(node.op, Concat):
                _around(editor, journal, node, node.op)
        else:
            continue
        if found is not None:
            _replace(editor, journal, node, found)
    return journal.result(editor.finish())


def _sum(editor: GraphEditor, node: Node) -> _Turned | None:
    """x cos + r(x) sin, whichever side stands first."""
    left, right = (_factors(editor, name) for name in node.inputs)
    if left is None or right is None:
        return None
    for straight, crossed in ((left, right), (right, left)):
        for other, sin in (crossed, crossed[::-1]):
            source = _exchanged(editor, other)
            if source is None:
                continue
            x, interleaved = source
            for same, cos in (straight, straight[::-1]):
                if _part(editor, same) == x:
                    return _Turned(same, interleaved, cos, sin)
    return None


def _exchanged(editor: GraphEditor, value: str) -> tuple[_Part, bool] | None:
    """(x, interleaved) where the value is r(x): pairs exchanged, with the sign of the first turned."""
    parts = _parts(editor, value)
    if parts is None:
        return None
    (first, second), interleaved = parts
    negative = _plain(editor, first, Activation("neg"))
    taken = None if negative is None else _taken_pair(editor, (second, negative.inputs[0]))
    return None if taken is None or taken[1] != interleaved else taken


def _pairs(editor: GraphEditor, node: Node) -> _Turned | None:
    """x1 cos - x2 sin and x2 cos + x1 sin, put together again."""
    parts = _parts(editor, node.outputs[0])
    if parts is None:
        return None
    (first, second), interleaved = parts
    ends = _plain(editor, first, Binary("sub")), _plain(editor, second, Binary("add"))
    if ends[0] is None or ends[1] is None:
        return None
    a, b = (_factors(editor, name) for name in ends[0].inputs)
    c, d = (_factors(editor, name) for name in ends[1].inputs)
    if a is None or b is None or c is None or d is None:
        return None
    for x1, cos in (a, a[::-1]):
        for x2, sin in (b, b[::-1]):
            both = {frozenset(c), frozenset(d)}
            if both != {frozenset((x2, cos)), frozenset((x1, sin))}:
                continue
            taken = _taken_pair(editor, (x1, x2))
            if taken is not None and taken[1] == interleaved:
                return _Turned(taken[0], interleaved, cos, sin, halves=True)
    return None


def _parts(editor: GraphEditor, value: str) -> tuple[tuple[str, str], bool] | None:
    """The first and the second elements of all pairs, and whether these are neighbours in `value`."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return None
    if isinstance(node.op, Reshape):
        inner, shape = editor.producer(node.inputs[0]), editor.type(value).shape
        wide = editor.type(node.inputs[0]).shape
        if inner is None or inner.op != Concat(len(shape)) or len(inner.inputs) != 2 or wide[-1:] != (2,):
            return None
        if wide[:-1] != (*shape[:-1], shape[-1] // 2):
            return None
        columns = [_plain_reshape(editor, name) for name in inner.inputs]
        return None if columns[0] is None or columns[1] is None else ((columns[0], columns[1]), True)
    if not isinstance(node.op, Concat) or len(node.inputs) != 2 or node.op.axis != editor.type(value).rank - 1:
        return None
    first, second = node.inputs
    return ((first, second), False) if editor.type(first) == editor.type(second) else None


def _plain_reshape(editor: GraphEditor, value: str) -> str | None:
    """What is reshaped to `value` by an axis of one element behind it."""
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Reshape):
        return None
    shape = editor.type(value).shape
    return node.inputs[0] if shape == (*editor.type(node.inputs[0]).shape, 1) else None


def _taken_pair(editor: GraphEditor, names: tuple[str, str]) -> tuple[_Part, bool] | None:
    """(x, interleaved) where the two are the first and the second elements of all pairs of x's last axis."""
    first, second = (_part(editor, name) for name in names)
    count, ahead = first.count[-1], second.begin[-1] - first.begin[-1]
    interleaved = (first.step[-1], ahead) == (2, 1)
    if not interleaved and (first.step[-1], ahead) != (1, count):
        return None
    if replace(second, begin=(*second.begin[:-1], first.begin[-1])) != first:
        return None
    whole = replace(first, count=(*first.count[:-1], 2 * count), step=(*first.step[:-1], 1))
    return whole, interleaved


def _part(editor: GraphEditor, value: str) -> _Part:
    """The value as a part of what it is sliced from."""
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Slice):
        shape = editor.type(value).shape
        return _Part(value, (0,) * len(shape), shape, (1,) * len(shape))
    of, op = _part(editor, node.inputs[0]), node.op
    begin = tuple(a + b * c for a, b, c in zip(of.begin, op.begin, of.step, strict=True))
    step = tuple(1 if n == 1 else a * b for a, b, n in zip(of.step, op.step, op.count, strict=True))
    return _Part(of.source, begin, op.count, step)


def _factors(editor: GraphEditor, value: str) -> tuple[str, str] | None:
    node = _plain(editor, value, Binary("mul"))
    return None if node is None else (node.inputs[0], node.inputs[1])


def _plain(editor: GraphEditor, value: str, op: Activation | Binary) -> Node | None:
    """The node that makes the value, where it is this operator and nothing else."""
    node = editor.producer(value)
    return node if node is not None and node.op == op and not node.epilogue else None


def _replace(editor: GraphEditor, journal: Journal, node: Node, found: _Turned) -> None:
    op = Rotary(found.interleaved)
    angles = [found.cos, found.sin]
    added: list[Node] = []
    x = found.x if isinstance(found.x, str) else _sliced(editor, found.x, added)
    if found.halves:
        for index, name in enumerate(angles):
            angles[index] = _widened(editor, name, added, interleaved=found.interleaved)
    inputs = (x, *angles)
    try:
        (made_type,) = op.infer([editor.type(name) for name in inputs])
    except ShapeError as error:
        journal.declined(node.name, f"rotary embedding: {error}")
        return
    if made_type != editor.type(node.outputs[0]):
        journal.declined(node.name, f"rotary embedding: '{node.outputs[0]}' is larger than '{x}'")
        return
    made = Node(node.name, op, inputs, node.outputs, covers=node.covers)
    editor.replace(node, *added, made)
    removed = editor.prune(node.inputs)
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
    pairs = "neighbours" if found.interleaved else "halves"
    journal.did(node.name, "recognised rotary embedding", f"of {editor.type(angles[0]).shape[-1]} elements, in {pairs}")


def _sliced(editor: GraphEditor, part: _Part, added: list[Node]) -> str:
    """The part as a value."""
    if (part.begin, part.count) == ((0,) * len(part.count), editor.type(part.source).shape):
        return part.source
    return _added(editor, added, Slice(part.begin, part.count, part.step), [part.source])


def _widened(editor: GraphEditor, name: str, added: list[Node], *, interleaved: bool) -> str:
    """Angles with a number a pair as angles with a number an element."""
    shape = editor.type(name).shape
    array = editor.constant(name)
    if array is not None:
        wide = np.repeat(array, 2, axis=-1) if interleaved else np.concatenate((array, array), axis=-1)
        return _constant(editor, f"{name}.both", wide, name)
    parts, axis = [name, name], len(shape) - 1
    if interleaved:
        parts, axis = [_added(editor, added, Reshape((*shape, 1)), [name])] * 2, len(shape)
    both = _added(editor, added, Concat(axis), parts)
    return _added(editor, added, Reshape((*shape[:-1], 2 * shape[-1])), [both]) if interleaved else both


def _added(editor: GraphEditor, added: list[Node], op: Concat | Reshape | Slice, inputs: list[str]) -> str:
    (type_,) = op.infer([editor.type(name) for name in inputs])
    value = editor.new_value(f"{inputs[0]}.both", type_)
    added.append(Node(editor.free_node_name(value), op, tuple(inputs), (value,)))
    return value


def _constant(editor: GraphEditor, name: str, array: Array, like: str) -> str:
    dtype = editor.type(like).dtype
    return editor.new_constant(name, np.ascontiguousarray(array).astype(held_dtype(dtype), copy=False), dtype)


def _around(editor: GraphEditor, journal: Journal, node: Node, op: Concat) -> None:
    """Turns a tensor as a whole of which a part passes by: other elements of each head, or other rows."""
    turned = [editor.producer(name) for name in node.inputs]
    at = [index for index, each in enumerate(turned) if each is not None and isinstance(each.op, Rotary)]
    if len(at) != 1 or len(node.inputs) < 2:
        return
    rotary = turned[at[0]]
    assert rotary is not None
    axis, parts = op.axis, [
        _part(editor, rotary.inputs[0] if index == at[0] else name) for index, name in enumerate(node.inputs)
    ]  # fmt: skip
    first, begin = parts[0], parts[0].begin[op.axis]
    for part in parts:
        own = (part.source, part.begin[:axis], part.begin[axis + 1 :], part.count[:axis], part.count[axis + 1 :])
        if own != (first.source, first.begin[:axis], first.begin[axis + 1 :], first.count[:axis],
                   first.count[axis + 1 :]) or part.begin[axis] != begin or any(n != 1 for n in part.step):  # fmt: skip
            return
        begin += part.count[axis]
    type_ = editor.type(node.outputs[0])
    obstacle = editor.not_private(rotary.outputs[0])
    if axis != type_.rank - 1 and editor.type(first.source) != type_:
        return
    angles = rotary.inputs[1:]
    if obstacle is None and op.axis == type_.rank - 1:
        if at[0] != 0:
            obstacle = "turned elements stand behind others"
    elif obstacle is None:
        counts = [part.count[axis] for part in parts]
        before, behind = sum(counts[: at[0]]), sum(counts[at[0] + 1 :])
        extended = [_extended(editor, name, op.axis, (before, behind), first.source, value)
                    for name, value in zip(angles, (1.0, 0.0), strict=True)]  # fmt: skip
        if extended[0] is None or extended[1] is None:
            obstacle = "angles are no constants that rows have"
        else:
            angles = (extended[0], extended[1])
    if obstacle is not None:
        journal.declined(node.name, f"around rotary embedding: {obstacle}")
        return
    slices, x = list[Node](), first.source
    if editor.type(x) != type_:  # of queries, keys and values side by side
        x = _added(editor, slices, Slice(first.begin, type_.shape, first.step), [x])
    made = Node(node.name, rotary.op, (x, *angles), node.outputs, covers=joined(rotary.covers, node.covers))
    editor.replace(node, *slices, made)
    removed = [each for each in editor.prune(node.inputs) if each.name != rotary.name]
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
    journal.did(made.name, "recognised rotary embedding", f"of all of '{x}', where a part passed by")


def _extended(
    editor: GraphEditor, name: str, axis: int, around: tuple[int, int], x: str, value: float
) -> str | None:  # fmt: skip
    """Angles of more rows along an axis of `x`, which are turned by nothing; None where rows have none of their own."""
    array, rank = editor.constant(name), editor.type(x).rank
    own = axis - (rank - editor.type(name).rank)
    if array is None or own < 0:
        return None
    if array.shape[own] == 1 != editor.type(x).shape[axis] - sum(around):
        return None
    widths = [(0, 0)] * array.ndim
    widths[own] = around
    return _constant(editor, f"{name}.all", np.pad(array, widths, constant_values=value), name)


RECOGNISE_ROTARY = Pass("recognise-rotary", _run)
