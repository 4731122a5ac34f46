"""Computes the rows of sequences image by image that a model has word by word, between what moves them for attention.

torch's transformers have their words in front of the batch unless they are told otherwise, and so have CLIP and XLNet.
Attention takes images one after the other: a transpose stands in front of it and one behind it. All else of a layer
takes rows in any order: products with weights, normalisations of rows, sums. Turned, it needs none of these transposes,
and two are left where words come in and go out at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.turned_axes import connected, give
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.wording import many

_LEAST_RANK = 3
"""Of a transpose that says which axes count words and images: rows have columns."""
_ELEMENTWISE = Activation | Cast | Binary | Where


@dataclass(frozen=True)
class _Lead:
    """The two first axes of a region's tensors. They may be one axis too."""

    outer: int
    inner: int

    def depth(self, shape: Sequence[int]) -> int:
        """How many axes of the shape count rows: 2, 1, or 0 where it has no such rows."""
        if tuple(shape[:2]) == (self.outer, self.inner):
            return 2
        return int(tuple(shape[:1]) == (self.outer * self.inner,))

    def turned(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self.inner, self.outer, *shape[2:]) if self.depth(shape) == 2 else tuple(shape)


@dataclass(frozen=True)
class _Region:
    """Nodes of rows that hang together, in order, and how many elements fewer are moved where they are turned."""

    nodes: tuple[Node, ...]
    lead: _Lead
    saved: int


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(TURN_ROWS.name)
    for lead in _leads(editor):
        for region in _regions(editor, lead):
            if region.saved > 0:
                _turn(editor, region)
                reason = f"rows lie as attention takes them: {region.saved} elements fewer are moved"
                journal.did(region.nodes[0].name, f"turned with {many(len(region.nodes) - 1, 'other')}", reason)
    return journal.result(editor.finish())


def _leads(editor: GraphEditor) -> Iterable[_Lead]:
    """The leading axes of what transposes of rows read and leave, each once."""
    found: dict[_Lead, None] = {}
    for node in editor.nodes():
        if _swaps(node) and editor.type(node.outputs[0]).rank >= _LEAST_RANK:
            outer, inner = editor.type(node.outputs[0]).shape[:2]
            if outer != 1 and inner != 1:  # else no element moves
                found |= {_Lead(outer, inner): None, _Lead(inner, outer): None}
    return tuple(found)


def _swaps(node: Node) -> bool:
    """Whether a node is a transpose of the two first axes."""
    return isinstance(node.op, Transpose) and not node.epilogue and node.op.perm == _swap(len(node.op.perm))


def _swaps_rows(editor: GraphEditor, node: Node, lead: _Lead) -> bool:
    """Whether a node is a transpose of the axes that count rows. Of rows that one axis counts it is one of others."""
    outer, inner = lead.outer, lead.inner
    return _swaps(node) and editor.type(node.outputs[0]).shape[:2] in ((outer, inner), (inner, outer))


def _swap(rank: int) -> tuple[int, ...]:
    return (1, 0, *range(2, rank))


def _regions(editor: GraphEditor, lead: _Lead) -> Iterable[_Region]:
    able = {node.name: node for node in editor.nodes() if _turned_op(editor, node, lead) is not None}
    for names in list(connected(able, lambda node: _beside(editor, node, lead))):
        nodes = tuple(node for each in names if (node := editor.node(each.name)) is not None)  # as they are now
        yield _Region(nodes, lead, _saved(editor, nodes, lead))


def _beside(editor: GraphEditor, node: Node, lead: _Lead) -> Iterable[Node]:
    """Nodes that give rows to this one, read the same rows, or take its own."""
    for name in _rows(editor, node):
        producer = editor.producer(name)
        if producer is not None:
            yield producer
        yield from editor.readers(name)
    yield from editor.readers(node.outputs[0])


