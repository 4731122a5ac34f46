"""Masks of one attention, summed up in the form that it reads: [images, heads, queries, keys], 1 along axes that share
what they hold.

Networks of shifted windows repeat a mask of the windows for every image, and add a bias of the heads. Of both no more
is kept than one image has: attention begins anew with a mask behind its last image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import held, held_dtype, narrowed
from bolt_build.graph.ir import Array, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.recognise.attention_operands import Chain, viewed
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import REPEATED, Axis, Digit, View, extent, grouped, made_of

MOST_FOLDED = 1 << 20
"""Elements of a mask that is computed here from constants."""


@dataclass(frozen=True)
class Addend:
    """A value that is added to scores of this `shape`, to which it broadcasts."""

    value: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Once:
    """What an addend holds without what repeats it: `ops`, one behind the other, on `value`, or on a constant of which
    this `array` is what does not repeat. `shape` is that of the result."""

    value: str
    array: Array | None
    ops: tuple[Op, ...]
    shape: tuple[int, ...]


def mask_of(editor: GraphEditor, chain: Chain, addends: Sequence[Addend], images: int, heads: int) -> str:
    """The mask that all of them are together, in nodes of the chain."""
    masks: list[str] = []
    for addend in addends:
        parts = _parts(editor, addend, images, heads)
        if parts is None:
            masks.append(_broadcast(editor, chain, addend, images, heads))
        else:
            masks += [_made(editor, chain, part) for part in parts]
    while len(masks) > 1:
        masks[-2:] = [_sum(editor, chain, masks[-2], masks[-1], images)]
    return masks[0]


def _parts(editor: GraphEditor, addend: Addend, images: int, heads: int) -> tuple[_Once, ...] | None:
    """The addend as what it is the sum of, each without what repeats it for images; None where nothing does."""
    node = editor.producer(addend.value)
    if node is not None and node.op == Binary("add") and not node.epilogue:
        sides = [Addend(name, addend.shape) for name in node.inputs]
        parts = [_parts(editor, side, images, heads) or _whole(editor, side, images, heads) for side in sides]
        found = [part for each in parts if each is not None for part in each]
        summed = np.broadcast_shapes(*(part.shape for part in found)) if _add_up(found) else ()
        fewer = summed and prod(summed) < editor.type(addend.value).elements
        return tuple(found) if None not in parts and fewer else None
    once = _once(editor, addend, images, heads)
    return (once,) if once is not None and 1 < once.shape[0] < images else None


def _add_up(parts: Sequence[_Once]) -> bool:
    """Whether no more than one of the addends' counts of images is above 1: they broadcast."""
    return bool(parts) and len({part.shape[0] for part in parts} - {1}) < 2


def _whole(editor: GraphEditor, addend: Addend, images: int, heads: int) -> tuple[_Once, ...] | None:
    once = _once(editor, addend, images, heads)
    return None if once is None else (once,)


def _once(editor: GraphEditor, addend: Addend, images: int, heads: int) -> _Once | None:
    """The addend without the digits that repeat it; None where images and heads are no whole digits, or are repeated in
    a way that a mask cannot be."""
    value, shape = addend.value, addend.shape
    array = editor.constant(value)
    if array is None:
        view = viewed(editor, value, scales=False).view
        sizes = editor.type(view.source).shape
    else:
        array, view = _cut(value, array, shape, heads)
        sizes = array.shape
    axes = ((),) * (len(shape) - len(view.axes)) + view.axes
    every = [axis or _repeated(size) for axis, size in zip(axes, shape, strict=True)]
    of_batch = grouped((digit for axis in every[:-2] for digit in axis), (images, heads))
    if of_batch is None:
        return None
    own = of_batch[0]
    while own and own[0].axis == REPEATED:
        own = own[1:]
    rest = (() if all(digit.axis == REPEATED for digit in axis) else axis for axis in (of_batch[1], *every[-2:]))
    groups = (own, *rest)
    ops = made_of(sizes, view, groups)
    return None if ops is None else _Once(view.source, array, ops, tuple(extent(group) for group in groups))


def _repeated(size: int) -> Axis:
    return (Digit(size, REPEATED, 0),) if size != 1 else ()


