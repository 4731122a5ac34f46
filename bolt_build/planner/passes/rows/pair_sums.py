"""Adds up what biases every pair of a row and a column in one step, with what gathers pick of lines by constant indices
and what transposes exchange.

For example DeBERTa's positions: a query's products with all distances, of which each key's is picked; a key's, of which
each query's is picked, transposed so that queries are rows; both scaled, and a mask. Apart from each other these are as
many tensors of all scores, written and read again. Products that are read by such indices alone are computed only from
the least to the greatest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.pair_sum import PairSum
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements
from bolt_build.graph.ops.moves.shape import Identity, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target

_MOVES = (Slice, Gather, Reshape, Pad, Transpose, GatherElements)
_MOST = 4
"""Terms of one sum."""
_WHOLE = 8
"""Columns: products are cut to whole loads."""
_TRACED = 1 << 23
"""Elements of a tensor whose places are followed through what moves them."""


@dataclass(frozen=True)
class _Term:
    """What is added: data, the indices that pick of its lines where they do, and how. `turned`: its last two axes are
    transposed. `front`: axes in front of rows and columns where these are cut otherwise than in the data."""

    data: str
    factor: float
    turned: bool = False
    indices: Array | None = None
    front: tuple[int, ...] | None = None


@dataclass(frozen=True)
class _Sum:
    """Terms of one sum, and the nodes that it takes the place of."""

    terms: tuple[_Term, ...]
    nodes: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ADD_PAIRS.name)
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is not None and _may_add(node) and len(editor.type(node.outputs[0]).shape) > 2:
            _add(editor, journal, node)
    return journal.result(editor.finish())


def _may_add(node: Node) -> bool:
    """Whether the node may be the last of what a sum takes the place of."""
    arithmetic = isinstance(node.op, Binary) and node.op.function in ("add", "sub", "mul", "div")
    return not node.epilogue and (arithmetic or isinstance(node.op, _MOVES))


def _add(editor: GraphEditor, journal: Journal, node: Node) -> None:
    (result,) = node.outputs
    type_ = editor.type(result)
    found = _sum(editor, node, _Term(result, 1.0), root=True)
    if not any(term.indices is not None for term in found.terms):
        return
    if len(found.terms) > _MOST:
        journal.declined(node.name, f"{len(found.terms)} terms; one kernel adds up {_MOST}")
        return
    if (obstacle := _obstacle(editor, found.terms, type_)) is not None:
        journal.declined(node.name, obstacle)
        return
    for other in found.nodes[1:]:
        editor.remove(other)
    made = _made(editor, node, [_cut(editor, journal, term) for term in found.terms], type_)
    covers = joined(*(other.covers for other in reversed(found.nodes)))
    editor.replace(node, *made[:-1], replace(made[-1], covers=covers))
    editor.prune(chain.from_iterable(other.inputs for other in found.nodes))
    picked = sum(term.indices is not None for term in found.terms)
    journal.did(node.name, "added up", f"{len(found.terms)} terms of every pair, {picked} of them picked by indices")


def _sum(editor: GraphEditor, node: Node | None, term: _Term, *, root: bool = False) -> _Sum:
    """The terms that `term`, which `node` makes, is a sum of: itself where it is none, or where others read it."""
    itself = _Sum((term,), ())
    if node is None or node.epilogue or (not root and editor.not_private(node.outputs[0]) is not None):
        return itself
    match node.op:
        case Binary("add" | "sub") if term.indices is None:
            return _of_both(editor, node, term)
        case Binary("mul" | "div") if term.indices is None:
            return _scaled(editor, node, term) or itself
        case Identity():
            return _behind(editor, node, term)
        case Transpose(perm) if term.indices is None and perm == _turn(len(perm)) and len(perm) > 1:
            return _behind(editor, node, replace(term, turned=not term.turned))
        case Reshape():
            return _reshaped(editor, node, term) or itself
        case GatherElements() if term.indices is None:
            return _picked(editor, node, term) or itself
        case Slice() | Gather() | Pad() if term.indices is None:
            return _shifted(editor, node, term) or itself
    return itself


def _turn(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _behind(editor: GraphEditor, node: Node, term: _Term) -> _Sum:
    """What the node's first input is a sum of."""
    value = node.inputs[0]
    found = _sum(editor, editor.producer(value), replace(term, data=value))
    return replace(found, nodes=(node, *found.nodes))


