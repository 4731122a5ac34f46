"""Makes one step of an attention over channels: the transposes on both sides of it, what normalises queries and keys
over all rows, and the attention.

`recognise-attention` leaves channels as rows and rows as the elements of a head, which kernels of attention want side
by side: XCiT's queries, keys and values are transposed, normalised, and what they give is transposed back. A kernel
that has a head of an image reads rows where a product left them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.channel_attention import DEEPEST, STATISTICS, ChannelAttention
from bolt_build.graph.ops.attention.heads import HeadRows
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import Digit, View, step_back, whole

_MOST_ROWS = 8192
"""Of an image: a block goes through those of a head alone."""
_LONG, _MANY = 1024, 96
"""Rows of an image that fewer heads of images than these, a block each, go through for longer than the steps apart, in
which all of a GPU takes part: as both are predicted."""


@dataclass(frozen=True)
class _Extents:
    """Images, rows, heads, and channels of a head."""

    images: int
    rows: int
    heads: int
    depth: int


@dataclass(frozen=True)
class _Found:
    """The rows that have queries, keys and values; what normalises these; and the moves behind the attention, the last
    of which makes the result."""

    given: str
    heads: Node | None
    behind: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ATTEND_CHANNELS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Attention) or node.epilogue:
            continue
        found = _found(editor, node, node.op)
        if isinstance(found, str):
            journal.declined(node.name, found)
        elif found is not None:
            _attend(editor, node, node.op, found)
            journal.did(node.name, "merged", f"with what transposes '{found.given}' in front of it, and back")
    return journal.result(editor.finish())


def _found(editor: GraphEditor, node: Node, op: Attention) -> _Found | str | None:
    """What is around an attention over channels; why that stays; None where it is another attention."""
    if len(node.inputs) != 3 or op.heads != op.kv_heads or op != Attention(op.heads, op.kv_heads, op.scale):
        return None
    shape = editor.type(node.inputs[0]).shape
    if any(editor.type(name).shape != shape for name in node.inputs) or shape[2] % op.heads:
        return None
    of = _Extents(shape[0], shape[2] // op.heads, op.heads, shape[1])
    queries, keys, values = (_view(editor, name) for name in node.inputs)
    heads = None if queries is None else editor.producer(queries.source)
    if heads is not None and isinstance(heads.op, HeadRows):
        (normed,) = heads.outputs
        both, runs = _view(editor, heads.inputs[0]), [_told(view, normed, of) for view in (queries, keys)]
        given = both.source if both is not None and runs == [0, 1] else None
        lies = given is not None and both == _channels(given, replace(of, heads=2 * of.heads), 0)
    else:
        heads, given = None, None if values is None else values.source
        lies = given is not None and (queries, keys) == tuple(_channels(given, of, third) for third in (0, 1))
    if given is None or not lies or values != _channels(given, of, 2):
        return None
    if editor.type(given).shape != (of.images, of.rows, 3 * of.heads * of.depth):
        return None
    behind = _behind(editor, node, of)
    if behind is None:
        return "what it gives is no rows again"
    return _obstacle(editor, of, heads) or _Found(given, heads, behind)


def _obstacle(editor: GraphEditor, of: _Extents, heads: Node | None) -> str | None:
    """Why the step would have no fast kernel, or does more than one; None where it is one."""
    if of.depth > DEEPEST or of.depth % 2:
        return f"heads have {of.depth} channels, even numbers up to {DEEPEST} are supported"
    if of.rows > _MOST_ROWS:
        return f"{of.rows} rows are too many for one block, of which {_MOST_ROWS} are supported"
    if of.rows > _LONG and (blocks := of.images * of.heads) < _MANY:
        return f"{of.rows} rows are too many for each of {blocks} blocks, {_MANY} blocks go through more than {_LONG}"
    if heads is None:
        return None
    assert isinstance(heads.op, HeadRows)
    if heads.epilogue or heads.op.rotary or heads.op.shifted or heads.op.statistic not in STATISTICS:
        return f"'{heads.name}' does more than normalise and scale queries and keys"
    if heads.op.scaled:
        scale = editor.constant(heads.inputs[1])
        if scale is None or scale.ndim != 4 or scale.shape[:2] != (1, 1):
            return f"'{heads.inputs[1]}' is not constant, or scales channels by themselves"
    return None


def _view(editor: GraphEditor, value: str) -> View | None:
    """What moves make of the value that they begin with; None where that is no view."""
    moves = []
    while (node := editor.producer(value)) is not None and not node.epilogue:
        if (op := step_back(editor, node)) is None:
            break
        moves.append((op, editor.type(value).shape))
        value = node.inputs[0]
    view: View | None = whole(editor, value)
    for op, shape in reversed(moves):
        if view is not None:
            view = _run_of_heads(view, op) if isinstance(op, Slice) else view.moved(op, shape)
    return view


def _run_of_heads(view: View, op: Slice) -> View | None:
    """What the slice takes of the view: of the last axis, whose digits are heads and rows, a run of whole heads."""
    *front, last = view.axes
    inner = prod(digit.extent for digit in last[1:])
    *_, begin = op.begin
    *_, count = op.count
    if len(last) < 2 or begin % inner or count % inner or any(step != 1 for step in op.step):
        return view.moved(op, op.count)
    if any(op.begin[:-1]) or op.count[:-1] != view.shape[:-1]:
        return None
    first, at = last[0], list(view.begin)
    at[first.axis] += first.step * (begin // inner)
    return View(view.source, tuple(at), (*front, (replace(first, extent=count // inner), *last[1:])))


def _told(view: View | None, normed: str, of: _Extents) -> int | None:
    """Which of the runs of columns of normalised heads the view is, None where it is none."""
    width = of.heads * of.rows
    axes = tuple(_axis(Digit(extent, axis, 1)) for axis, extent in enumerate((of.images, of.depth, width)))
    return next((run for run in (0, 1) if view == View(normed, (0, 0, run * width), axes)), None)


def _channels(given: str, of: _Extents, third: int) -> View:
    """Channels as rows, in a third of the columns of rows [images, rows, 3 heads depth]."""
    columns = (Digit(of.heads, 2, of.depth), Digit(of.rows, 1, 1))
    axes = _axis(Digit(of.images, 0, 1)), _axis(Digit(of.depth, 2, 1)), _axis(*columns)
    return View(given, (0, 0, third * of.heads * of.depth), axes)


def _axis(*digits: Digit) -> tuple[Digit, ...]:
    return tuple(digit for digit in digits if digit.extent > 1)


def _behind(editor: GraphEditor, node: Node, of: _Extents) -> tuple[Node, ...] | None:
    """The moves that make rows again of what the attention gives, each of which nothing else reads."""
    (value,) = node.outputs
    columns = (Digit(of.heads, 2, of.rows), Digit(of.depth, 1, 1))
    wanted = View(value, (0, 0, 0), (_axis(Digit(of.images, 0, 1)), _axis(Digit(of.rows, 2, 1)), _axis(*columns)))
    view, found = whole(editor, value), list[Node]()
    while not (editor.type(value).rank == 3 and found and view == wanted):
        readers = editor.readers(value)
        if len(readers) != 1 or editor.not_private(value) is not None or readers[0].epilogue:
            return None
        (reader,) = readers
        op = step_back(editor, reader)
        (value,) = reader.outputs
        moved = None if op is None else view.moved(op, editor.type(value).shape)
        if moved is None:
            return None
        view = moved
        found.append(reader)
    return tuple(found)


def _attend(editor: GraphEditor, node: Node, op: Attention, found: _Found) -> None:
    merged = ChannelAttention(op.heads, op.scale)
    inputs = [found.given]
    covers = [node.covers, *(move.covers for move in found.behind)]
    if found.heads is not None:
        assert isinstance(found.heads.op, HeadRows)
        of = found.heads.op
        merged = replace(merged, statistic=of.statistic, epsilon=of.epsilon, scaled=of.scaled)
        covers.insert(0, found.heads.covers)
        if of.scaled:
            inputs.append(_scale(editor, found.heads, of.heads))
    (result,) = found.behind[-1].outputs
    for each in found.behind[::-1]:
        editor.remove(each)
    made = Node(node.name, merged, tuple(inputs), (result,), covers=joined(*covers))
    editor.replace(node, made)
    editor.prune(node.inputs)


def _scale(editor: GraphEditor, heads: Node, count: int) -> str:
    """A row of numbers for queries of each head, then for keys."""
    array = editor.constant(heads.inputs[1])
    assert array is not None
    rows = editor.type(heads.inputs[0]).shape[2] // count
    each = np.broadcast_to(array[0, 0], (count, rows)).astype(np.float32)
    return editor.new_constant(f"{heads.inputs[1]}.rows", np.ascontiguousarray(each), DType.F32)


ATTEND_CHANNELS = Pass("attend-channels", _run, pays_on=on_tensor_cores)