def _rows(editor: GraphEditor, node: Node) -> tuple[str, ...]:
    """The inputs of a node that can be turned whose rows it takes, each once."""
    if isinstance(node.op, Gather):
        return (node.inputs[1],)
    rank = editor.type(node.outputs[0]).rank
    names = dict.fromkeys(name for name in node.inputs if not editor.is_constant(name))
    if not isinstance(node.op, _ELEMENTWISE):
        return tuple(names)
    return tuple(name for name in names if editor.type(name).rank == rank)


def _turned_op(editor: GraphEditor, node: Node, lead: _Lead) -> Op | None:
    """The node's operator on rows in the other order; None where it has none, or is none that takes row by row."""
    if node.epilogue or len(node.outputs) != 1 or not node.inputs or all(map(editor.is_constant, node.inputs)):
        return None
    op, out = node.op, editor.type(node.outputs[0]).shape
    given = [editor.type(name).shape for name in node.inputs]
    depth, first = lead.depth(out), lead.depth(given[0])
    data = [name for name in node.inputs if not editor.is_constant(name)]
    alone = data == [node.inputs[0]] and first > 0
    if not depth:
        return None
    match op:
        case Activation() | Cast() | Binary() | Where():
            return op if all(_spreads(editor, name, out, lead) for name in node.inputs) else None
        case MatMul(transpose_a=False) if alone and len(given[0]) > first and len(given[1]) == 2:
            return op
        case Norm(axes=axes) if alone and axes == (len(out) - 1,) and len(out) > depth:
            return op if all(len(shape) <= len(out) - depth for shape in given[1:]) else None
        case Gather(axis=0) if data == [node.inputs[1]] and lead.depth(given[1]):
            return op
        case Reshape() if alone:
            return Reshape(lead.turned(out))
        case Transpose(perm) if alone and perm[:first] == tuple(range(first)):
            return op
        case Slice(begin, count, step) if alone and count[:first] == given[0][:first] and min(step[:first]) > 0:
            return Slice(begin, lead.turned(count), step)
        case Concat(axis) if len(data) == len(given) and axis >= depth:
            return op if all(lead.depth(shape) == depth for shape in given) else None
    return None


def _spreads(editor: GraphEditor, name: str, out: tuple[int, ...], lead: _Lead) -> bool:
    """Whether an operand of elementwise arithmetic has the rows of `out`, or nothing that depends on rows, or is a
    constant, which is turned."""
    shape, depth = editor.type(name).shape, lead.depth(out)
    if editor.is_constant(name) or len(shape) <= len(out) - depth:
        return True
    return len(shape) == len(out) and lead.depth(shape) == depth


def _saved(editor: GraphEditor, nodes: Sequence[Node], lead: _Lead) -> int:
    """How many elements fewer are moved where `nodes` are turned. Transposes of other axes become others."""
    inside = {node.name for node in nodes}
    saved = 0
    for value in _given(editor, nodes, lead):
        move, elements = editor.producer(value), editor.type(value).elements
        if move is not None and _swaps_rows(editor, move, lead):
            gone = not editor.is_output(value) and all(each.name in inside for each in editor.readers(value))
            saved += gone * elements
        elif _swapped(editor, value, lead) is None and (move is None or not _merges(editor, move, value, lead)):
            saved -= elements
    for node in nodes:
        (value,) = node.outputs
        others = [each for each in editor.readers(value) if each.name not in inside]
        merged = all(_merges(editor, each, value, lead) for each in others)
        saved += editor.type(value).elements * any(_swaps_rows(editor, each, lead) for each in others)
        saved -= editor.type(value).elements * (not merged or editor.is_output(value))
    return saved


def _swapped(editor: GraphEditor, value: str, lead: _Lead) -> str | None:
    """What a transpose has already made of the value, its rows in the other order."""
    return next((each.outputs[0] for each in editor.readers(value) if _swaps_rows(editor, each, lead)), None)


def _merges(editor: GraphEditor, node: Node, value: str, lead: _Lead) -> bool:
    """Whether a node makes one transpose with that which turns `value`, beside it."""
    return isinstance(node.op, Transpose) and not node.epilogue and lead.depth(editor.type(value).shape) == 2


