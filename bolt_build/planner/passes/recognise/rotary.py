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
from bolt_build.graph.ops.attention.heads import Rotary
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.rotary_parts import (
    Part,
    factors_of,
    made_by,
    opposite,
    pair_parts,
    part_of,
    taken_pair,
    terms_of,
)
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Turned:
    """The value that is turned, how, and the values of cosines and sines; `halves`: they have a number a pair. If
    `back`, it is turned by the angles' negatives. Its first `passed` elements stay."""

    x: str | Part
    interleaved: bool
    cos: str
    sin: str
    halves: bool = False
    back: bool = False
    passed: int = 0


def _run(graph: Graph) -> PassResult:
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
    left, right = (factors_of(editor, name) for name in node.inputs)
    if left is None or right is None:
        return None
    for straight, crossed in ((left, right), (right, left)):
        for other, sin in (crossed, crossed[::-1]):
            source = _exchanged(editor, other)
            if source is None:
                continue
            x, interleaved, back = source
            for same, cos in (straight, straight[::-1]):
                if part_of(editor, same) == x:
                    return _Turned(same, interleaved, cos, sin, back=back)
    return None


def _exchanged(editor: GraphEditor, value: str) -> tuple[Part, bool, bool] | None:
    """(x, interleaved, back) where the value is r(x): pairs exchanged, with the sign of the first turned; if `back`,
    that of the second."""
    parts = pair_parts(editor, value)
    if parts is None:
        return None
    (first, second), interleaved = parts
    for back, (x2, x1) in ((False, (made_by(editor, first, Activation("neg")), second)),
                           (True, (made_by(editor, second, Activation("neg")), first))):  # fmt: skip
        if x2 is None:
            continue
        pair = (x2.inputs[0], x1) if back else (x1, x2.inputs[0])
        taken = taken_pair(editor, pair, columns=interleaved)
        if taken is not None and taken[1] == interleaved:
            return (*taken, back)
    return None


def _pairs(editor: GraphEditor, node: Node) -> _Turned | None:
    """x1 cos - x2 sin and x2 cos + x1 sin, put together again, or with the other signs. Elements in front of them or
    behind them that pass by may be put together with both at once."""
    found = pair_parts(editor, node.outputs[0])
    if found is not None:
        return _turned_pair(editor, *found)
    if (
        not isinstance(node.op, Concat)
        or len(node.inputs) != 3
        or node.op.axis != editor.type(node.outputs[0]).rank - 1
    ):
        return None
    first, second, third = node.inputs
    turned = _turned_pair(editor, (first, second), interleaved=False, behind=third)
    return turned or _turned_pair(editor, (second, third), interleaved=False, ahead=first)


def _turned_pair(
    editor: GraphEditor, pair: tuple[str, str], interleaved: bool, *, ahead: str = "", behind: str = ""
) -> _Turned | None:
    upper, lower = (terms_of(editor, each) for each in pair)
    if upper is None or lower is None:
        return None
    for straight, crossed in (upper, upper[::-1]):
        for below, beside in (lower, lower[::-1]):
            for x1, cos in (straight.factors, straight.factors[::-1]):
                x2, sin = below.beside(cos), beside.beside(x1)
                other = None if x2 is None else crossed.beside(x2)
                if x2 is None or sin is None or other is None or straight.sign < 0 or below.sign < 0:
                    continue
                if not opposite(editor, other, crossed.sign, sin, beside.sign):
                    continue
                taken = taken_pair(editor, (x1, x2), columns=interleaved)
                if taken is None or taken[1] != interleaved or not _one_a_pair(editor, (cos, sin), taken[0]):
                    continue
                parts = [part_of(editor, ahead)] if ahead else []
                whole = _joined(*parts, taken[0], *([part_of(editor, behind)] if behind else []))
                if whole is not None:
                    passed = parts[0].count[-1] if parts else 0
                    return _Turned(whole, interleaved, cos, sin, halves=True, back=beside.sign < 0, passed=passed)
    return None


def _one_a_pair(editor: GraphEditor, angles: tuple[str, str], pairs: Part) -> bool:
    """Whether both have a number for each pair: one of all pairs would be taken for the first pair's alone."""
    return all(2 * sum(editor.type(name).shape[-1:]) == pairs.count[-1] for name in angles)


def _joined(whole: Part, *others: Part) -> Part | None:
    """All as one part, where each follows those in front of it along the last axis."""
    for rest in others:
        behind = (*whole.begin[:-1], whole.begin[-1] + whole.count[-1])
        if rest != replace(whole, begin=behind, count=(*whole.count[:-1], rest.count[-1])):
            return None
        whole = replace(whole, count=(*whole.count[:-1], whole.count[-1] + rest.count[-1]))
    return whole


def _replace(editor: GraphEditor, journal: Journal, node: Node, found: _Turned) -> None:
    op = Rotary(found.interleaved, found.passed)
    angles = [found.cos, found.sin]
    added: list[Node] = []
    x = found.x if isinstance(found.x, str) else _sliced(editor, found.x, added)
    if found.halves:
        for index, name in enumerate(angles):
            angles[index] = _widened(editor, name, added, interleaved=found.interleaved)
    if found.back:
        angles[1] = _negative(editor, angles[1], added)
    inputs = (x, *angles)
    try:
        (made_type,) = op.infer([editor.type(name) for name in inputs])
    except ShapeError as error:
        journal.declined(node.name, f"rotary embedding: {error}")
        return
    result = editor.type(node.outputs[0])
    if made_type.elements != result.elements:
        journal.declined(node.name, f"rotary embedding: '{node.outputs[0]}' is larger than '{x}'")
        return
    made = Node(node.name, op, inputs, node.outputs, covers=node.covers)
    behind: list[Node] = []
    if made_type != result:  # pairs were put together and axes joined by one reshape
        made = replace(made, outputs=(editor.new_value(f"{node.outputs[0]}.turned", made_type),))
        name = editor.free_node_name(f"{node.name}.shape")
        behind.append(Node(name, Reshape(result.shape), made.outputs, node.outputs))
    editor.replace(node, *added, made, *behind)
    removed = editor.prune(node.inputs)
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
    pairs = "neighbours" if found.interleaved else "halves"
    journal.did(node.name, "recognised rotary embedding", f"of {editor.type(angles[0]).shape[-1]} elements, in {pairs}")


def _negative(editor: GraphEditor, name: str, added: list[Node]) -> str:
    array = editor.constant(name)
    if array is not None:
        return _constant(editor, f"{name}.back", -array, name)
    return _added(editor, added, Activation("neg"), [name])


def _sliced(editor: GraphEditor, part: Part, added: list[Node]) -> str:
    """The part as a value."""
    source = _added(editor, added, Reshape(part.flat), [part.source]) if part.flat else part.source
    if (part.begin, part.count) == ((0,) * len(part.count), part.flat or editor.type(part.source).shape):
        return source
    return _added(editor, added, Slice(part.begin, part.count, part.step), [source])


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


def _added(editor: GraphEditor, added: list[Node], op: Activation | Concat | Reshape | Slice, inputs: list[str]) -> str:
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
        part_of(editor, rotary.inputs[0] if index == at[0] else name) for index, name in enumerate(node.inputs)
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
    passed = 0
    if obstacle is None and op.axis == type_.rank - 1:
        passed = sum(part.count[axis] for part in parts[: at[0]])
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
    assert isinstance(rotary.op, Rotary)
    turns = replace(rotary.op, passed=passed + rotary.op.passed)
    made = Node(node.name, turns, (x, *angles), node.outputs, covers=joined(rotary.covers, node.covers))
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
