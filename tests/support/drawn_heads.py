"""More of what `drawn_graphs` draws: rows, heads and gates of networks, in the forms that passes look for."""

from __future__ import annotations

import numpy as np
from drawn_graphs import Dropped, Growing
from drawn_layers import activated, beside_constant, cut, normed, paired
from drawn_products import attended, convolved, followed, multiplied

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Logic, Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


def picked_pairs(g: Growing) -> str:
    """Relative positions as DeBERTa adds them, or as Transformer-XL shifts them."""
    x = g.tensor(3)
    n, rows, width = g.shape(x)
    positions = 2 * rows - 1 if g.chance() else 2 * rows
    scores = g.add(MatMul(transpose_b=True), x, multiplied(g, x, width))
    picked = g.add(
        MatMul(), x, g.weights(*g.choose((width, positions), (1, width, positions), (n, width, positions)), of=width)
    )
    if g.choose(True, False):
        index = np.clip(np.arange(rows)[:, None] - np.arange(rows) + rows - 1, 0, positions - 1)
        index = index if g.choose(True, False) else np.broadcast_to(np.arange(rows) % positions, (rows, rows))
        table = g.constant(np.ascontiguousarray(np.broadcast_to(index, (n, rows, rows))).astype(np.int64))
        if g.chance():
            table = g.add(Expand((n, rows, rows)), g.constant(index[None].astype(np.int64)))
        picked = g.add(GatherElements(2), picked, table)
    else:
        picked = g.add(Pad((0, 0, 1), (0, 0, 0)), picked)
        picked = g.add(Reshape((n, positions + 1, rows)), picked)
        picked = g.add(Slice((0, 1, 0), (n, positions, rows), (1, 1, 1)), picked)
        picked = g.add(Reshape((n, rows, positions)), picked)
        picked = g.add(Slice((0, 0, g.which(positions - rows + 1)), (n, rows, rows), (1, 1, 1)), picked)
    if g.chance():
        picked = g.add(Transpose((0, 2, 1)), picked)
    if g.chance():
        picked = paired(g, "mul", picked, g.scalar(0.5))
    found = paired(g, g.choose("add", "sub"), scores, picked)
    if g.chance():
        found = g.add(Binary("div"), found, g.scalar(2.0))
    if g.chance(3):
        found = paired(g, "add", found, g.weights(*g.broadcastable(g.shape(found))))
    return found if g.chance() else g.add(Softmax(2), found)


def mixed_heads(g: Growing) -> str:
    x = g.tensor(4)
    last = g.add(Transpose((0, 2, 3, 1)), x)
    return g.add(Transpose((0, 3, 1, 2)), multiplied(g, last, g.choose(g.shape(x)[1], 3, 8)))


def rotary(g: Growing) -> str:
    x = g.tensor(3, 4)
    *lead, width = g.shape(x)
    if width % 2:
        raise Dropped
    half = width // 2
    if g.choose("halves", "pairs") == "halves":
        first, second = cut(g, x, len(lead), 2)
        other = g.add(Concat(len(lead)), g.add(Activation("neg"), second), first)
    else:
        step = (*(1,) * len(lead), 2)
        first, second = (g.add(Slice((*(0,) * len(lead), at), (*lead, half), step), x) for at in range(2))
        other = [g.add(Reshape((*lead, half, 1)), each) for each in (g.add(Activation("neg"), second), first)]
        other = g.add(Reshape((*lead, width)), g.add(Concat(len(lead) + 1), *other))
    shape = g.choose((lead[-1], width), (width,), (1, *lead[1:], width), (*lead, width), (*lead, 1))
    cos, sin = g.weights(*shape), g.weights(*shape)
    return paired(g, "add", paired(g, "mul", x, cos), paired(g, "mul", other, sin))