def _given(editor: GraphEditor, nodes: Sequence[Node], lead: _Lead) -> list[str]:
    """The rows that nodes take from elsewhere, each once."""
    made = {node.outputs[0] for node in nodes}
    names = dict.fromkeys(name for node in nodes for name in _rows(editor, node))
    return [name for name in names if name not in made]


def _turn(editor: GraphEditor, region: _Region) -> None:
    lead, inside = region.lead, {node.name for node in region.nodes}
    turned: dict[str, str] = {}
    """By value: that which has its rows in the other order."""
    given = _given(editor, region.nodes, lead)
    for old in region.nodes:
        node = editor.node(old.name)
        assert node is not None
        op = _turned_op(editor, node, lead)
        assert op is not None
        before, inputs = list[Node](), list(node.inputs)
        (output,) = node.outputs
        rows = _rows(editor, node)
        for at, name in enumerate(node.inputs):
            if name in rows:
                if name not in turned:
                    turned[name] = _other_order(editor, name, lead, before)
                inputs[at] = turned[name]
            elif isinstance(op, _ELEMENTWISE) and editor.is_constant(name):
                inputs[at] = _constant(editor, name, editor.type(output).shape, lead)
        others = [each for each in editor.readers(output) if each.name not in inside]
        backs = [each for each in others if _swaps_rows(editor, each, lead)]
        made = replace(node, op=op, inputs=tuple(inputs))
        turned[output] = give(
            editor, made, before, others, backs,
            lambda node, value, old: _moves(editor, node.name, value, old, _Lead(lead.inner, lead.outer)),
        )  # fmt: skip
    editor.prune(given)


def _other_order(editor: GraphEditor, name: str, lead: _Lead, before: list[Node]) -> str:
    """What has the rows of a value in the other order; nodes that make it are added to `before`."""
    move = editor.producer(name)
    if move is not None and _swaps_rows(editor, move, lead):
        return move.inputs[0]
    if (there := _swapped(editor, name, lead)) is not None:
        return there
    type_ = editor.type(name)
    value = editor.new_value(f"{name}.turned", replace(type_, shape=lead.turned(type_.shape)))
    before += _moves(editor, name, name, value, lead)
    return value


def _moves(editor: GraphEditor, name: str, value: str, made: str, lead: _Lead) -> list[Node]:
    """Nodes that make of `value`, whose rows have this order, `made`, which has them in the other."""
    type_ = editor.type(value)
    if lead.depth(type_.shape) == 2:
        return [Node(editor.free_node_name(f"{name}.turn"), Transpose(_swap(type_.rank)), (value,), (made,))]
    apart = (lead.outer, lead.inner, *type_.shape[1:])
    cut = editor.new_value(f"{made}.cut", replace(type_, shape=apart))
    moved = editor.new_value(f"{made}.rows", replace(type_, shape=lead.turned(apart)))
    return [
        Node(editor.free_node_name(f"{name}.cut"), Reshape(apart), (value,), (cut,)),
        Node(editor.free_node_name(f"{name}.turn"), Transpose(_swap(len(apart))), (cut,), (moved,)),
        Node(editor.free_node_name(f"{name}.rows"), Reshape(type_.shape), (moved,), (made,)),
    ]


def _constant(editor: GraphEditor, name: str, out: tuple[int, ...], lead: _Lead) -> str:
    """A constant that broadcasts to `out` with its rows in the other order; itself where it has none."""
    array, depth = editor.constant(name), lead.depth(out)
    assert array is not None
    wide = array.reshape((1,) * (len(out) - array.ndim) + array.shape)
    if prod(wide.shape[:depth]) == 1:
        return name
    apart = wide if depth == 2 else wide.reshape(lead.outer, lead.inner, *wide.shape[1:])
    moved = np.ascontiguousarray(apart.swapaxes(0, 1))
    made = moved if depth == 2 else moved.reshape(wide.shape)
    return editor.new_constant(f"{name}.turned", made, editor.type(name).dtype)


TURN_ROWS = Pass("turn-rows", _run)
