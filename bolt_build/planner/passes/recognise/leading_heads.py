"""Heads in front of the images of a batch, as models have them that put parts of rows behind each other there."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.planner.passes.recognise.attention_operands import Operand, moved_elements, viewed
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import extent, grouped, made_of

Operands = tuple[Operand, Operand, Operand]


def leading_heads(editor: GraphEditor, values: tuple[str, ...], batch: tuple[int, ...]) -> int:
    """How many heads stand in front of the images of this batch: what the first of the values takes of the axis that
    its columns are of, if these are the outermost matrices. 1 where none does."""
    for value in values:
        view = viewed(editor, value, scales=True).view
        matrices = [digit for axis in view.axes[:-2] for digit in axis]
        axes = {digit.axis for digit in (*view.axes[-1], *view.axes[-2])}
        if len(matrices) < 2 or prod(view.shape[:-2]) != prod(batch):
            continue
        if matrices[0].axis in axes and not any(digit.axis == matrices[0].axis for digit in matrices[1:]):
            return matrices[0].extent
    return 1


def in_front(editor: GraphEditor, all_heads: Operands, heads: int, instead: Operands) -> Operands | None:
    """The operands, whose matrices count as heads of one image, with so many heads in front of the images; None where
    as much has to be moved as without."""
    found = []
    for each in all_heads:
        cut = grouped(each.heads, (heads, extent(each.heads) // heads))
        if each.repeats != 1 or each.done is not None or each.images or cut is None:
            return None
        made = replace(each, images=cut[1], heads=cut[0], passed=())
        if made_of(each.expanded or editor.type(each.view.source).shape, each.view, made.groups) is None:
            return None
        found.append(made)
    q, k, v = found
    return (q, k, v) if moved_elements(editor, found) < moved_elements(editor, instead) else None
