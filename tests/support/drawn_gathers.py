"""More of what `drawn_images` draws: filters that are data, and pieces of tensors that are put beside each other, added
up or repeated."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from drawn_graphs import Dropped, Growing
from drawn_layers import paired
from drawn_products import followed

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


def own_filters(g: Growing) -> str:
    """Filters of each image: mixed of several, scaled by a style, or what another tensor is. Of all images, too."""
    x = g.tensor(3, 4)
    n, channels, *pixels = g.shape(x)
    groups, filters = g.choose(1, g.divisor(channels)), g.choose(2, 4, 1)
    kernel = tuple(g.choose(1, 3) for _ in pixels)
    one = (filters * groups, channels // groups, *kernel)
    images = g.choose(n, 1) if n > 1 else n
    ones = (1,) * len(kernel)
    match g.choose("mixed", "scaled", "given"):
        case "mixed":
            shares = g.add(Softmax(1), g.add(Reshape((images, 3)), g.add_input(images, 3)))
            w = g.add(MatMul(), shares, g.weights(3, prod(one), of=prod(one[1:])))
        case "scaled":
            style = g.add(Reshape((images, 1, channels // groups, *ones)), g.add_input(images, channels // groups))
            w = paired(g, "mul", g.weights(1, *one, of=prod(one[1:])), style)
            if g.chance():
                total = g.add(Reduce("sum", tuple(range(2, 3 + len(kernel))), True), paired(g, "mul", w, w))
                root = g.add(Activation("sqrt"), g.add(Binary("add"), total, g.scalar(1e-2)))
                w = g.add(Binary("div"), w, root)
            if g.chance():
                w = paired(g, "mul", w, g.add_input(images, one[0], 1, *ones))
        case _:
            w = g.add_input(images, *one)
    w = g.add(Reshape((images * one[0], *one[1:])), w)
    begin, end = (tuple(size // 2 for size in kernel) for _ in range(2))
    op = Conv(tuple(g.choose(1, 2) for _ in kernel), begin, end, ones, groups * images)
    bias = (g.weights(images * one[0]),) if g.chance() else ()
    if images == 1:
        return followed(g, g.add(op, x, w, *bias))
    y = g.add(op, g.add(Reshape((1, n * channels, *pixels)), x), w, *bias)
    return followed(g, g.add(Reshape((n, one[0], *g.shape(y)[2:])), y))


def neighbours(g: Growing) -> str:
    """Correlations with neighbours in another image, costs of disparities, and neighbours that are weighed: cut out of
    a padded image, or cut and padded again."""
    x = g.tensor(3, 4)
    shape, rank = g.shape(x), g.rank(x)
    reach = g.choose(1, 2)
    fits = [y for y in g.tensors(rank) if g.shape(y) == shape]
    y, axes = g.choose(*fits), g.choose((rank - 1,), tuple(range(2, rank)))
    padded = g.add(Pad(*[tuple(reach * (axis in axes) for axis in range(rank))] * 2), y)
    weighed, grouped, summed = g.chance(), g.divisor(shape[1]), g.choose(True, False)
    stacked, apart = g.choose(1, rank - 1), not g.chance(4)
    found = []
    for at in range(2 * reach + 1):
        move = g.choose(at, at, g.which(2 * reach + 1)) - reach
        if g.chance(3) and 0 < abs(move) < shape[-1]:
            begin, count = [0] * rank, list(shape)
            begin[-1], count[-1] = max(move, 0), shape[-1] - abs(move)
            cut = g.add(Slice(tuple(begin), tuple(count), (1,) * rank), y)
            before, behind = [0] * rank, [0] * rank
            before[-1], behind[-1] = max(-move, 0), max(move, 0)
            cut = g.add(Pad(tuple(before), tuple(behind)), cut)
        else:
            begin = [(reach + move) * (axis in axes) for axis in range(rank)]
            cut = g.add(Slice(tuple(begin), shape, (1,) * rank), padded)
        if not weighed:
            cut = g.add(Binary("mul"), *(x, cut) if g.choose(True, True, False) else (cut, x))
        if summed:
            cut = g.add(Reshape((shape[0], grouped, shape[1] // grouped, *shape[2:])), cut)
            cut = g.add(Reduce(g.choose("mean", "mean", "sum"), (2,), False), cut)
        own = g.shape(cut)
        found.append(g.add(Reshape((*own[:stacked], 1, *own[stacked:])), cut) if apart else cut)
    y = g.add(Concat(stacked), *found)
    return g.add(Reduce("sum", (stacked,), False), paired(g, "mul", y, g.weights(*g.shape(y)))) if weighed else y


def selections_added(g: Growing) -> str:
    """All that a tensor has along one or two of its axes, added up one by one, or all but one."""
    x = g.tensor(3, 4, 5)
    shape = g.shape(x)
    first, second = sorted(g.order(len(shape))[:2])
    if shape[first] * shape[second] > 12:
        raise Dropped
    places = [(i, j) for i in range(shape[first]) for j in range(shape[second])]
    total = None
    for at in g.order(len(places))[: len(places) - g.chance(4)]:
        row = g.add(Gather(first), x, g.constant(np.asarray(places[at][0], np.int64)))
        term = g.add(Gather(second - 1), row, g.constant(np.asarray(places[at][1], np.int64)))
        total = term if total is None else g.add(Binary("add"), *(total, term) if g.chance() else (term, total))
    if total is None:
        raise Dropped
    return total


def shifted(g: Growing) -> str:
    """Parts of the channels moved along another axis by one, with zeros or the old elements at the border, or turned
    around; what assignments to slices become, too."""
    x = g.tensor(3, 4)
    shape, rank = g.shape(x), g.rank(x)
    axis, channels = g.choose(2, 0, rank - 1), shape[1]
    if channels < 3 or shape[axis] < 2:
        raise Dropped
    edges = (0, channels // 3, 2 * channels // 3, channels)
    parts = []
    for a, b in itertools.pairwise(edges):
        part = cut_of(g, x, 1, a, b - a)
        way = g.choose("later", "earlier", "as it is")
        if way != "as it is":
            kept = cut_of(g, part, axis, int(way == "earlier"), shape[axis] - 1)
            own = [0] * rank
            own[axis] = 1
            none = (0,) * rank
            match g.choose("zeros", "border", "around"):
                case "zeros":
                    sides = (none, tuple(own)) if way == "earlier" else (tuple(own), none)
                    part = g.add(Pad(*sides), kept)
                case "border":
                    edge = cut_of(g, part, axis, (shape[axis] - 1) * (way == "earlier"), 1)
                    part = g.add(Concat(axis), *((kept, edge) if way == "earlier" else (edge, kept)))
                case _:
                    other = cut_of(g, part, axis, (shape[axis] - 1) * (way == "later"), 1)
                    part = g.add(Concat(axis), *((kept, other) if way == "earlier" else (other, kept)))
        parts.append(part)
    y = g.add(Concat(1), *parts)
    if g.chance():
        y = g.add(Concat(1), cut_of(g, y, 1, 0, edges[1]), cut_of(g, x, 1, edges[1], channels - edges[1]))
    return y


def cut_of(g: Growing, x: str, axis: int, begin: int, count: int) -> str:
    """Elements of `x` from `begin` on, along one axis."""
    shape = g.shape(x)
    begins, counts = [0] * len(shape), list(shape)
    begins[axis], counts[axis] = begin, count
    return g.add(Slice(tuple(begins), tuple(counts), (1,) * len(shape)), x)


def repeated_groups(g: Growing) -> str:
    """A number of each group of channels, or of each pixel, repeated for a tensor that lies otherwise (EvoNorm)."""
    x = g.tensor(3, 4)
    n, channels, *pixels = g.shape(x)
    groups = g.divisor(channels)
    full = (n, groups, channels // groups, *pixels)
    axes = g.choose(tuple(range(2, len(full))), tuple(range(3, len(full))), (1, 2))
    made = g.add(Reduce(g.choose("mean", "max"), axes, True), g.add(Reshape(full), x))
    large = g.add(Reshape(g.shape(x)), g.add(Expand(full), made))
    return paired(g, g.choose("mul", "sub"), x, large)


def response_normed(g: Growing) -> str:
    """Responses of neighbouring channels, as PyTorch normalises them: a mean over a volume of one channel."""
    x = g.tensor(3, 4)
    batch, *rest = g.shape(x)
    ones, size = (1,) * (len(rest) - 1), g.choose(3, 5, 1)
    beside = (size // 2, *(0,) * len(ones))
    squares = paired(g, "mul", x, x) if g.chance() else g.add(Activation("square"), x)
    apart = g.add(Reshape((batch, 1, *rest)), squares)
    mean = Pool("average", (size, *ones), (1, *ones), beside, beside, (1, *ones), False, not g.chance(5))
    found = g.add(Reshape((batch, *rest)), g.add(mean, apart))
    total = g.add(
        Binary("add"), g.add(Binary("mul"), found, g.scalar(g.choose(0.5, 1e-2))), g.scalar(g.choose(1.0, 2.0))
    )
    return g.add(Binary("div"), x, g.add(Binary("pow"), total, g.scalar(g.choose(0.75, 0.5))))


def frame_taken(g: Growing) -> str:
    """Images as frames of clips, of which one each is taken."""
    x = g.tensor(4)
    count, *rest = g.shape(x)
    frames = g.divisor(count)
    clips = g.add(Reshape((count // frames, frames, *rest)), x)
    at = g.choose(0, frames - 1)
    if g.chance():
        taken = Slice((0, at, *(0,) * len(rest)), (count // frames, 1, *rest), (1,) * (len(rest) + 2))
        return g.add(Reshape((count // frames, *rest)), g.add(taken, clips))
    return g.add(Gather(1), clips, g.constant(np.asarray(at, np.int64)))


GATHERS = (own_filters, neighbours, selections_added, repeated_groups, shifted, response_normed, frame_taken)
