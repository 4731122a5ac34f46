"""Masks that hide keys, as the conditions that they are made of: a key is seen where all of these hold.

Exporters join a triangle, or the constant true of an encoder, with what says which keys are padding, for all pairs of
queries and keys. Apart, the triangle is `causal`, the constant nothing, and the rest one number a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isinf

import numpy as np

from bolt_build.graph.ir import Array
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Logic, Where
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Identity
from bolt_build.planner.passes.recognise.attention_masks import MOST_FOLDED
from bolt_build.planner.passes.recognise.attention_scores import LEAST, Mask, number
from bolt_build.planner.passes.recognise.attention_seen import seen_of
from bolt_build.planner.rewrite import GraphEditor

_FINITE = float(np.finfo(np.float32).min)
_SMALL = 1e4
"""Numbers below it are biases, and hide nothing."""
_LOOKED_AT = 200
"""Nodes that a bias is followed back over."""
_ACTIVATIONS = ("matmul", "placed_matmul", "conv", "norm", "softmax")
"""What layers compute, which is no mask."""


@dataclass(frozen=True)
class Hiding:
    """The masks of one attention. If `tied`, one alone hides keys, by a finite number that no score changes: a query
    that sees no key has the same score for all of them, so it reads their mean. Then that mask hides by infinity here.
    `endless`: the model itself hides by infinity, and such a query gives NaN."""

    masks: tuple[Mask, ...]
    tied: bool
    endless: bool


def hiding_of(editor: GraphEditor, masks: Sequence[Mask]) -> Hiding:
    chosen = [_chosen(editor, part) for mask in masks for part in _addends(editor, mask)]
    hiding = [mask for mask in chosen if mask.hidden is not None]
    others = [mask.value for mask in chosen if mask.hidden is None]
    arrays = [array for array in map(editor.constant, others) if array is not None]
    endless = any(isinf(mask.hidden or 0.0) for mask in hiding) or any(np.isneginf(array).any() for array in arrays)
    # Of two that hide, a key that both hide has no share of the mean.
    if endless or len(hiding) != 1 or any(may_hide(editor, value) for value in others):
        return Hiding(tuple(part for mask in masks for part in _triangle_apart(editor, mask)), False, endless)
    return Hiding(tuple(each if each.hidden is None else replace(each, hidden=-inf) for each in chosen), True, False)


def _triangle_apart(editor: GraphEditor, mask: Mask) -> tuple[Mask, ...]:
    """A mask that is the sum of another and of a constant triangle or band that hides by infinity, as both: so that
    one becomes `causal`, whatever the other is."""
    node = editor.producer(mask.value)
    if mask.hidden is not None or node is None or node.op != Binary("add") or node.epilogue:
        return (mask,)
    for name, other in (node.inputs, node.inputs[::-1]):
        array = editor.constant(name)
        if array is None or array.ndim < 2 or array.shape[-2:] != mask.shape[-2:] or not np.isneginf(array).any():
            continue
        if seen_of(array, *mask.shape[-2:]) is not None and bool(np.isinf(array[array != 0.0]).all()):
            return replace(mask, value=other), replace(mask, value=name)
    return (mask,)


def zeroed_rows(editor: GraphEditor, hiding: Hiding, zeroed: Sequence[tuple[str, bool]]) -> str | None:
    """None where `zeroed` shares, each where a condition is the bool beside it, are those of the keys that one mask
    hides: then only rows without a key change, which have zeros. Otherwise why not."""
    hidden = [mask for mask in hiding.masks if _chosen(editor, mask).hidden is not None]
    if len(hidden) != 1 or not (hiding.tied or hiding.endless):
        return f"'{zeroed[0][0]}' puts zeros in the place of shares, which several masks or none hide"
    mask = _chosen(editor, hidden[0])
    own = set(_conditions(editor, mask.value, mask.where))
    for value, where in zeroed:
        if set(_conditions(editor, value, where)) != own:
            return f"'{value}' puts zeros in the place of shares that '{mask.value}' does not hide"
    return None


def _addends(editor: GraphEditor, mask: Mask) -> tuple[Mask, ...]:
    """What a mask is the sum of, where that is a bias and a choice that hides: T5 adds both before the scores."""
    node = editor.producer(mask.value)
    if mask.hidden is not None or node is None or node.op != Binary("add") or node.epilogue:
        return (mask,)
    parts = tuple(replace(mask, value=value) for value in node.inputs)
    return parts if any(_chosen(editor, part).hidden is not None for part in parts) else (mask,)


def may_hide(editor: GraphEditor, value: str) -> bool:
    """Whether a mask may have numbers that hide keys: it is made of large constants, or of numbers that are given."""
    waiting, seen = [value], {value}
    while waiting:
        name = waiting.pop()
        array, node = editor.constant(name), editor.producer(name)
        if array is not None:
            weights = array.size > MOST_FOLDED or not array.size or array.dtype.kind == "b"
            if not weights and float(np.abs(array.astype(np.float64)).max()) >= _SMALL:
                return True
        elif node is None:
            if editor.type(name).dtype.is_float:
                return True
        elif node.op.kind not in _ACTIVATIONS:
            more = [each for each in node.inputs if each not in seen]
            waiting += more
            seen.update(more)
            if len(seen) > _LOOKED_AT:
                return True
    return False


def apart(editor: GraphEditor, mask: Mask) -> tuple[Mask, ...]:
    """Masks that together hide what `mask` hides; itself where it is not made of several.

    A row of which two masks together leave nothing sees the keys that one of them hides by a finite number: so only
    those that hide by infinity come apart. What hides nothing is left out of any.
    """
    chosen = _chosen(editor, mask)
    if chosen.hidden is None:
        return (mask,)
    parts = _conditions(editor, chosen.value, chosen.where)
    left = [(value, where) for value, where in parts if not _holds(editor.constant(value), not where)]
    if len(left) > 1 and not isinf(chosen.hidden):
        return (mask,)
    return tuple(replace(chosen, value=value, where=where) for value, where in left)


def _chosen(editor: GraphEditor, mask: Mask) -> Mask:
    """The mask as a condition, where it is a choice between zero and a number that hides."""
    node = editor.producer(mask.value)
    if mask.hidden is not None or node is None or not isinstance(node.op, Where) or node.epilogue:
        return mask
    condition, *sides = node.inputs
    levels = [number(editor, side) for side in sides]
    for where, (hidden, shown) in ((True, levels), (False, levels[::-1])):
        if shown != 0.0 or hidden is None or mask.factor <= 0.0:
            continue
        # A finite number stays one: rows that it hides as a whole see all keys alike.
        level = hidden if mask.factor == 1.0 or isinf(hidden) else max(hidden * mask.factor, _FINITE)
        if level <= LEAST:
            return Mask(condition, mask.shape, level, where)
    return mask


def _conditions(editor: GraphEditor, value: str, where: bool) -> list[tuple[str, bool]]:
    """Conditions of which each hides a key where it is the bool beside it: together they hide where `value` is
    `where`."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return [(value, where)]
    match node.op:
        case Logic(function) if function == ("or" if where else "and"):
            return [part for side in node.inputs for part in _conditions(editor, side, where)]
        case Ask("not"):
            return _conditions(editor, node.inputs[0], not where)
        case Expand() | Identity():  # conditions broadcast
            return _conditions(editor, node.inputs[0], where)
    return [(value, where)]


def _holds(array: Array | None, everywhere: bool) -> bool:
    """Whether a constant is this bool everywhere."""
    return array is not None and bool((array == everywhere).all())
