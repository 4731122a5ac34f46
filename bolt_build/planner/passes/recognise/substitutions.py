"""Recognises forward substitution that an exporter unrolled: a row of a matrix after the other, with those above it.

Gated delta rules solve the dependencies within a chunk of tokens so (DeltaNet, Qwen3-Next, Kimi's linear attention):

    for i in range(1, chunk): a[..., i, :i] = a[..., i, :i] + (a[..., i, :i, None] * a[..., :i, :i]).sum(-2)

Exported, these are several hundred nodes a layer, each of which moves a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.substitution import Substitution
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.tidy.slice_scatters import named_box, named_indices
from bolt_build.planner.rewrite import GraphEditor, joined

_FEWEST = 3
"""Rows that are substituted: fewer are no loop."""


@dataclass(frozen=True)
class _Cut:
    """A box of a tensor; `axes` says which of its axes each axis of a value is, None of those with one element that
    were put in."""

    begin: tuple[int, ...]
    count: tuple[int, ...]
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class _Step:
    """One assignment: what `elements` are put in front of the diagonal of row `row` of `base`."""

    base: str
    row: int
    elements: str


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_SUBSTITUTIONS.name)
    if not any(isinstance(node.op, ScatterElements | ScatterND) for node in editor.nodes()):
        return journal.result(editor.finish())
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, ScatterElements | ScatterND):
            continue
        steps, last = list[_Step](), node
        while (step := _step(editor, node)) is not None:
            steps.append(step)
            above = editor.producer(step.base)
            if above is None or not isinstance(above.op, ScatterElements | ScatterND):
                break
            node = above
        if len(steps) < _FEWEST:
            continue
        rows = editor.type(last.outputs[0]).shape[-1]
        if [step.row for step in reversed(steps)] != list(range(1, rows)):
            journal.declined(last.name, f"substitution: {len(steps)} of {rows - 1} rows behind the first follow it")
            continue
        _replace(editor, journal, last, steps[-1].base)
    return journal.result(editor.finish())


def _step(editor: GraphEditor, node: Node) -> _Step | None:
    """The assignment that the scatter is, where it puts a row's own elements and their product with those above."""
    assigned = _assigned(editor, node)
    if assigned is None or assigned.row < 1:
        return None
    total, shape = _bare(editor, assigned.elements), editor.type(assigned.base).shape
    node_of = editor.producer(total)
    if node_of is None or node_of.op != Binary("add") or node_of.epilogue:
        return None
    lead = shape[:-2]
    own = (*((0, extent) for extent in lead), (assigned.row, 1), (0, assigned.row))
    above = (*((0, extent) for extent in lead), (0, assigned.row), (0, assigned.row))
    for itself, product in (node_of.inputs, node_of.inputs[::-1]):
        factors = _product(editor, product, (*lead, assigned.row))
        if factors is None or _box(editor, itself, assigned.base) != own:
            continue
        if _box(editor, factors[0], assigned.base) == own and _box(editor, factors[1], assigned.base) == above:
            return assigned
    return None


def _assigned(editor: GraphEditor, node: Node) -> _Step | None:
    """The base, the row and the new elements, of an assignment to the elements of a row in front of its diagonal."""
    shape = editor.type(node.outputs[0]).shape
    if len(shape) < 2 or shape[-1] != shape[-2] or node.epilogue:
        return None
    base, _, updates = node.inputs
    whole = tuple((0, extent) for extent in shape[:-2])
    if isinstance(node.op, ScatterND):
        box = _scattered(editor, node)
        row = -1 if box is None else box[-2][0]
        return _Step(base, row, updates) if box == (*whole, (row, row + 1), (0, row)) else None
    indices = editor.constant(node.inputs[1])
    if not isinstance(node.op, ScatterElements) or node.op.reduction != "none" or indices is None or not indices.size:
        return None
    row = int(indices.flat[0]) % shape[-2]
    if (
        node.op.axis != len(shape) - 2
        or indices.shape != (*shape[:-2], 1, shape[-1])
        or (indices % shape[-2] != row).any()
    ):
        return None
    return _row_assigned(editor, base, row, _bare(editor, updates))


def _row_assigned(editor: GraphEditor, base: str, row: int, updates: str) -> _Step | None:
    """The same, where a whole row is put in, whose first elements were put into it before: exporters turn the axis to
    the front for that, and back."""
    node, turned = editor.producer(updates), None
    if node is not None and isinstance(node.op, Transpose) and not node.epilogue:
        turned = node.op.perm
        node = editor.producer(node.inputs[0])
    if node is None or not isinstance(node.op, ScatterND) or node.epilogue:
        return None
    data, elements = node.inputs[0], node.inputs[2]
    if turned is not None:
        back = tuple(int(axis) for axis in np.argsort(turned))
        moved = [each for name in (data, elements) if (each := editor.producer(name)) and each.op == Transpose(back)]
        if len(moved) < 2:
            return None
        data, elements = (each.inputs[0] for each in moved)
    box, shape = _scattered(editor, node), editor.type(base).shape
    if box is None:
        return None
    axes = range(len(box)) if turned is None else turned
    wanted = (*((0, extent) for extent in shape[:-2]), (0, row))
    ordered = tuple(box[axis] for axis in axes)
    whole_row = (*((0, extent) for extent in shape[:-2]), (row, 1), (0, shape[-1]))
    if tuple(each for each in ordered if each != (0, 1)) != tuple(each for each in wanted if each != (0, 1)):
        return None
    return _Step(base, row, elements) if _box(editor, data, base) == whole_row else None


