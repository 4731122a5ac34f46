"""Folds arithmetic with constants behind what moves a part of a product's columns into the product's weights.

Queries are scaled, or shifted, when they have been cut out of a product beside keys and values, and their heads brought
to the front: CaiT, DaViT and DeBERTa do so. No weight in front of the arithmetic is of these queries alone, but columns
of a weight are. Attention takes the scale of its scores itself; this is for other products of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.shape import Reshape
from bolt_build.planner.passes.affine import FUNCTIONS, scale_and_shift
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.channels import channel_axis, folded_inputs, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import View, step_back, whole
from bolt_build.schema.recipe import Policy


@dataclass(frozen=True)
class _Part:
    """What a node, which is no move, reads of a product: the moves on the way, in order, and the view that they make;
    None where they make none."""

    reader: Node
    moves: tuple[Node, ...]
    view: View | None


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv | MatMul) or weight_obstacle(editor, node) is not None:
            continue
        while _fold_one(editor, journal, node):
            node = editor.node(old.name)
            assert node is not None
    return journal.result(editor.finish())


def _fold_one(editor: GraphEditor, journal: Journal, product: Node) -> bool:
    """Folds the first arithmetic that can be folded; whether there was any."""
    value = product.outputs[0]
    parts = list(_parts(editor, value, (), whole(editor, value)))
    channel = channel_axis(product, editor.type(value))
    for part in parts:
        if not part.moves or part.view is None or not _is_arithmetic(editor, part):
            continue
        columns = _columns(part.view, channel)
        others = (each for each in parts if each is not part)
        if any(each.view is None or np.isin(_columns(each.view, channel), columns).any() for each in others):
            journal.declined(part.reader.name, f"what it reads of '{product.name}' is read by others too")
            continue
        if any(editor.is_output(move.outputs[0]) for move in (product, *part.moves)):
            journal.declined(part.reader.name, f"a graph output lies between it and '{product.name}'")
            continue
        constant = _by_column(editor, part, channel, columns.shape)
        if constant is None:
            journal.declined(part.reader.name, f"its constant is not one number a column of '{product.name}'")
            continue
        _fold(editor, product, part, columns.reshape(-1), constant)
        journal.did(part.reader.name, "folded", f"into {columns.size} columns of the weights of '{product.name}'")
        return True
    return False


def _parts(editor: GraphEditor, value: str, moves: tuple[Node, ...], view: View | None) -> Iterator[_Part]:
    """All that is read of `value`, which is `view` of the product."""
    for reader in editor.readers(value):
        op = step_back(editor, reader) if reader.inputs[0] == value else None
        if op is None:
            yield _Part(reader, moves, view)
            continue
        (taken,) = op.infer([editor.type(value)])
        shape = editor.type(reader.outputs[0]).shape
        moved = None if view is None else view.moved(op, taken.shape)
        if moved is not None and taken.shape != shape:  # a gather drops the axis
            moved = moved.moved(Reshape(shape), shape)
        yield from _parts(editor, reader.outputs[0], (*moves, reader), moved)


def _is_arithmetic(editor: GraphEditor, part: _Part) -> bool:
    """Whether the reader computes with a constant."""
    reader, value = part.reader, part.moves[-1].outputs[0]
    if not isinstance(reader.op, Binary) or reader.op.function not in FUNCTIONS or reader.epilogue:
        return False
    left = reader.inputs[0] == value
    if not editor.is_constant(reader.inputs[1 if left else 0]) or (reader.op.function == "div" and not left):
        return False
    return editor.type(reader.outputs[0]) == editor.type(value)


def _columns(view: View, channel: int) -> Array:
    """Which columns of the product the view reads: an axis for each of its own, of extent 1 where it counts none."""
    columns = np.full((1,) * len(view.axes), view.begin[channel])
    for axis, digits in enumerate(view.axes):
        own = np.zeros(1, int)
        for digit in digits:
            if digit.axis == channel:
                own = np.add.outer(own, np.arange(digit.extent) * digit.step).reshape(-1)
        columns = columns + own.reshape(tuple(-1 if at == axis else 1 for at in range(len(view.axes))))
    return columns


def _by_column(editor: GraphEditor, part: _Part, channel: int, columns: tuple[int, ...]) -> Array | None:
    """The constant as a number for each of the columns; None where it has others for some rows."""
    reader, view = part.reader, part.view
    assert view is not None
    array = editor.constant(next(name for name in reader.inputs if name != part.moves[-1].outputs[0]))
    assert array is not None
    wide = array.reshape((1,) * (len(columns) - array.ndim) + array.shape)
    for extent, digits in zip(wide.shape, view.axes, strict=True):
        if extent != 1 and any(digit.axis != channel for digit in digits):
            return None
    return np.broadcast_to(wide.astype(np.float64), columns).reshape(-1)


def _fold(editor: GraphEditor, product: Node, part: _Part, columns: Array, constant: Array) -> None:
    """The product's weights with the arithmetic on these columns; what lies between has other values, and new names."""
    out, reader = editor.type(product.outputs[0]), part.reader
    assert isinstance(reader.op, Binary)
    left = reader.inputs[0] == part.moves[-1].outputs[0]
    factors: list[Array | None] = []
    for own, rest in zip(scale_and_shift(reader.op.function, constant, left), (1.0, 0.0), strict=True):
        every = np.full(out.shape[channel_axis(product, out)], rest)
        if own is not None:
            every[columns] = own
        factors.append(None if own is None else every)
    editor.replace(product, replace(product, inputs=folded_inputs(editor, product, *factors)))
    for each in (product, *part.moves[:-1]):
        node = editor.node(each.name)
        assert node is not None
        (value,) = node.outputs
        name = editor.new_value(f"{value.removesuffix(_SUFFIX)}{_SUFFIX}", editor.type(value))
        editor.replace(node, replace(node, outputs=(name,)))
        editor.redirect(value, name)
    last = editor.node(part.moves[-1].name)
    assert last is not None
    editor.remove(reader)
    editor.replace(last, replace(last, outputs=reader.outputs, covers=joined(last.covers, reader.covers)))


_SUFFIX = ".part"
FOLD_PARTS = Pass("fold-parts", _run)