def _of_both(editor: GraphEditor, node: Node, term: _Term) -> _Sum:
    """Sides that broadcast are none of such a sum where axes in front have been cut: they need not be cut alike."""
    shape, (left, right) = editor.type(node.outputs[0]).shape, node.inputs
    sign = -1.0 if node.op == Binary("sub") else 1.0
    sides = ((left, 1.0), (right, sign))
    if left == right or (term.front is not None and any(editor.type(name).shape != shape for name, _ in sides)):
        return _Sum((term,), ())
    found = [
        _sum(editor, editor.producer(name), replace(term, data=name, factor=term.factor * factor))
        if editor.type(name).shape[-2:] == shape[-2:]
        else _Sum((replace(term, data=name, factor=term.factor * factor),), ())
        for name, factor in sides
    ]
    return _Sum((*found[0].terms, *found[1].terms), (node, *found[0].nodes, *found[1].nodes))


def _scaled(editor: GraphEditor, node: Node, term: _Term) -> _Sum | None:
    """A product with one number, or a quotient by one."""
    left, right = node.inputs
    divides = node.op == Binary("div")
    for value, by in ((left, right),) if divides else ((left, right), (right, left)):
        array = editor.constant(by)
        if array is None or array.size != 1 or editor.type(value).shape != editor.type(node.outputs[0]).shape:
            continue
        number = float(array.reshape(-1)[0])
        if not np.isfinite(number) or (divides and number == 0):
            return None
        scaled = replace(term, data=value, factor=term.factor / number if divides else term.factor * number)
        found = _sum(editor, editor.producer(value), scaled)
        return replace(found, nodes=(node, *found.nodes))
    return None


def _reshaped(editor: GraphEditor, node: Node, term: _Term) -> _Sum | None:
    """Axes in front of rows and columns that are cut otherwise."""
    before, after = editor.type(node.inputs[0]).shape, editor.type(node.outputs[0]).shape
    if len(before) < 2 or len(after) < 2 or before[-2:] != after[-2:]:
        return None
    return _behind(editor, node, replace(term, front=term.front if term.front is not None else after[:-2]))


def _picked(editor: GraphEditor, node: Node, term: _Term) -> _Sum | None:
    """A gather along the last axis by constant indices that all matrices in front share."""
    assert isinstance(node.op, GatherElements)
    data, name = node.inputs
    shape, indices = editor.type(data).shape, _repeated(editor, name)
    if indices is None or len(shape) < 2 or node.op.axis != len(shape) - 1 or not indices.size:
        return None
    lines = indices.reshape(-1, *indices.shape[-2:])
    extent, front = shape[-1], editor.type(name).shape[:-1]
    if front != shape[:-1] or not (lines == lines[:1]).all():
        return None
    if not (-extent <= lines.min() and lines.max() < extent):
        return None
    own = np.where(lines[0] < 0, lines[0] + extent, lines[0]).astype(np.int32)
    return _Sum((replace(term, data=data, indices=own),), (node,))


def _of(terms: Sequence[_Term], shape: tuple[int, ...]) -> PairSum:
    return PairSum(
        shape,
        tuple(term.indices is not None for term in terms),
        tuple(term.turned for term in terms),
        tuple(term.factor for term in terms),
    )


def _obstacle(editor: GraphEditor, terms: Sequence[_Term], type_: TensorType) -> str | None:
    """Why the terms are none of a sum of this type; None where they are."""
    types = list[TensorType]()
    for term in terms:
        own = _lying(editor, term)
        if own.elements != editor.type(term.data).elements or own.dtype is not type_.dtype:
            return f"'{term.data}' does not lie as its sum does"
        types += [own] if term.indices is None else [own, TensorType(DType.I32, term.indices.shape)]
    try:
        _of(terms, type_.shape).infer(types)
    except ShapeError as error:
        return str(error)
    return None


def _repeated(editor: GraphEditor, name: str) -> Array | None:
    """A constant, or one that is expanded along axes in front of rows and columns alone."""
    node = editor.producer(name)
    if node is None or not isinstance(node.op, Expand) or node.epilogue:
        return editor.constant(name)
    array, shape = editor.constant(node.inputs[0]), editor.type(name).shape
    return array if array is not None and array.shape[-2:] == shape[-2:] and array.ndim > 1 else None


def _shifted(editor: GraphEditor, node: Node, term: _Term) -> _Sum | None:
    """What pads, cuts and reshapes leave of each row, where that is a part of the row of the same place: relative
    positions are shifted so."""
    if not _moves(editor, node):
        return None
    nodes, value = [node], node.inputs[0]
    while (front := editor.producer(value)) is not None and editor.not_private(value) is None and _moves(editor, front):
        nodes.append(front)
        value = front.inputs[0]
    while nodes and not isinstance(nodes[-1].op, Pad | Reshape):
        value = nodes.pop().outputs[0]
    indices = None
    while nodes and indices is None:
        value = nodes[-1].inputs[0]
        indices = _places(editor, value, nodes)
        if indices is None:
            nodes.pop()
    if indices is None or not any(isinstance(each.op, Reshape) for each in nodes):
        return None
    return _Sum((replace(term, data=value, indices=indices),), tuple(nodes))


