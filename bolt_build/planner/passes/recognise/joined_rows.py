"""Rows of several tensors behind each other, which attention reads as one: words in front of an image's patches, as
SD3 and Flux have them, or learned keys in front of others.

Models put heads behind each other, [N, heads, rows, elements], that they have moved and normalised in each tensor
before. Where rows lie side by side in products, these are put behind each other as they lie, and no head is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.planner.passes.recognise.attention_heads import heads_done
from bolt_build.planner.passes.recognise.attention_operands import (
    Chain,
    Operand,
    moved_elements,
    prepared,
    rows_of,
    viewed,
)
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import Axis, extent, made_of


def rows_joined_or_not(editor: GraphEditor, chain: Chain, found: Operand) -> str:
    """The operand in the form that attention reads, put together of parts in that form where less is moved so."""
    parts = _parts(editor, found)
    if parts is None or moved_elements(editor, parts) >= moved_elements(editor, [found]):
        return rows_of(editor, chain, found)
    rows = chain.add(Concat(1), [rows_of(editor, chain, part) for part in parts])
    return rows if found.done is None else prepared(editor, chain, rows, found.done, extent(found.heads))


def _parts(editor: GraphEditor, found: Operand) -> list[Operand] | None:
    """What is put behind each other along the operand's rows; None where it is no concatenation of whole rows."""
    value = found.view.source
    node, shape = editor.producer(value), editor.type(value).shape
    if node is None or node.epilogue or not isinstance(node.op, Concat) or editor.not_private(value) is not None:
        return None
    if found.expanded or found.repeats != 1 or any(found.view.begin):
        return None
    groups = found.images, found.heads, found.rows, found.columns
    axes = [_whole_axis(group, shape) for group in groups]
    if axes[2] != node.op.axis or axes[3] is None or any(None not in (axis,) and axis == axes[2] for axis in axes[:2]):
        return None
    parts = [_part(editor, name, axes, extent(found.columns)) for name in node.inputs]
    whole = [part for part in parts if part is not None]
    return whole if len(whole) == len(parts) else None


def _whole_axis(group: Axis, shape: Sequence[int]) -> int | None:
    """The axis of which the group is all; None where it is a part of one or of several, or one element."""
    if len(group) != 1 or group[0].step != 1 or group[0].extent != shape[group[0].axis]:
        return None
    return group[0].axis


def _part(editor: GraphEditor, name: str, axes: Sequence[int | None], depth: int) -> Operand | None:
    """One of them, by where its elements come from."""
    for source in (viewed(editor, name, scales=False, depth=depth), viewed(editor, name, scales=False)):
        images, heads, rows, columns = (() if axis is None else source.view.axes[axis] for axis in axes)
        made = Operand(source.view, images, heads, rows, columns, 1, passed=source.passed)
        if made_of(editor.type(source.view.source).shape, source.view, made.groups) is None:
            continue
        if not source.done:
            return made
        done = heads_done(editor, source.done, (images, rows, heads), columns, extent(columns))
        if not isinstance(done, str):
            return replace(made, done=done)
    return None