def _scattered(editor: GraphEditor, node: Node) -> tuple[tuple[int, int], ...] | None:
    """Where each axis of what a ScatterND writes begins and ends."""
    if not isinstance(node.op, ScatterND) or node.op.reduction != "none":
        return None
    named = named_indices(editor, node.inputs[1])
    return None if named is None else named_box(named, editor.type(node.outputs[0]).shape)


def _bare(editor: GraphEditor, value: str) -> str:
    """What reshapes put axes of one element into."""
    node = editor.producer(value)
    while node is not None and isinstance(node.op, Reshape) and not node.epilogue:
        shapes = [tuple(n for n in editor.type(name).shape if n != 1) for name in (value, node.inputs[0])]
        if shapes[0] != shapes[1]:
            break
        value = node.inputs[0]
        node = editor.producer(value)
    return value


def _product(editor: GraphEditor, value: str, shape: tuple[int, ...]) -> tuple[str, str] | None:
    """The row and the matrix whose product the value is, which has this shape but for axes of one element."""
    node, many = editor.producer(_bare(editor, value)), shape[-1]
    if node is None or node.epilogue:
        return None
    square, column = (*shape, many), (*shape, 1)
    if node.op == MatMul():
        row, matrix = node.inputs[:2]
        fits = len(node.inputs) == 2 and editor.type(row).shape == (*shape[:-1], 1, many)
        return (row, matrix) if fits and editor.type(matrix).shape == square else None
    if not isinstance(node.op, Reduce) or node.op.mode != "sum" or node.op.axes != (len(square) - 2,):
        return None
    product = editor.producer(node.inputs[0])
    if product is None or product.op != Binary("mul") or product.epilogue:
        return None
    for row, matrix in (product.inputs, product.inputs[::-1]):
        if editor.type(row).shape == column and editor.type(matrix).shape == square:
            return row, matrix
    return None


def _box(editor: GraphEditor, value: str, source: str) -> tuple[tuple[int, int], ...] | None:
    """Where the value, cut from `source`, begins along each of its axes, and how many elements it has."""
    cut = _cut(editor, value, source)
    return None if cut is None else tuple(zip(cut.begin, cut.count, strict=True))


def _cut(editor: GraphEditor, value: str, source: str) -> _Cut | None:
    if value == source:
        shape = editor.type(source).shape
        return _Cut((0,) * len(shape), shape, tuple(range(len(shape))))
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Gather | Reshape | Slice):
        return None
    of = _cut(editor, node.inputs[0], source)
    if of is None:
        return None
    begin, count, op = list(of.begin), list(of.count), node.op
    if isinstance(op, Slice):
        for axis, first, many, step in zip(of.axes, op.begin, op.count, op.step, strict=True):
            if step != 1:
                return None
            if axis is not None:
                begin[axis], count[axis] = begin[axis] + first, many
        return _Cut(tuple(begin), tuple(count), of.axes)
    if isinstance(op, Gather):
        index, axis = editor.constant(node.inputs[1]), of.axes[op.axis]
        if index is None or index.ndim or axis is None:
            return None
        begin[axis], count[axis] = begin[axis] + int(index) % count[axis], 1
        return _Cut(tuple(begin), tuple(count), (*of.axes[: op.axis], *of.axes[op.axis + 1 :]))
    before, after = editor.type(node.inputs[0]).shape, editor.type(value).shape
    kept = [axis for axis, extent in zip(of.axes, before, strict=True) if extent != 1]
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    axes = iter(kept)
    return replace(of, axes=tuple(None if extent == 1 else next(axes) for extent in after))


def _replace(editor: GraphEditor, journal: Journal, last: Node, source: str) -> None:
    """The scatter by the operator, together with the identity that is added to it where nothing else reads it."""
    end, unit = last, False
    readers = editor.readers(last.outputs[0])
    if len(readers) == 1 and readers[0].op == Binary("add") and not editor.is_output(last.outputs[0]):
        other = next((name for name in readers[0].inputs if name != last.outputs[0]), last.outputs[0])
        array, type_ = editor.constant(other), editor.type(last.outputs[0])
        if array is not None and array.shape[-2:] == type_.shape[-2:] and array.size == type_.shape[-1] ** 2:
            unit = np.array_equal(array.reshape(type_.shape[-2:]), np.eye(type_.shape[-1]))
            end = readers[0] if unit else last
    op = Substitution(unit)
    try:
        op.infer([editor.type(source)])
    except ShapeError as error:
        journal.declined(last.name, f"substitution: {error}")
        return
    made = Node(end.name, op, (source,), end.outputs, covers=end.covers)
    editor.replace(end, made)
    removed = editor.prune([*end.inputs, *last.inputs])
    editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
    added = ", with 1 along the diagonal" if unit else ""
    journal.did(made.name, "recognised forward substitution", f"of {editor.type(source).shape[-1]} rows{added}")


RECOGNISE_SUBSTITUTIONS = Pass("recognise-substitutions", _run)