def _moves(editor: GraphEditor, node: Node) -> bool:
    constant = all(editor.is_constant(name) for name in node.inputs[1:])
    return not node.epilogue and constant and isinstance(node.op, Slice | Gather | Pad | Reshape)


def _places(editor: GraphEditor, value: str, nodes: Sequence[Node]) -> Array | None:
    """Which place of its row each element is that the nodes leave, the last of them first; None where rows are others,
    where padding is left, or where matrices are not alike."""
    type_, made = editor.type(value), editor.type(nodes[0].outputs[0])
    if type_.rank < 3 or type_.elements > _TRACED or type_.shape[:-1] != made.shape[:-1] or not made.elements:
        return None
    traced = np.arange(1, type_.elements + 1, dtype=np.float64).reshape(type_.shape)
    for node in reversed(nodes):
        rest = [array for name in node.inputs[1:] if (array := editor.constant(name)) is not None]
        op = replace(node.op, value=0.0) if isinstance(node.op, Pad) and node.op.mode == "constant" else node.op
        (traced,) = op.evaluate([traced, *rest])
    source = traced.astype(np.int64) - 1
    rows = np.arange(type_.elements // type_.shape[-1]).reshape(*type_.shape[:-1], 1)
    places = (source % type_.shape[-1]).reshape(-1, *made.shape[-2:])
    if source.min() < 0 or (source // type_.shape[-1] != rows).any() or (places != places[:1]).any():
        return None
    return np.asarray(places[0], np.int32)


def _made(editor: GraphEditor, node: Node, terms: Sequence[_Term], type_: TensorType) -> list[Node]:
    """The sum, and reshapes in front of it."""
    nodes, inputs = list[Node](), list[str]()
    for term in terms:
        name, lying = term.data, _lying(editor, term)
        if lying != editor.type(name):
            name = editor.new_value(f"{term.data}.pairs", lying)
            label = editor.free_node_name(f"{node.name}.term.{len(nodes)}")
            nodes.append(Node(label, Reshape(lying.shape), (term.data,), (name,)))
        inputs.append(name)
        if term.indices is not None:
            inputs.append(editor.new_constant(f"{term.data}.picks", term.indices, DType.I32))
    return [*nodes, Node(node.name, _of(terms, type_.shape), tuple(inputs), node.outputs)]


def _lying(editor: GraphEditor, term: _Term) -> TensorType:
    """The data's type with axes in front as the sum has them."""
    type_ = editor.type(term.data)
    return type_ if term.front is None else replace(type_, shape=(*term.front, *type_.shape[-2:]))


def _cut(editor: GraphEditor, journal: Journal, term: _Term) -> _Term:
    """The term of a product with a constant, of which nobody but its indices reads anything, without the columns that
    none of these picks."""
    node = editor.producer(term.data)
    alone = not editor.readers(term.data) and not editor.is_output(term.data)
    if term.indices is None or node is None or node.epilogue or not alone:
        return term
    weight = editor.constant(node.inputs[1]) if isinstance(node.op, MatMul) and len(node.inputs) == 2 else None
    columns = editor.type(term.data).shape[-1]
    begin = int(term.indices.min()) // _WHOLE * _WHOLE
    end = min(-(-(int(term.indices.max()) + 1) // _WHOLE) * _WHOLE, columns)
    if weight is None or weight.ndim < 2 or end - begin >= columns:
        return term
    assert isinstance(node.op, MatMul)
    dtype, made = editor.type(node.inputs[1]).dtype, editor.type(term.data)
    cut = weight[..., begin:end, :] if node.op.transpose_b else weight[..., begin:end]
    held = np.ascontiguousarray(cut.astype(held_dtype(dtype), copy=False))
    name = editor.new_constant(f"{node.inputs[1]}.columns", held, dtype)
    short = editor.new_value(f"{term.data}.columns", replace(made, shape=(*made.shape[:-1], end - begin)))
    editor.replace(node, replace(node, inputs=(node.inputs[0], name), outputs=(short,)))
    journal.did(node.name, f"computes {end - begin} columns of {columns}", "no index picks the others")
    return replace(term, data=short, indices=(term.indices - begin).astype(np.int32))


def _on_gpu(target: Target, precision: str) -> bool:
    return target.gpu is not None


ADD_PAIRS = Pass("add-pairs", _run, pays_on=_on_gpu)
