"""What `drawn_graphs` draws: convolutions and products with what stands around them in networks."""

from __future__ import annotations

from math import prod

import numpy as np
from drawn_graphs import Growing
from drawn_layers import activated, beside_constant, cut, normed, normed_channels, paired

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


def convolved(
    g: Growing, x: str, filters: int, kernel: tuple[int, ...], groups: int = 1, **window: tuple[int, ...]
) -> str:
    channels, axes = g.shape(x)[1], len(kernel)
    ones = (1,) * axes
    same = tuple(extent // 2 for extent in kernel)
    op = Conv(
        window.get("strides", ones), window.get("begin", same), window.get("end", same), window.get("dilations", ones),
        groups,
    )  # fmt: skip
    inputs = [x, g.weights(filters, channels // groups, *kernel, of=channels // groups * prod(kernel))]
    if g.chance():
        inputs.append(g.weights(filters))
    return g.add(op, *inputs)


def convolution(g: Growing) -> str:
    x = g.tensor(4, 4, 3, 5)
    axes, channels = g.rank(x) - 2, g.shape(x)[1]
    kernel = tuple(g.choose(3, 1, 2, 5) for _ in range(axes))
    if g.chance(3):
        kernel = tuple(min(extent, 8) for extent in g.shape(x)[2:])  # the whole image
    groups = g.choose(1, 1, channels, g.divisor(channels))
    filters = groups * g.choose(2, 1, 3, 4) if groups > 1 else g.choose(8, 3, 4, 1, 6, channels)
    window = {
        "strides": tuple(g.choose(1, 1, 2) for _ in kernel), "dilations": tuple(g.choose(1, 1, 2) for _ in kernel),
    }  # fmt: skip
    if g.chance(3):
        window["begin"], window["end"] = (tuple(g.which(extent) for extent in kernel) for _ in range(2))
    return followed(g, convolved(g, x, filters, kernel, groups, **window))


def followed(g: Growing, x: str) -> str:
    """Some of what stands behind a convolution."""
    for _ in range(g.which(4)):
        match g.choose("norm", "activation", "constant", "residual"):
            case "norm":
                x = normed_channels(g, x)
            case "activation":
                x = activated(g, x)
            case "constant":
                x = beside_constant(g, x)
            case _:
                fits = [y for y in g.tensors(g.rank(x)) if g.shape(y) == g.shape(x)]
                x = paired(g, g.choose("add", "mul", "sub"), x, g.choose(*fits))
    return x


def depthwise(g: Growing) -> str:
    """A long window of one channel, which may be means."""
    x = g.tensor(4, 4, 3)
    channels = g.shape(x)[1]
    kernel = tuple(g.choose(1, 3, 7, 5) for _ in range(g.rank(x) - 2))
    return followed(g, convolved(g, x, channels, kernel, channels))


def long_window(g: Growing) -> str:
    """One over an image of one channel, as for EEG and sound."""
    x = g.tensor(4, 3)
    x = g.add(Reduce("mean", (1,), True), x)
    long, axes = g.choose(9, 7, 8), g.rank(x) - 2
    at = g.which(axes)
    kernel = tuple(long if axis == at else 1 for axis in range(axes))
    steps = tuple(g.choose(1, 1, 8) if axis == at else 1 for axis in range(axes))
    return followed(g, convolved(g, x, g.choose(4, 3, 8), kernel, 1, strides=steps))


def side_by_side(g: Growing) -> str:
    """Convolutions of one tensor, concatenated, with what follows all of them."""
    x = g.tensor(4, 4, 3)
    parts = []
    for _ in range(g.choose(2, 3)):
        size = g.choose(1, 3, 5)
        if g.chance(3):
            part = convolved(g, x, g.shape(x)[1], (size,) * (g.rank(x) - 2), g.shape(x)[1])
        else:
            part = convolved(g, x, g.choose(4, 3, 8, 1), (size,) * (g.rank(x) - 2))
        parts.append(activated(g, part) if g.chance(3) else part)
    if g.chance(4):
        parts.append(g.choose(x, parts[0]))
    return followed(g, g.add(Concat(1), *parts))


def branches(g: Growing) -> str:
    """Windows of several sizes of one tensor, summed, as in RepVGG."""
    x = g.tensor(4, 4, 3)
    axes, channels = g.rank(x) - 2, g.shape(x)[1]
    groups = g.choose(1, channels)
    sums = []
    for _ in range(g.choose(2, 3)):
        match g.choose("three", "one", "identity", "long"):
            case "identity":
                sums.append(normed_channels(g, x) if g.chance() else x)
            case name:
                kernel = ({"three": 3, "one": 1, "long": 5}[name],) * axes
                part = convolved(g, x, channels, kernel, groups)
                sums.append(normed_channels(g, part) if g.chance() else part)
    made = sums[0]
    for each in sums[1:]:
        made = paired(g, g.choose("add", "add", "sub"), made, each)
    return followed(g, made)


def gate(g: Growing) -> str:
    """Squeeze and excitation."""
    x = g.tensor(4, 4, 3)
    channels, axes = g.shape(x)[1], g.rank(x) - 2
    found = g.add(Reduce("mean", tuple(range(2, 2 + axes)), True), x)
    if g.chance():
        found = g.add(Activation("relu"), convolved(g, found, g.choose(2, 4), (1,) * axes))
    found = g.add(Activation(g.choose("sigmoid", "hard_sigmoid", "relu")), convolved(g, found, channels, (1,) * axes))
    return paired(g, g.choose("mul", "add"), x, found)


def multiplied(g: Growing, x: str, columns: int) -> str:
    depth = g.shape(x)[-1]
    turned = g.chance(3)
    right = g.weights(*((columns, depth) if turned else (depth, columns)), of=depth)
    found = g.add(MatMul(transpose_b=turned), x, right)
    return paired(g, "add", found, g.weights(columns)) if g.chance() else found


def product(g: Growing) -> str:
    x = g.tensor(3, 2, 4)
    found = multiplied(g, x, g.choose(8, 4, 3, 1, 6, g.shape(x)[-1]))
    return followed(g, found) if g.rank(found) > 1 else found


def other_product(g: Growing) -> str:
    """Of two tensors, of a tensor with itself, with a matrix for each image, with weights on the left."""
    x = g.tensor(3, 4, 2)
    *lead, rows, depth = g.shape(x)
    match g.choose("itself", "gram", "two", "left", "each"):
        case "itself" if rows == depth:
            return g.add(MatMul(), x, x)
        case "gram":
            return g.add(MatMul(transpose_b=True), x, x) if g.chance() else g.add(MatMul(transpose_a=True), x, x)
        case "left":
            return g.add(MatMul(), g.weights(g.choose(3, 1, 8), rows, of=rows), x)
        case "each":
            some = tuple(extent if g.chance() else 1 for extent in lead)
            return g.add(MatMul(), x, g.weights(*some, depth, g.choose(3, 1, 8), of=depth))
    fits = [y for y in g.tensors(len(lead) + 2) if g.shape(y)[-2] == depth]
    return g.add(MatMul(), x, g.choose(*fits)) if fits else g.add(MatMul(transpose_b=True), x, x)


def attention(g: Growing) -> str:
    """Heads of rows, with queries, keys and values of products apart or of one, scaled or shifted somewhere."""
    x = g.tensor(3)
    first = g.chance(3)  # words in front of the batch
    outer, inner, _ = g.shape(x)
    heads, extent = g.choose(2, 1, 3, 4), g.choose(4, 2, 8)
    count = heads * extent
    if g.choose("one", "apart") == "one":
        sizes = {"part": 3, "head": heads, "element": extent}
        order = g.choose(
            ("part", "head", "element"), ("head", "part", "element"), ("head", "element", "part"),
            ("part", "element", "head"),
        )  # fmt: skip
        made = g.add(Reshape((outer, inner, *(sizes[each] for each in order))), multiplied(g, x, 3 * count))
        which, head, each = (2 + order.index(name) for name in sizes)
        lead = (1, 0) if first else (0, 1)
        perm = g.choose((which, lead[0], head, lead[1], each), (lead[0], head, which, lead[1], each))
        made = g.add(Transpose(perm), made)
        axis = perm.index(which)
        if g.choose(True, False):
            parts = [g.add(Gather(axis), made, g.constant(np.int64(at))) for at in range(3)]
        else:
            rest = tuple(e for at, e in enumerate(g.shape(made)) if at != axis)
            parts = [g.add(Reshape(rest), part) for part in cut(g, made, axis, 3)]
    else:
        perm = (1, 2, 0, 3) if first else (0, 2, 1, 3)
        apart = [g.add(Reshape((outer, inner, heads, extent)), multiplied(g, x, count)) for _ in range(3)]
        parts = [g.add(Transpose(perm), each) for each in apart]
    return attended(g, parts, first)


def attended(g: Growing, parts: list[str], first: bool) -> str:
    query, key, value = parts
    if g.chance():
        query = beside_constant(g, query)
    if g.chance(4):
        key = beside_constant(g, key)
    if g.chance(4):
        value = beside_constant(g, value)
    rank = g.rank(query)
    if g.chance():
        scores = g.add(MatMul(transpose_b=True), query, key)
    else:
        scores = g.add(MatMul(), query, g.add(Transpose((*range(rank - 2), rank - 1, rank - 2)), key))
    if g.chance():
        scores = paired(g, "mul", scores, g.scalar(0.5))
    masks = g.which(3)
    for _ in range(masks):
        scores = _hidden(g, scores, alone=masks == 1)
    shares = g.add(Softmax(g.choose(rank - 1, rank - 1, rank - 1, rank - 2)), scores)
    mixed = g.add(MatMul(), shares, value)
    rows = g.add(Transpose((2, 0, 1, 3) if first else (0, 2, 1, 3)), mixed)
    a, b, heads, extent = g.shape(rows)
    rows = g.add(Reshape((a, b, heads * extent)), rows)
    return multiplied(g, rows, g.choose(8, 4, 3))


def _hidden(g: Growing, scores: str, *, alone: bool) -> str:
    """Scores with a bias, or with keys hidden by a triangle, by pairs or by key; of some queries all keys, where no
    other mask is there: two hide them by numbers that depend on scores."""
    shape = g.shape(scores)
    images, queries, keys = shape[0], *shape[-2:]
    ones = (1,) * (len(shape) - 2)
    match g.choose("bias", "triangle", "pairs", "keys", *(["data"] if alone else [])):
        case "bias":
            return paired(g, "add", scores, g.weights(*g.broadcastable(shape)))
        case "triangle":
            shown = np.tri(queries, keys, dtype=bool)
        case "pairs":
            shown = g.numbers(*g.choose((queries, keys), (images, *ones[1:], queries, keys))) > 0
        case "keys":
            shown = g.numbers(*g.choose((images, *ones, keys), (*ones, 1, keys))) > 0
        case _:
            rows = [x for x in g.tensors() if g.shape(x) == (images, keys)] or [g.add_input(images, keys)]
            seen = g.add(Reshape((images, *ones, keys)), g.add(Compare("greater"), rows[0], g.scalar(0.0)))
            return _chosen(g, scores, seen)
    if not alone:
        shown[..., 0] = True
    return _chosen(g, scores, g.constant(shown))


def _chosen(g: Growing, scores: str, seen: str) -> str:
    """Scores of what is seen; others are replaced, or have something added, which hides them: so much that of a sum
    with it nothing is left of them."""
    least = float(np.finfo(np.float32).min), -1e30
    if g.choose(True, False):
        return g.add(Where(), seen, scores, g.scalar(g.choose(-1e4, *least)), hides=True)
    mask = g.add(Where(), seen, g.scalar(0.0), g.scalar(g.choose(*least)), hides=True)
    return g.add(Binary("add"), *((scores, mask) if g.choose(True, False) else (mask, scores)), hides=True)


def rows_of_images(g: Growing) -> str:
    """Pixels as rows, something added and computed of them, and images again."""
    x = g.tensor(4)
    n, c, h, w = g.shape(x)
    rows = g.add(Transpose((0, 2, 1)), g.add(Reshape((n, c, h * w)), x))
    fits = [y for y in g.tensors(3) if g.shape(y) == g.shape(rows)]
    for _ in range(g.which(4)):
        match g.choose("add", "norm", "product", "constant"):
            case "add":
                rows = paired(g, "add", rows, g.choose(*reversed(fits)))
            case "norm":
                rows = normed(g, rows)
            case "product":
                rows = multiplied(g, rows, c)
            case _:
                rows = beside_constant(g, rows)
    if g.chance(3):
        return rows
    back = g.choose((n, h, w, c), (n, w, h, c))
    return g.add(Transpose((0, 3, 1, 2)), g.add(Reshape(back), rows))


def turned(g: Growing) -> str:
    """What is computed between a transpose and the one that undoes it."""
    x = g.tensor(3, 4)
    rank = g.rank(x)
    there = (1, 0, *range(2, rank)) if rank == 3 or g.chance(3) else (0, *range(2, rank), 1)
    x = g.add(Transpose(there), x)
    for _ in range(1 + g.which(4)):
        match g.choose("activation", "constant", "norm", "product", "two", "concat", "pad", "slice", "reduce"):
            case "activation":
                x = activated(g, x)
            case "constant":
                x = beside_constant(g, x)
            case "norm":
                x = normed(g, x)
            case "product":
                x = multiplied(g, x, g.shape(x)[-1])
            case "two":
                fits = [y for y in g.tensors(rank) if g.shape(y) == g.shape(x)]
                x = paired(g, "add", x, g.choose(*fits))
            case "concat":
                x = g.add(Concat(g.choose(rank - 1, 1, 0)), x, g.choose(x, g.weights(*g.shape(x))))
            case "pad":
                x = g.add(Pad((0,) * rank, (*(0,) * (rank - 2), 1, 0)), x)
            case "slice":
                x = g.choose(*cut(g, x, g.choose(rank - 1, 1, 0)))
            case _:
                x = g.add(Reduce("mean", (g.choose(1, rank - 1),), True), x)
    back = tuple(there.index(axis) for axis in range(rank))
    return g.add(Transpose(back), x)


def token(g: Growing) -> str:
    """A class token for each image in front of its rows, which is taken again or not."""
    x = g.tensor(3)
    n, _, width = g.shape(x)
    own = g.weights(*g.choose((n, 1, width), (1, 1, width)))
    if g.shape(x)[0] != g.arrays[own].shape[0]:
        own = g.constant(np.broadcast_to(g.arrays[own], (n, 1, width)))
    x = g.add(Concat(1), *((own, x) if g.choose(True, False) else (x, own)))
    if g.chance():
        x = multiplied(g, normed(g, x), width)
    if g.chance():
        return g.add(Gather(1), x, g.constant(np.int64(g.choose(0, -1))))
    return x


PRODUCTS = (
    *[convolution] * 4, *[product] * 3, depthwise, long_window, *[side_by_side] * 2, *[branches] * 2, gate,
    *[other_product] * 2, *[attention] * 3, *[rows_of_images] * 2, *[turned] * 3, token,
)  # fmt: skip
"""As often as each is drawn."""
