"""More of what `drawn_graphs` draws: attention as decoders, windows and encoders beside each other have it."""

from __future__ import annotations

import numpy as np
from drawn_graphs import Dropped, Growing
from drawn_layers import activated, beside_constant, paired
from drawn_products import multiplied

from bolt_build.graph.ir import Array
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul

DEPTHS, ROWS, WIDTHS = (4, 2, 6, 8), (4, 5, 3, 6, 1), (4, 8, 3)
"""Elements of a head, and extents of an input of rows."""
LEAST = float(np.finfo(np.float32).min), -np.inf, -1e30, -1e4
"""What models hide keys by."""


def decoder_heads(g: Growing) -> str:
    """Attention of rows to themselves or to others: heads that share keys, positions turned into queries and keys,
    earlier keys in front of them, scores with caps, biases and masks."""
    x = _rows(g)
    images, queries, width = g.shape(x)
    others = [y for y in g.tensors(3) if g.shape(y)[0] == images]
    source = g.choose(x, x, *others)
    kv, repeats, depth = g.choose(1, 2, 3), g.choose(1, 2, 3, 4), g.choose(*DEPTHS)
    columns = g.choose(depth, depth, 3)
    heads = kv * repeats
    if source == x and columns == depth and g.chance():
        total = (heads + 2 * kv) * depth
        every, at = multiplied(g, x, total), 0
        rows = []
        for count in (heads, kv, kv):
            part = (images, queries, count * depth)
            rows.append(g.add(Slice((0, 0, at), part, (1, 1, 1)), every))
            at += count * depth
    else:
        rows = [multiplied(g, x, heads * depth), multiplied(g, source, kv * depth), multiplied(g, source, kv * columns)]
    split = [
        _heads(g, each, count, extent)
        for each, count, extent in zip(rows, (heads, kv, kv), (depth, depth, columns), strict=True)
    ]
    if g.chance():
        split[:2] = _prepared(g, split[0], split[1])
    if g.chance(4):
        split[1:] = _behind_earlier(g, split[1], split[2])
    if repeats > 1 and not g.chance(4):
        split[1:] = [_repeated(g, each, repeats) for each in split[1:]]
    mixed = _mixed(g, *split, scale=depth**-0.5)
    if g.chance(4):  # rows of padding
        kept = g.constant(g.numbers(*g.choose((queries, 1), (images, 1, queries, 1))) > 0)
        mixed = g.add(Where(), kept, mixed, g.scalar(0.0))
    made = g.add(Reshape((images, queries, heads * columns)), g.add(Transpose((0, 2, 1, 3)), mixed))
    if g.chance():
        made = multiplied(g, made, width)
    return paired(g, "add", x, made) if g.shape(made) == g.shape(x) and g.chance() else made


def _rows(g: Growing) -> str:
    """Of the graph, or an input of its own."""
    if g.tensors(3) and not g.chance(3):
        return g.tensor(3)
    return g.add_input(g.batch, g.choose(*ROWS), g.choose(*WIDTHS))


def _heads(g: Growing, rows: str, heads: int, extent: int) -> str:
    """[images, heads, rows, extent]"""
    images, count, _ = g.shape(rows)
    return g.add(Transpose((0, 2, 1, 3)), g.add(Reshape((images, count, heads, extent)), rows))


def heads_in_front(g: Growing) -> str:
    """Heads that are parts of rows, put behind each other along the batch or another axis, and back."""
    x = _rows(g)
    heads, depth, axis = g.choose(2, 3), g.choose(*DEPTHS[:2]), g.choose(0, 0, 0, 1)
    sides = [_behind_each_other(g, multiplied(g, x, heads * depth), 2, heads, axis) for _ in range(3)]
    scores = paired(g, "mul", g.add(MatMul(transpose_b=True), *sides[:2]), g.scalar(depth**-0.5))
    if g.chance(4):
        scores = paired(g, "add", scores, g.weights(*g.broadcastable(g.shape(scores))))
    made = g.add(MatMul(), g.add(Softmax(2), scores), sides[2])
    if g.chance(4):
        made = paired(g, "add", made, sides[0])
    return _behind_each_other(g, made, 0, heads, 2) if axis == 0 else made


