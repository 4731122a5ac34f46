"""Queries, keys and values that lie side by side: read as packed rows, or moved by one step."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ops.moves.shape import Slice, Transpose
from bolt_build.planner.passes.recognise.attention_heads import joined_heads
from bolt_build.planner.passes.recognise.attention_operands import Chain, Operand, prepared
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import Digit, View, extent, made_of, uncut


def moved_rows(editor: GraphEditor, chain: Chain, q: Operand, k: Operand, v: Operand) -> tuple[str, ...] | None:
    """Queries, keys and values that lie alike in one tensor and would each be moved, moved by one step: the packed rows
    of all three, or each of them where they lie in another order or heads are prepared. For example attention over
    channels, as XCiT and DaViT have it, of one product's columns. None where they do not lie so, or need not be moved.
    """
    all_three = (q, k, v)
    lying = [(each.view.source, *each.groups, each.repeats, each.expanded) for each in all_three]
    if any(each != lying[0] for each in lying) or q.expanded or q.repeats != 1 or q.done != k.done:
        return None
    begins = [each.view.begin for each in all_three]
    least, middle, most = sorted(begins)
    first, second = ([b - a for a, b in zip(*sides, strict=True)] for sides in ((least, middle), (middle, most)))
    axes = [axis for axis, step in enumerate(first) if step]
    places = [sorted(begins).index(each) for each in begins]
    # Of images in planes `move-images` has other ways.
    if first != second or axes != [len(first) - 1] or (q.done is not None and places != [0, 1, 2]):
        return None
    groups = q.images, q.rows, (Digit(3, axes[0], first[axes[0]]), *q.heads, *q.columns)
    ops = made_of(editor.type(q.view.source).shape, replace(q.view, begin=least), groups)
    if ops is None or not any(isinstance(op, Transpose) for op in ops):
        return None
    rows = chain.moved(q.view.source, ops)
    heads = extent(q.heads)
    images, count, width = extent(q.images), extent(q.rows), heads * extent(q.columns)

    def part(of: str, place: int, length: int) -> str:
        return chain.add(Slice((0, 0, place * width), (images, count, length * width), (1, 1, 1)), [of])

    if q.done is None or k.done is None:
        return (rows,) if places == [0, 1, 2] else tuple(part(rows, place, 1) for place in places)
    made = prepared(editor, chain, part(rows, 0, 2), joined_heads(q.done, k.done, (heads, heads)), 2 * heads)
    return part(made, 0, 1), part(made, 1, 1), part(rows, 2, 1)


def packed_rows(editor: GraphEditor, chain: Chain, q: Operand, k: Operand, v: Operand) -> str | None:
    """All three as they lie side by side in one tensor of the same rows, None where they do not."""
    if q.expanded or k.expanded or v.expanded or not q.columns or q.done is not None or k.done is not None:
        return None
    if any((o.view.source, o.images, o.rows) != (q.view.source, q.images, q.rows) for o in (k, v)):
        return None
    axis, size = q.columns[-1].axis, editor.type(q.view.source).shape
    at = 0
    for each in (q, k, v):
        begin, width = list(each.view.begin), extent((*each.heads, *each.columns))
        if uncut((*each.heads, *each.columns)) != (Digit(width, axis, 1),) or begin[axis] != at:
            return None  # elements of a head lie beside each other, and heads behind each other
        begin[axis] = 0
        if any(begin):
            return None
        at += width
    if at != size[axis] or any(digit.axis == axis for digit in (*q.images, *q.rows)):
        return None
    if prod(digit.extent for digit in q.columns) != prod(digit.extent for digit in v.columns):
        return None
    view = View(q.view.source, (0,) * len(size), ())
    ops = made_of(size, view, (q.images, q.rows, (Digit(at, axis, 1),)))
    covered = prod(digit.extent for digit in (*q.images, *q.rows)) * at == prod(size)
    return chain.moved(view.source, ops) if ops is not None and covered else None
