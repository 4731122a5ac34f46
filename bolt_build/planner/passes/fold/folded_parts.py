"""Folds arithmetic with constants behind what moves a part of a product's columns into the product's weights.

Queries are scaled, or shifted, when they have been cut out of a product beside keys and values, and their heads brought
to the front: CaiT, DaViT and DeBERTa do so. No weight in front of the arithmetic is of these queries alone, but columns
of a weight are. Attention takes the scale of its scores itself; this is for other products of heads. In fp16, single
constants that would make most weights subnormal stay where they are, as behind whole products (`scale_obstacle`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.affine import FUNCTIONS, scale_and_shift
from bolt_build.planner.passes.fold.channels import channel_axis, folded_inputs, scale_obstacle, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import View, step_back, whole


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


def _run(graph: Graph, *, fp16: bool) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv | MatMul) or weight_obstacle(editor, node) is not None:
            continue
        while _fold_one(editor, journal, node, fp16=fp16):
            node = editor.node(old.name)
            assert node is not None
    return journal.result(editor.finish())


def _fold_one(editor: GraphEditor, journal: Journal, product: Node, *, fp16: bool) -> bool:
    """Folds the first arithmetic that can be folded; whether there was any."""
    value = product.outputs[0]
    parts = list(_parts(editor, value, (), whole(editor, value)))
    channel = channel_axis(product, editor.type(value))
    for part, reader in [(each, reader) for each in parts for reader in _computing(editor, each)]:
        columns = part.columns(channel)
        if not part.moves or part.view is None or columns is None or not _is_arithmetic(editor, reader, part.value):
            continue
        touched = [each for each in parts if _overlap(each.columns(channel), columns)]
        array = editor.constant(next(name for name in reader.inputs if name != part.value))
        assert array is not None
        constant = _by_column(array, part.view, channel)
        obstacle = _obstacle(editor, product, part, reader, touched)
        if obstacle is None and fp16:
            obstacle = scale_obstacle(array, _scale_and_shift(reader, part, array.astype(np.float64).reshape(-1))[0])
        if obstacle is None and constant is not None:
            between = [move for each in touched if each is not part for move in each.moves[-1:]]
            _fold(editor, product, part, reader, between, constant)
            journal.did(reader.name, "folded", f"into {columns.size} columns of the weights of '{product.name}'")
            return True
        journal.declined(reader.name, obstacle or f"its constant is not one number a column of '{product.name}'")
    return False


def _obstacle(editor: GraphEditor, product: Node, part: _Part, reader: Node, touched: Sequence[_Part]) -> str | None:
    """Why the columns of a part may not have other values, of which all `touched` parts have some; None where they
    may."""
    if any(editor.is_output(move.outputs[0]) for move in (product, *part.moves)):
        return f"a graph output lies between it and '{product.name}'"
    if any(editor.is_output(each.value) or set(_computing(editor, each)) - {reader} for each in touched):
        return f"what it reads of '{product.name}' is read by others too"
    return None


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


def _by_column(array: Array, view: View, channel: int) -> Array | None:
    """The constant as a number for each of the columns that the view has; None where it has others for some rows."""
    wide = array.reshape((1,) * (len(view.axes) - array.ndim) + array.shape)
    for extent, digits in zip(wide.shape, view.axes, strict=True):
        if extent != 1 and any(digit.axis != channel for digit in digits):
            return None
    return np.broadcast_to(wide.astype(np.float64), _columns(view, channel).shape)


def _scale_and_shift(reader: Node, part: _Part, constant: Array) -> tuple[Array | None, Array | None]:
    assert isinstance(reader.op, Binary)
    return scale_and_shift(reader.op.function, constant, reader.inputs[0] == part.value)


def _fold(
    editor: GraphEditor, product: Node, part: _Part, reader: Node, between: Sequence[Node], constant: Array
) -> None:
    """The product's weights with the arithmetic on the part's columns; what lies `between` has other values, and new
    names."""
    out, channel = editor.type(product.outputs[0]), channel_axis(product, editor.type(product.outputs[0]))
    columns = part.columns(channel)
    assert columns is not None
    factors: list[Array | None] = []
    for own, rest in zip(_scale_and_shift(reader, part, constant), (1.0, 0.0), strict=True):
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
FOLD_PARTS = Pass("fold-parts", partial(_run, fp16=False), in_fp16=partial(_run, fp16=True))
