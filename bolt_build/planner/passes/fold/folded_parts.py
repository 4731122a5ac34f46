"""Folds arithmetic with constants behind what moves a part of a product's columns into the product's weights.

Queries are scaled, or shifted, when they have been cut out of a product beside keys and values, and their heads brought
to the front: CaiT, DaViT and DeBERTa do so. No weight in front of the arithmetic is of these queries alone, but columns
of a weight are. Attention takes the scale of its scores itself; this is for other products of heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.affine import FUNCTIONS, scale_and_shift
from bolt_build.planner.passes.fold.channels import channel_axis, folded_inputs, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import View, step_back, whole
from bolt_build.schema.recipe import Policy


@dataclass(frozen=True)
class _Part:
    """What moves make of a product, itself where there are none: the moves, in order, and the view that they make; None
    where they make none."""

    value: str
    moves: tuple[Node, ...]
    view: View | None

    def columns(self, channel: int) -> Array | None:
        """Which columns of the product it has: an axis for each of its own, of extent 1 where it counts none."""
        return None if self.view is None else _columns(self.view, channel)


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
    for part, reader in [(each, reader) for each in parts for reader in _computing(editor, each)]:
        columns = part.columns(channel)
        if not part.moves or columns is None or not _is_arithmetic(editor, reader, part.value):
            continue
        if any(editor.is_output(move.outputs[0]) for move in (product, *part.moves)):
            journal.declined(reader.name, f"a graph output lies between it and '{product.name}'")
            continue
        touched = [each for each in parts if _overlap(each.columns(channel), columns)]
        if any(editor.is_output(each.value) or set(_computing(editor, each)) - {reader} for each in touched):
            journal.declined(reader.name, f"what it reads of '{product.name}' is read by others too")
            continue
        constant = _by_column(editor, reader, part, channel)
        if constant is None:
            journal.declined(reader.name, f"its constant is not one number a column of '{product.name}'")
            continue
        between = [move for each in touched if each is not part for move in each.moves[-1:]]
        _fold(editor, product, part, reader, between, constant)
        journal.did(reader.name, "folded", f"into {columns.size} columns of the weights of '{product.name}'")
        return True
    return False


def _parts(editor: GraphEditor, value: str, moves: tuple[Node, ...], view: View | None) -> Iterator[_Part]:
    """All that moves make of `value`, which is `view` of the product, and itself."""
    yield _Part(value, moves, view)
    for reader in editor.readers(value):
        op = _move(editor, reader, value)
        if op is None:
            continue
        (taken,) = op.infer([editor.type(value)])
        shape = editor.type(reader.outputs[0]).shape
        moved = None if view is None else view.moved(op, taken.shape)
        if moved is not None and taken.shape != shape:  # a gather drops the axis
            moved = moved.moved(Reshape(shape), shape)
        yield from _parts(editor, reader.outputs[0], (*moves, reader), moved)


def _move(editor: GraphEditor, reader: Node, value: str) -> Op | None:
    return step_back(editor, reader) if reader.inputs[0] == value else None


def _computing(editor: GraphEditor, part: _Part) -> list[Node]:
    """The readers of a part that are no moves."""
    return [reader for reader in editor.readers(part.value) if _move(editor, reader, part.value) is None]


def _overlap(one: Array | None, other: Array) -> bool:
    """Whether the columns may have one in common; None are unknown ones."""
    return one is None or bool(np.isin(one, other).any())


def _is_arithmetic(editor: GraphEditor, reader: Node, value: str) -> bool:
    """Whether the reader of `value` computes with a constant."""
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


def _by_column(editor: GraphEditor, reader: Node, part: _Part, channel: int) -> Array | None:
    """The constant as a number for each of the part's columns; None where it has others for some rows."""
    view = part.view
    assert view is not None
    array = editor.constant(next(name for name in reader.inputs if name != part.value))
    assert array is not None
    wide = array.reshape((1,) * (len(view.axes) - array.ndim) + array.shape)
    for extent, digits in zip(wide.shape, view.axes, strict=True):
        if extent != 1 and any(digit.axis != channel for digit in digits):
            return None
    return np.broadcast_to(wide.astype(np.float64), _columns(view, channel).shape)


def _fold(
    editor: GraphEditor, product: Node, part: _Part, reader: Node, between: Sequence[Node], constant: Array
) -> None:
    """The product's weights with the arithmetic on the part's columns; what lies `between` has other values, and new
    names."""
    out, channel = editor.type(product.outputs[0]), channel_axis(product, editor.type(product.outputs[0]))
    columns = part.columns(channel)
    assert isinstance(reader.op, Binary)
    assert columns is not None
    factors: list[Array | None] = []
    left = reader.inputs[0] == part.value
    for own, rest in zip(scale_and_shift(reader.op.function, constant, left), (1.0, 0.0), strict=True):
        every = np.full(out.shape[channel], rest)
        if own is not None:
            every[columns] = own
        factors.append(None if own is None else every)
    editor.replace(product, replace(product, inputs=folded_inputs(editor, product, *factors)))
    for each in (product, *between):
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