def _cut(value: str, array: Array, shape: tuple[int, ...], heads: int) -> tuple[Array, View]:
    """A constant that is added to scores of this shape, cut along images to what does not repeat; and its view that is
    all. What heads have alike is a matter of weights' values, which a plan does not depend on."""
    axes, ahead = list[Axis](), len(shape) - array.ndim
    for axis, size in enumerate(array.shape):
        own = max(1, heads // max(1, prod(shape[ahead + axis + 1 : -2])))
        period = _period(array, axis, own) if axis < array.ndim - 2 else size
        array = array[(slice(None),) * axis + (slice(0, period),)]
        kept = (Digit(period, axis, 1),) if period != 1 else ()
        axes.append((*_repeated(size // period if period else 1), *kept))
    return array, View(value, (0,) * array.ndim, tuple(axes))


def _period(array: Array, axis: int, own: int) -> int:
    """Behind how many elements of the axis it begins anew: the fewest that divide it and are those of whole images, of
    which each has `own`."""
    along = np.moveaxis(array, axis, 0)
    count = len(along)
    for period in range(own, count // 2 + 1, own):
        if count % period or not np.array_equal(along[period], along[0]):
            continue
        if np.array_equal(along[period:], along[:-period]):
            return period
    return count


def _made(editor: GraphEditor, chain: Chain, part: _Once) -> str:
    if part.array is None:
        return chain.moved(part.value, part.ops)
    array = part.array
    for op in part.ops:
        (array,) = op.evaluate([array])
    if array.shape == editor.type(part.value).shape:
        return part.value
    return editor.new_constant(f"{part.value}.mask", array, editor.type(part.value).dtype)


def _sum(editor: GraphEditor, chain: Chain, a: str, b: str, images: int) -> str:
    """Two masks added up; constants here, however much larger their sum is, for it is read once a head."""
    counts = [_images(editor, name) for name in (a, b)]
    fewer, more = sorted(counts)
    if fewer not in (1, more) and more % fewer:
        a, counts[0], more = _for_all(editor, chain, a, images), images, images
        fewer = counts[1]
    if fewer not in (1, more):
        a, b = (
            chain.add(Reshape((more // fewer, fewer, *editor.type(name).shape[1:])), [name]) if count == more else name
            for name, count in zip((a, b), counts, strict=True)
        )
        total = chain.add(Binary("add"), [a, b])
        return chain.add(Reshape((more, *editor.type(total).shape[2:])), [total])
    arrays = editor.constant(a), editor.constant(b)
    if arrays[0] is None or arrays[1] is None:
        return chain.add(Binary("add"), [a, b])
    if prod(np.broadcast_shapes(arrays[0].shape, arrays[1].shape)) > MOST_FOLDED:
        return chain.add(Binary("add"), [a, b])
    dtype = editor.type(a).dtype
    (total_,) = Binary("add").evaluate([held(arrays[0]), held(arrays[1])])
    return editor.new_constant(f"{chain.label}.mask", narrowed(total_, held_dtype(dtype)), dtype)


def _images(editor: GraphEditor, mask: str) -> int:
    shape = editor.type(mask).shape
    return shape[0] if len(shape) == 4 else 1


def _for_all(editor: GraphEditor, chain: Chain, mask: str, images: int) -> str:
    """The mask again and again, as large as all images take."""
    own, *rest = editor.type(mask).shape
    value = chain.add(Reshape((1, own, *rest)), [mask])
    return chain.add(Reshape((images, *rest)), [chain.add(Expand((images // own, own, *rest)), [value])])


def _broadcast(editor: GraphEditor, chain: Chain, addend: Addend, images: int, heads: int) -> str:
    """An addend that nothing repeats, as one that broadcasts to [images, heads, queries, keys]."""
    value, scores = addend.value, addend.shape
    node = editor.producer(value)
    if node is not None and isinstance(node.op, Expand) and not node.epilogue:
        value = node.inputs[0]
    shape = editor.type(value).shape
    batch = scores[:-2]
    if len(shape) <= 2 or (len(shape) <= 4 and batch == (images, heads)):
        return value
    own = (1,) * (len(scores) - len(shape)) + shape
    if all(size == 1 for size in own[:-2]):
        return chain.add(Reshape(own[-2:]), [value])
    cut = next((i for i in range(len(batch) + 1) if prod(batch[i:]) == heads), None)
    if cut is None:
        everywhere = (*batch, *own[-2:])
        value = value if shape == everywhere else chain.add(Expand(everywhere), [value])
        return chain.add(Reshape((images, heads, *own[-2:])), [value])
    parts, spread = [], list(own)
    for first, last in ((0, cut), (cut, len(batch))):
        is_one = all(size == 1 for size in own[first:last])
        if not is_one:
            spread[first:last] = batch[first:last]
        parts.append(1 if is_one else prod(batch[first:last]))
    if tuple(spread) != own:
        value = chain.add(Expand(tuple(spread)), [value])
    return chain.add(Reshape((*parts, *own[-2:])), [value])


def once(mask: Array | None) -> Array | None:
    """A mask, 1 along each axis in front of its matrices that repeats them: a model that was exported for a batch has a
    triangle for each image."""
    if mask is None:
        return None
    for axis in range(mask.ndim - 2):
        first = mask[(slice(None),) * axis + (slice(0, 1),)]
        if np.array_equal(mask, np.broadcast_to(first, mask.shape)):
            mask = first
    return mask


def is_nothing(array: Array, given: Array | None) -> bool:
    """Whether a mask is zeros alone. One that is added may be weights that are zeros as yet, unless all heads share it
    as it was `given`."""
    shared = given is None or given.ndim < 3 or given.shape[-3] == 1
    return shared and not array.any()