def gated_columns(g: Growing) -> str:
    """GLU: halves of a product's columns, every second one, or two products, moved or not, multiplied."""
    x = g.tensor(3, 4, 2)
    conv = g.rank(x) == 4 and g.chance()
    axis = 1 if conv else g.rank(x) - 1
    columns = g.choose(8, 4, 6)

    def made(count: int) -> str:
        return convolved(g, x, count, (1, 1)) if conv else multiplied(g, x, count)

    if g.choose(True, False):
        both = made(columns)
        moves = g.rank(x) > 2 and g.chance()
        if moves:
            order = g.order(g.rank(x))
            both, axis = g.add(Transpose(order), both), order.index(axis)
        if g.chance(4):
            shape = list(g.shape(both))
            half = [*shape[:axis], shape[axis] // 2, *shape[axis + 1 :]]
            sides = [
                g.add(Slice((*(0,) * axis, at, *(0,) * (len(shape) - axis - 1)), tuple(half),
                            tuple(2 if each == axis else 1 for each in range(len(shape)))), both)
                for at in range(2)
            ]  # fmt: skip
        else:
            sides = cut(g, both, axis, 2)
    else:
        sides = [made(columns), made(columns)]
        if g.chance() and g.rank(x) > 2:
            order = g.order(g.rank(x))
            sides = [g.add(Transpose(order), each) for each in sides]
    one, other = sides
    one = activated(g, one) if g.choose(True, False) else one
    found = paired(g, "mul", one, other)
    return found if g.chance() else multiplied(g, found, g.choose(4, 3, 8))


def masks(g: Growing) -> str:
    """Booleans that are repeated, and hide."""
    x = g.tensor(3, 4)
    shape = g.shape(x)
    one = g.constant(g.numbers(shape[0], *(1,) * (len(shape) - 2), shape[-1]) > -0.5)
    mask = g.add(Expand(shape), one)
    if g.chance():
        mask = g.add(Logic(g.choose("and", "or")), mask, g.constant(np.ones(g.broadcastable(shape), bool)))
    if g.choose(True, False):
        return g.add(Softmax(len(shape) - 1), g.add(Where(), mask, x, g.scalar(-1e4)))
    bias = g.add(Where(), mask, g.scalar(0.0), g.scalar(-1e4))
    return g.add(Softmax(len(shape) - 1), paired(g, "add", x, bias))


def two_tensors(g: Growing) -> str:
    """A convolution whose filters, or a product whose matrix, or a normalisation whose scale is computed."""
    x = g.tensor(4, 3)
    match g.choose("filters", "matrix", "scale"):
        case "filters":
            fits = [y for y in g.tensors(g.rank(x)) if g.shape(y)[1] == g.shape(x)[1]]
            weights = beside_constant(g, g.choose(*fits))
            ones = (1,) * (g.rank(x) - 2)
            half = tuple(extent // 2 for extent in g.shape(weights)[2:])
            return followed(g, g.add(Conv(ones, half, half, ones), x, weights))
        case "matrix":
            matrices = [y for y in g.tensors(2) if g.shape(y)[0] == g.shape(x)[-1]]
            if not matrices:
                raise Dropped
            return followed(g, g.add(MatMul(), x, g.choose(*matrices)))
    rows = [y for y in g.tensors(1) if g.shape(y)[0] == g.shape(x)[-1]]
    if not rows or g.shape(x)[-1] < 3:
        raise Dropped
    return g.add(Norm("variance", (g.rank(x) - 1,), 1e-2), x, g.choose(*rows))


def convolved_heads(g: Growing) -> str:
    """Queries, keys and values of convolutions, pixels as rows, and an image again."""
    x = g.tensor(4)
    n, _, h, w = g.shape(x)
    heads, extent = g.choose(2, 1, 3), g.choose(4, 2, 8)
    count = heads * extent
    if g.choose(True, False):
        made = g.add(Reshape((n, 3, heads, extent, h * w)), convolved(g, x, 3 * count, (1, 1)))
        parts = [g.add(Gather(1), made, g.constant(np.int64(at))) for at in range(3)]
    else:
        parts = [g.add(Reshape((n, heads, extent, h * w)), convolved(g, x, count, (1, 1))) for _ in range(3)]
    if g.choose("rows", "columns") == "rows":
        parts = [g.add(Transpose((0, 1, 3, 2)), each) for each in parts]
    query, key, value = parts
    if g.chance():
        return attended(g, parts, False)
    query = beside_constant(g, query) if g.chance() else query
    scores = g.add(MatMul(transpose_b=True), query, key)
    mixed = g.add(MatMul(), g.add(Softmax(3), scores), value)
    if g.shape(mixed)[-1] != h * w:
        mixed = g.add(Transpose((0, 1, 3, 2)), mixed)
    return convolved(g, g.add(Reshape((n, count, h, w)), mixed), g.choose(8, 3, 4), (1, 1))


def added_rows(g: Growing) -> str:
    """Rows of a convolution's pixels, beside rows that the image was made of, or others."""
    x = g.tensor(4)
    n, c, h, w = g.shape(x)
    rows = g.add(Transpose((0, 2, 1)), g.add(Reshape((n, c, h * w)), x))
    rows = normed(g, rows) if g.chance() and c > 2 else beside_constant(g, rows)
    back = g.add(Reshape((n, c, h, w)), g.add(Transpose((0, 2, 1)), rows))
    made = convolved(g, back, c, (3, 3), c) if g.chance() else convolved(g, back, c, (1, 1))
    made = activated(g, made) if g.chance() else made
    match g.choose("rows", "windows", "grid"):
        case "rows":
            again = g.add(Transpose((0, 2, 1)), g.add(Reshape((n, c, h * w)), made))
        case "grid":
            again = g.add(Reshape((n, h * w, c)), g.add(Transpose((0, 2, 3, 1)), made))
        case _:
            again = g.add(Reshape((n, h * w, c)), g.add(Transpose((0, 3, 2, 1)), made))
    found = paired(g, "add", again, rows)
    return normed(g, found) if g.chance() and c > 2 else multiplied(g, found, g.choose(8, 4))


def projected(g: Growing) -> str:
    """Parts of one product of which some are whole loads: two of eight columns and one of one, say."""
    x = g.tensor(3, 4)
    conv = g.rank(x) == 4
    axis, sizes = (1 if conv else 2), (g.choose(1, 2, 8), 8, g.choose(8, 16, 3))
    made = convolved(g, x, sum(sizes), (1, 1)) if conv else multiplied(g, x, sum(sizes))
    parts, at = list[str](), 0
    for size in sizes:
        begin, count = [0] * g.rank(made), list(g.shape(made))
        begin[axis], count[axis] = at, size
        parts.append(g.add(Slice(tuple(begin), tuple(count), (1,) * len(begin)), made))
        at += size
    found = g.add(Softmax(g.choose(2, 1)), parts[0])
    rest = paired(g, "mul", parts[1], parts[2]) if sizes[1] == sizes[2] else activated(g, parts[2])
    return paired(g, "mul", found, rest) if sizes[0] == 1 else rest


def brought_forward(g: Growing) -> str:
    """Sequences brought to the front, computed by row, and images brought back, as torch's attention does it."""
    x = g.tensor(3)
    outer, inner, width = g.shape(x)
    y = g.add(Transpose((1, 0, 2)), x)
    if g.chance():
        y = g.add(Reshape((outer * inner, width)), y)
    for _ in range(1 + g.which(3)):
        match g.choose("product", "activation", "norm", "constant"):
            case "product":
                y = multiplied(g, y, g.choose(width, 8, 3))
            case "activation":
                y = activated(g, y)
            case "norm":
                y = normed(g, y)
            case _:
                y = beside_constant(g, y)
    if g.rank(y) == 2:
        y = g.add(Reshape((inner, outer, g.shape(y)[1])), y)
    y = g.add(Transpose((1, 0, 2)), y)
    return paired(g, "add", x, y) if g.shape(y) == g.shape(x) else y


HEADS = (
    picked_pairs, mixed_heads, rotary, gated_columns, masks, two_tensors, convolved_heads, added_rows,
    projected, brought_forward,
)  # fmt: skip
