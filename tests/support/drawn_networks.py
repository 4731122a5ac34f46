"""More of what `drawn_graphs` draws: parts of networks of images that have passes of their own."""

from __future__ import annotations

from math import prod

import numpy as np
from drawn_graphs import Dropped, Growing
from drawn_layers import activated, beside_constant, cut, normed, normed_channels, paired
from drawn_products import convolved, followed, multiplied

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm


def stacked(g: Growing) -> str:
    """A stack of images, or of runs of channels, each with a factor, summed."""
    x = g.tensor(4)
    n, c, h, w = g.shape(x)
    if g.chance():
        count = g.divisor(c)
        stack = g.add(Reshape((n, count, c // count, h, w)), x)
    else:
        count = 2
        parts = [g.add(Reshape((n, 1, c, h, w)), activated(g, x) if g.chance() else x) for _ in range(2)]
        stack = g.add(Concat(1), *parts)
    each = g.shape(stack)[2]
    factor = g.weights(*g.choose((n, count, each, 1, 1), (count, each, 1, 1), (1, count, 1, 1, 1), (n, 1, each, h, 1)))
    if g.chance():
        mean = g.add(Reduce("mean", (3, 4), True), stack)
        factor = g.add(Softmax(1), mean)
    if not g.chance(3):
        stack = paired(g, "mul", stack, factor)
    return g.add(Reduce("sum", (1,), g.chance(4)), stack)


def gated_sum(g: Growing) -> str:
    """x g s + t + x, as in ConvNeXt V2."""
    x = g.tensor(4, 3)
    axes = g.choose((2, 3) if g.rank(x) == 4 else (1,), (1, 2))
    gate = g.add(Reduce("l2", axes, True), x)
    if g.chance():
        gate = g.add(
            Binary("div"),
            gate,
            g.add(Binary("add"), g.add(Reduce("mean", (g.rank(x) - 1,), True), gate), g.scalar(1.0)),
        )
    made = paired(g, "mul", x, gate)
    if g.choose(True, False):
        made = paired(g, "mul", made, g.weights(*g.broadcastable(g.shape(x))))
    if g.choose(True, False):
        made = paired(g, "add", made, g.weights(*g.broadcastable(g.shape(x))))
    return paired(g, "add", made, x)


def gated_branches(g: Growing) -> str:
    """Streams of an image, each with a gate of its own, added up in front of a product."""
    x = g.tensor(4)
    made = ""
    for _ in range(g.choose(2, 3)):
        stream = activated(g, convolved(g, x, g.shape(x)[1], (3, 3)) if g.chance() else x)
        gated = paired(g, "mul", stream, g.add(Reduce("mean", (2, 3), True), stream))
        made = gated if not made else paired(g, "add", made, gated)
    return convolved(g, made, g.choose(8, 3), (1, 1))


def pooled_beside(g: Growing) -> str:
    """What is known of a whole image beside each of its positions, and a product of both."""
    x = g.tensor(3, 4)
    axes = tuple(range(2, g.rank(x)))
    parts = [x] + [g.add(Expand(g.shape(x)), g.add(Reduce(g.choose("mean", "l2"), axes, True), x)) for _ in range(2)]
    made = g.add(Concat(1), *(parts if g.chance() else parts[::-1]))
    return convolved(g, made, g.choose(3, 2, 8), (1,) * len(axes))


def unfolded(g: Growing) -> str:
    """The windows of an image, as torch's unfold is exported."""
    x = g.tensor(4)
    _, _, h, w = g.shape(x)
    down, right = g.choose(1, min(2, h)), g.choose(1, min(2, w))
    rows = np.arange(down)[:, None] + np.arange(h - down + 1)
    columns = np.arange(right)[:, None] + np.arange(w - right + 1)
    taken = g.add(Gather(2), x, g.constant(rows.astype(np.int64)))
    taken = g.add(Gather(4), taken, g.constant((columns - w if g.chance() else columns).astype(np.int64)))
    return g.add(Transpose(g.choose((0, 1, 2, 4, 3, 5), (0, 1, 3, 5, 2, 4), (0, 2, 4, 1, 3, 5))), taken)


def focused(g: Growing) -> str:
    """The phases of an image side by side, as YOLOX begins."""
    x = g.tensor(4)
    n, c, h, w = g.shape(x)
    if h % 2 or w % 2:
        raise Dropped
    where = [(0, 0), (1, 0), (0, 1), (1, 1)][: g.choose(4, 3)]
    phases = [g.add(Slice((0, 0, *at), (n, c, h // 2, w // 2), (1, 1, 2, 2)), x) for at in where]
    made = g.add(Concat(1), *phases)
    size = g.choose((1, 1), (3, 3))
    return convolved(g, made, g.choose(3, 8), size)


def grouped_norm(g: Growing) -> str:
    x = g.tensor(4, 3)
    n, c, *pixels = g.shape(x)
    groups = g.divisor(c)
    rows = g.add(Reshape((n, groups, prod(pixels) * c // groups)), x)
    factors = [g.factors(groups, 1), g.weights(groups, 1)] if g.chance() else []
    if g.shape(rows)[2] < 3:
        raise Dropped
    rows = g.add(Norm("variance", (2,), 1e-2), rows, *factors)
    made = g.add(Reshape((n, c, *pixels)), rows)
    return beside_constant(g, beside_constant(g, made))


def patches(g: Growing) -> str:
    x = g.tensor(4, 4, 5)
    kernel = tuple(g.divisor(extent) for extent in g.shape(x)[2:])
    none = (0,) * len(kernel)
    made = convolved(g, x, g.choose(8, 4, 3), kernel, strides=kernel, begin=none, end=none)
    return followed(g, made)


def decoder(g: Growing) -> str:
    """A transposed convolution as import writes it: filters for each pixel of a block, moved beside each other."""
    x = g.tensor(4)
    n, _, h, w = g.shape(x)
    a, b, c = g.choose(2, 1, 3), g.choose(2, 3, 1), g.choose(3, 4, 1)
    made = convolved(g, x, a * b * c, (1, 1) if g.chance() else (3, 3))
    if g.choose(True, False):
        made, perm = g.add(Reshape((n, a, b, c, h, w)), made), (0, 3, 4, 1, 5, 2)
    else:
        made, perm = g.add(Reshape((n, c, a, b, h, w)), made), (0, 1, 4, 2, 5, 3)
    made = g.add(Reshape((n, c, h * a, w * b)), g.add(Transpose(perm), made))
    if g.chance():
        count = (n, c, max(1, h * a - 1), max(1, w * b - 1))
        made = g.add(Slice((0, 0, g.which(h * a - count[2] + 1), 0), count, (1,) * 4), made)
    return followed(g, normed_channels(g, made) if g.choose(True, False) else made)


def shuffled_unit(g: Growing) -> str:
    """ShuffleNet's: half of the channels pass by, the others are computed, and both are interleaved."""
    x = activated(g, g.tensor(4)) if g.chance() else g.tensor(4)
    n, c, h, w = g.shape(x)
    left, right = cut(g, x, 1, 2) if c > 1 and g.choose(True, False) else (x, x)
    made = convolved(g, right, g.shape(left)[1], (1, 1))
    if g.chance():
        made = g.add(Activation("relu"), made)
    if g.chance():
        made = convolved(g, made, g.shape(made)[1], (3, 3), g.shape(made)[1])
        made = g.add(Activation("relu"), convolved(g, made, g.shape(made)[1], (1, 1)))
    both = g.add(Concat(1), *((left, made) if g.choose(True, False) else (made, left)))
    if g.chance(3):
        both = convolved(g, both, g.shape(both)[1], (1, 1), g.divisor(g.shape(both)[1]))
    channels = g.shape(both)[1]
    groups = g.choose(2, g.divisor(channels))
    apart = g.add(Reshape((n, groups, channels // groups, h, w)), both) if channels % groups == 0 else None
    if apart is None:
        raise Dropped
    return g.add(Reshape((n, channels, h, w)), g.add(Transpose((0, 2, 1, 3, 4)), apart))


def cascaded(g: Growing) -> str:
    """Channels of a convolution in parts, some of which are computed further, and concatenated again: Res2Net, CSP."""
    x = g.tensor(4, 4, 3)
    axes = g.rank(x) - 2
    made = convolved(g, x, g.choose(6, 8, 12, 9), (1,) * axes)
    if g.chance():
        made = activated(g, made)
    parts = cut(g, made, 1)
    done = [parts[0]]
    for part in parts[1:]:
        if g.chance(3) and g.shape(done[-1]) == g.shape(part):
            part = paired(g, g.choose("add", "mul"), part, done[-1])
        if g.choose(True, False):
            groups = g.choose(1, g.shape(part)[1])
            part = convolved(g, part, g.shape(part)[1], (3,) * axes, groups)
            part = activated(g, part) if g.chance() else part
        done.append(part)
    if g.chance(4):
        done.pop(g.which(len(done)))
    together = g.add(Concat(1), *done)
    if g.chance():
        together = activated(g, together)
    return convolved(g, together, g.choose(4, 8, 3), (1,) * axes)


def between_convolutions(g: Growing) -> str:
    """Channels last between two convolutions, as TensorFlow's exporters write."""
    x = g.tensor(4)
    x = convolved(g, x, g.choose(4, 3, 8, g.shape(x)[2]), (3, 3))
    y = g.add(Transpose((0, 2, 3, 1)), x)
    for _ in range(1 + g.which(4)):
        match g.choose("activation", "constant", "norm", "product", "two", "concat", "pad", "slice", "mean", "where"):
            case "activation":
                y = activated(g, y)
            case "constant":
                y = beside_constant(g, y)
            case "norm":
                y = normed(g, y)
            case "product":
                y = multiplied(g, y, g.shape(y)[-1])
            case "two":
                fits = [z for z in g.tensors(4) if g.shape(z) == g.shape(y)]
                y = paired(g, g.choose("add", "mul"), y, g.choose(*fits))
            case "concat":
                y = g.add(Concat(g.choose(3, 1, 2, 0)), y, g.choose(y, g.weights(*g.shape(y))))
            case "pad":
                y = g.add(Pad((0, 1, 0, 0), (0, 0, 1, g.choose(0, 2))), y)
            case "slice":
                y = g.choose(*cut(g, y, g.choose(3, 1, 0)))
            case "mean":
                mean = g.add(Reduce("mean", (1, 2), g.choose(True, True, False)), y)
                y = paired(g, "mul", y, mean)
            case _:
                y = g.add(Where(), g.constant(g.numbers(*g.broadcastable(g.shape(y))) > 0), y, g.scalar(0.0))
    x = g.add(Transpose((0, 3, 1, 2)), y)
    return convolved(g, x, g.choose(4, 8), (3, 3)) if g.choose(True, False) else x


def moved_late(g: Growing) -> str:
    """ConvNeXt's block: a depthwise window, rows normalised and multiplied, channels second again, one factor each."""
    x = g.tensor(4)
    c = g.shape(x)[1]
    y = g.add(Transpose((0, 2, 3, 1)), convolved(g, x, c, (3, 3), c))
    y = normed(g, y) if g.chance() else y
    y = g.add(Transpose((0, 3, 1, 2)), multiplied(g, y, c))
    for _ in range(g.which(3)):
        y = beside_constant(g, y)
    if g.chance():
        y = paired(g, g.choose("add", "sub", "mul"), y, g.choose(x, convolved(g, x, c, (1, 1))))
    return beside_constant(g, y)


def whole_pool(g: Growing) -> str:
    """A pooling over all of an image, or over rows alone."""
    x = g.tensor(4, 3)
    kernel = tuple(g.choose(extent, 1) for extent in g.shape(x)[2:])
    ones, none = (1,) * len(kernel), (0,) * len(kernel)
    return g.add(Pool(g.choose("average", "max"), kernel, g.choose(ones, kernel), none, none, ones), x)


def joined_ends(g: Growing) -> str:
    """Channels at an end of a convolution's result, concatenated with another's."""
    x = g.tensor(4)
    first = convolved(g, x, g.choose(16, 24), (1, 1))
    begin = g.choose(8, 0)
    n, c, h, w = g.shape(first)
    part = g.add(Slice((0, begin, 0, 0), (n, 8 if begin == 0 else c - begin, h, w), (1,) * 4), first)
    other = convolved(g, activated(g, part) if g.chance() else part, g.choose(8, 16), (3, 3))
    names = [part, other] if g.choose(True, False) else [other, part]
    return convolved(g, g.add(Concat(1), *names), g.choose(8, 3), (1, 1))


def pooled_volume(g: Growing) -> str:
    x = g.tensor(5)
    kernel = g.choose((3, 3, 3), (1, 3, 3), (2, 2, 2), (3, 1, 1))
    half = tuple(extent // 2 for extent in kernel)
    strides = g.choose((1, 1, 1), (1, 2, 2), (2, 2, 2))
    return g.add(Pool(g.choose("max", "average"), kernel, strides, half, half, (1, 1, 1), g.chance()), x)


NETWORKS = (
    stacked, gated_sum, gated_branches, pooled_beside, unfolded, focused, grouped_norm, patches, decoder, shuffled_unit,
    cascaded, between_convolutions, moved_late, whole_pool, joined_ends, pooled_volume,
)  # fmt: skip