def _behind_each_other(g: Growing, x: str, axis: int, parts: int, along: int) -> str:
    """Equal parts along one axis, along another."""
    shape = g.shape(x)
    extent = shape[axis] // parts
    count = tuple(extent if at == axis else each for at, each in enumerate(shape))
    begins = [tuple(part * extent if at == axis else 0 for at in range(len(shape))) for part in range(parts)]
    return g.add(Concat(along), *(g.add(Slice(begin, count, (1,) * len(shape)), x) for begin in begins))


def _prepared(g: Growing, *sides: str) -> list[str]:
    """Heads that are normalised, turned, or both."""
    norm, turn = g.chance(3), g.choose(True, False)
    parts, pairs, table = g.chance(3), g.chance(3), g.choose("row", "image", "one")
    found = []
    for each in sides:
        images, _, rows, extent = g.shape(each)
        if norm and extent > 2:
            scale = [g.factors(extent)] if g.chance() else []
            each = g.add(Norm(g.choose("rms", "variance"), (3,), 1e-2), each, *scale)
        if turn and extent % 2 == 0:
            count = extent // 2 if parts and extent % 4 == 0 else extent
            lead = {"row": (rows,), "image": (images, 1, rows), "one": (1, 1, rows)}[table]
            each = _turned(g, each, count, [g.weights(*lead, count) for _ in range(2)], pairs=pairs)
        found.append(each)
    return found


def _turned(g: Growing, x: str, count: int, table: list[str], *, pairs: bool) -> str:
    *lead, extent = g.shape(x)

    def cut(value: str, begin: int, end: int, step: int = 1) -> str:
        shape = (*lead, -(-(end - begin) // step))
        return g.add(Slice((*(0,) * len(lead), begin), shape, (*(1,) * len(lead), step)), value)

    axis, half = len(lead), count // 2
    part = cut(x, 0, count) if count < extent else x
    if pairs:
        if g.chance():  # an axis of their own
            apart = g.add(Reshape((*lead, half, 2)), part)
            first, second = (g.add(Gather(axis + 1), apart, g.constant(np.int64(at))) for at in range(2))
        else:
            first, second = cut(part, 0, count, 2), cut(part, 1, count, 2)
        sides = [g.add(Reshape((*lead, half, 1)), each) for each in (g.add(Activation("neg"), second), first)]
        other = g.add(Reshape((*lead, count)), g.add(Concat(axis + 1), *sides))
    else:
        other = g.add(Concat(axis), g.add(Activation("neg"), cut(part, half, count)), cut(part, 0, half))
    made = paired(g, "add", paired(g, "mul", part, table[0]), paired(g, "mul", other, table[1]))
    return g.add(Concat(axis), made, cut(x, count, extent)) if count < extent else made


def _behind_earlier(g: Growing, *sides: str) -> list[str]:
    """Keys and values behind those of earlier rows, which are given or learned, or of rows of another tensor."""
    count, what = g.choose(1, 2, 3), g.choose("given", "learned", "rows")
    images = g.shape(sides[0])[0]
    others = [y for y in g.tensors(3) if g.shape(y)[0] == images]
    found = []
    for each in sides:
        _, heads, _, extent = g.shape(each)
        shape = (images, heads, count, extent)
        match what:
            case "given":
                before = g.add_input(*shape)
            case "learned":
                before = g.weights(*shape)
            case _:
                if not others:  # rows that are reshaped have other images
                    raise Dropped
                before = _heads(g, multiplied(g, others[0], heads * extent), heads, extent)
                if each == sides[0] and extent > 2:
                    before = g.add(Norm("rms", (3,), 1e-2), before, g.factors(extent))
        found.append(g.add(Concat(2), before, each))
    return found


def _repeated(g: Growing, x: str, count: int) -> str:
    """Each head so many times, as models share keys and values; or all heads behind each other, which is no sharing."""
    images, heads, rows, extent = g.shape(x)
    if g.chance(5):
        return g.add(Concat(1), *[x] * count)
    apart = g.add(Expand((images, heads, count, rows, extent)), g.add(Reshape((images, heads, 1, rows, extent)), x))
    return g.add(Reshape((images, heads * count, rows, extent)), apart)


def _mixed(g: Growing, query: str, key: str, value: str, scale: float) -> str:
    if g.chance(3):
        root = g.scalar(scale**0.5)
        query, key = paired(g, "mul", query, root), paired(g, "mul", key, root)
    (images, heads, rows, _), (_, groups, keys, _) = g.shape(query), g.shape(key)
    if groups != heads:  # heads that share keys are rows of one matrix
        query = g.add(Reshape((images, groups, heads // groups * rows, g.shape(query)[3])), query)
    scores = g.add(MatMul(transpose_b=True), query, key)
    if groups != heads:
        scores = g.add(Reshape((images, heads, rows, keys)), scores)
    if g.choose(True, False):
        scores = paired(g, "mul", scores, g.scalar(scale))
    if g.chance(3):
        cap = g.choose(2.0, 0.5, 4.0)
        scores = paired(g, "mul", g.add(Activation("tanh"), g.add(Binary("div"), scores, g.scalar(cap))), g.scalar(cap))
    masks, seen = g.which(3), None
    if not masks and g.chance(4):
        seen = _of_keys(g, images, keys)
        scores = g.add(Where(), seen, scores, g.scalar(g.choose(*LEAST)), hides=True)
    if seen is None and g.chance(5):
        return _with_triangle(g, scores, value, groups)
    for _ in range(masks):
        scores = _with_mask(g, scores)
    greatest = g.arrays[scores].max(axis=-1)
    if (greatest < -1e3).any() and (masks > 1 or (greatest > -1e30).any()):
        # docs/limits.md: masks that together hide all keys of a query. And of scores less 10000 little is left.
        raise Dropped
    if g.chance(6):
        scores = paired(g, "mul", scores, g.scalar(g.choose(0.5, -1.0)))
    if seen is None and groups == heads and g.chance(5):
        return _with_sink(g, scores, value)
    if seen is None and groups == heads and g.chance(5):
        return _by_powers(g, scores, value)
    shares = g.add(
        Softmax(3), g.add(Binary("sub"), scores, g.add(Reduce("max", (3,)), scores)) if g.chance(6) else scores
    )
    if seen is not None:
        shares = g.add(Where(), seen, shares, g.scalar(0.0))
    if not np.isfinite(g.arrays[shares]).all():
        safe = g.add(Where(), g.add(Ask("nan"), shares), g.scalar(0.0), shares)
        if not g.choose(True, False):
            raise Dropped
        shares = safe
    if groups != heads:
        shares = g.add(Reshape((images, groups, heads // groups * rows, keys)), shares)
        return g.add(Reshape((images, heads, rows, g.shape(value)[3])), g.add(MatMul(), shares, value))
    if g.chance(5):
        return g.add(Transpose((0, 1, 3, 2)), g.add(MatMul(transpose_a=True, transpose_b=True), value, shares))
    return g.add(MatMul(), shares, value)


def _with_triangle(g: Growing, scores: str, value: str, groups: int) -> str:
    """Shares of scores with the sum of a triangle and of what hides keys, by infinity, as ONNX's operator has it."""
    images, heads, queries, keys = g.shape(scores)
    shown = np.arange(keys) <= np.arange(queries)[:, None]
    triangle = g.constant(np.where(shown, np.float32(0), np.float32(-np.inf)))
    hidden = g.add(Where(), _of_keys(g, images, keys), g.scalar(0.0), g.scalar(-np.inf), hides=True)
    scores = g.add(Binary("add"), scores, paired(g, "add", hidden, triangle), hides=True)
    shares = g.add(Softmax(3), scores)
    shares = g.add(Where(), g.add(Ask("nan"), shares), g.scalar(0.0), shares)
    if groups == heads:
        return g.add(MatMul(), shares, value)
    shares = g.add(Reshape((images, groups, heads // groups * queries, keys)), shares)
    return g.add(Reshape((images, heads, queries, g.shape(value)[3])), g.add(MatMul(), shares, value))


def _with_sink(g: Growing, scores: str, value: str) -> str:
    """Shares beside those of one more score of each head, which is a column, or whose power is added to the sum."""
    images, heads, queries, keys = g.shape(scores)
    sink = g.choose(*(g.weights(*shape) for shape in ((1, heads, 1, 1), (heads, 1, 1), (images, heads, queries, 1))))
    if g.chance():
        column = g.add(Expand((images, heads, queries, 1)), sink)
        first = g.choose(0, 0, 1)
        if g.chance(3):
            all_scores = g.add(Pad((0, 0, 0, first), (0, 0, 0, 1 - first)), scores)
        else:
            all_scores = g.add(Concat(3), *((column, scores) if first else (scores, column)))
        if g.chance(3):
            all_scores = g.add(Binary("sub"), all_scores, g.add(Reduce("max", (3,)), all_scores))
        shares = g.add(Softmax(3), all_scores)
        shares = g.add(Slice((0, 0, 0, first), (images, heads, queries, keys), (1,) * 4), shares)
        return g.add(MatMul(), shares, value)
    if not np.isfinite(g.arrays[scores].max(axis=-1)).all():
        raise Dropped
    power, nothing = g.add(Activation("exp"), sink), g.choose(True, False)
    if g.choose(True, False):
        largest = g.add(Binary("max"), g.add(Reduce("max", (3,)), scores), sink)
        scores = g.add(Binary("sub"), scores, largest)
        left = g.add(Activation("neg"), largest) if nothing else g.add(Binary("sub"), sink, largest)
        power = g.add(Activation("exp"), left)
    elif nothing:
        power = g.scalar(g.choose(1.0, 2.5))
    powers = g.add(Activation("exp"), scores)
    total = g.add(Reduce("sum", (3,)), powers)
    total = g.add(Binary("add"), *g.choose((power, total), (total, power)))
    if g.chance():
        return g.add(MatMul(), g.add(Binary("div"), powers, total), value)
    return g.add(Binary("div"), g.add(MatMul(), powers, value), total)


def _by_powers(g: Growing, scores: str, value: str) -> str:
    """A softmax that is spelled out, in front of the product or divided behind it."""
    if not np.isfinite(g.arrays[scores].max(axis=-1)).all():
        raise Dropped
    if g.choose(True, False):
        scores = g.add(Binary("sub"), scores, g.add(Reduce("max", (3,)), scores))
    powers = g.add(Activation("exp"), scores)
    total = g.add(Reduce("sum", (3,)), powers)
    if g.chance():
        return g.add(MatMul(), g.add(Binary("div"), powers, total), value)
    return g.add(Binary("div"), g.add(MatMul(), powers, value), total)


def _shown(g: Growing, queries: int, keys: int) -> Array:
    """A triangle, a band on one side or both, chunks, blocks, or pairs at random: bool [queries, keys]."""
    row, column = np.arange(queries)[:, None], np.arange(keys)
    behind = g.choose(0, keys - queries)
    size = 1 + g.which(max(1, keys))
    match g.choose("triangle", "window", "band", "lopsided", "chunks", "blocks", "pairs"):
        case "triangle":
            return column <= row + behind
        case "window":
            return (column <= row + behind) & (column > row + behind - size)
        case "band":
            return np.abs(row - column) < size
        case "lopsided":
            return (column < row + g.choose(2, 1, 3)) & (column > row - size)
        case "chunks":
            return (column <= row) & (row // size == column // size)
        case "blocks":
            return row // size == column // size
    return g.numbers(queries, keys) > 0


def _with_mask(g: Growing, scores: str) -> str:
    images, heads, queries, keys = shape = g.shape(scores)
    match g.choose("shown", "bias", "slopes", "keys", "both", "computed", "nothing"):
        case "bias":
            return paired(g, "add", scores, g.weights(*g.choose((heads, queries, keys), g.broadcastable(shape))))
        case "slopes":  # ALiBi
            apart = (np.arange(keys) - np.arange(queries)[:, None])[None] * (0.5 ** np.arange(heads))[:, None, None]
            return paired(g, "add", scores, g.constant(apart.astype(np.float32)))
        case "nothing":
            return paired(g, "add", scores, g.constant(np.zeros(g.broadcastable(shape), np.float32)))
        case "computed":
            fits = [y for y in g.tensors(3, 4) if g.shape(y)[-2:] == (queries, keys) and g.shape(y)[0] in (1, images)]
            bias = g.choose(*fits)
            return paired(g, "add", scores, bias)
        case "shown":
            return _hides(g, scores, g.constant(_shown(g, queries, keys)))
    seen = _of_keys(g, images, keys)
    if g.chance():
        seen = g.add(Logic("and"), seen, g.constant(_shown(g, queries, keys)))
    if g.chance(3):
        seen = g.add(Expand((images, g.choose(1, heads), queries, keys)), seen)
    return _hides(g, scores, seen)


def _of_keys(g: Growing, images: int, keys: int) -> str:
    """Which keys each image has: bool [images, 1, 1, keys]."""
    rows = [x for x in g.tensors(2) if g.shape(x) == (images, keys)] or [g.add_input(images, keys)]
    seen = g.add(Compare("greater"), rows[0], g.scalar(g.choose(0.0, -1.0, -9.0)))
    return g.add(Reshape((images, 1, 1, keys)), seen)


def _hides(g: Growing, scores: str, seen: str) -> str:
    least = g.choose(*LEAST)
    match g.choose("replaced", "added", "turned", "numbers"):
        case "replaced":
            return g.add(Where(), seen, scores, g.scalar(least), hides=True)
        case "turned":
            return g.add(Where(), g.add(Ask("not"), seen), g.scalar(least), scores, hides=True)
        case "numbers" if g.values[seen].constant is not None:
            mask = g.constant(np.where(g.arrays[seen], np.float32(0), np.float32(least)))
        case _:
            mask = g.add(Where(), seen, g.scalar(0.0), g.scalar(least), hides=True)
    return g.add(Binary("add"), *((scores, mask) if g.choose(True, False) else (mask, scores)), hides=True)


def given_attention(g: Growing) -> str:
    """The operator as models have it, with all of its attributes."""
    x = _rows(g)
    images, queries, _ = g.shape(x)
    kv, repeats, depth = g.choose(1, 2), g.choose(1, 2), g.choose(*DEPTHS[:2])
    heads = kv * repeats
    source = g.choose(x, *[y for y in g.tensors(3) if g.shape(y)[0] == images])
    keys = g.shape(source)[1]
    rows = [multiplied(g, x, heads * depth), *(multiplied(g, source, kv * depth) for _ in range(2))]
    rows = [beside_constant(g, each) if g.chance(4) else each for each in rows]
    if g.chance(3):  # what is done to heads in front of the operator
        for index, count in enumerate((heads, kv)):
            if g.rank(rows[index]) != 3:  # a constant has widened it
                raise Dropped
            (made,) = _prepared(g, _heads(g, rows[index], count, depth))
            shape = g.shape(rows[index])
            rows[index] = g.add(Reshape(shape), g.add(Transpose((0, 2, 1, 3)), made))
    sinks = [g.weights(g.choose(1, heads))] if g.chance(4) else []
    op = Attention(heads, kv, g.choose(1.0, 0.5), g.chance(), cap=g.choose(0.0, 0.0, 2.0), sunk=bool(sinks))
    mask = []
    if g.chance():
        shown = _shown(g, queries, keys)
        array = np.where(shown, np.float32(0), np.float32(g.choose(-np.inf, LEAST[0])))
        lead = g.choose((), (1,), (1, 1), (images, 1), (heads,))
        shape = (*lead, queries, keys)
        mask = [g.constant(np.ascontiguousarray(np.broadcast_to(array, shape)))] if g.chance() else [g.weights(*shape)]
    made = g.add(op, *rows, *mask, *sinks)
    if not np.isfinite(g.arrays[made]).all():
        raise Dropped
    return activated(g, made) if g.chance() else made


ATTENTION = (*[decoder_heads] * 3, heads_in_front, given_attention)
