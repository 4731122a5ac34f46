"""More of what `drawn_graphs` draws: volumes and signals, odd windows, gates of every kind, tables of indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from drawn_gathers import GATHERS
from drawn_graphs import Dropped, Growing
from drawn_layers import activated, cut, normed_channels, paired
from drawn_products import convolved, followed

from bolt_build.dtypes import DType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.lines import CumSum, Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import GatherElements, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv


def odd_image(g: Growing) -> str:
    """An input of its own: odd channels, pixels in a line, volumes, one image without a batch's extent."""
    axes = g.choose(2, 1, 3)
    channels = g.choose(3, 5, 13, 1)
    pixels = {2: (g.choose(5, 7, 4), g.choose(5, 7, 1)), 1: (g.choose(9, 13, 1),), 3: (3, 3, g.choose(5, 2))}[axes]
    return g.add_input(g.batch, channels, *pixels)


def odd_window(g: Growing) -> str:
    """Windows of whatever groups, strides, dilations and pads, larger on one side than on the other."""
    x = odd_image(g) if g.chance(3) else g.tensor(3, 4, 5)
    _, channels, *pixels = g.shape(x)
    kernel = tuple(g.choose(3, 1, 2, 4, 5) for _ in pixels)
    groups = g.choose(1, g.divisor(channels), channels)
    dilations = tuple(g.choose(1, 2, 3) for _ in pixels)
    window = {
        "strides": tuple(g.choose(1, 2, 3) for _ in pixels), "dilations": dilations,
        "begin": tuple(g.choose(0, 1, size, 3) for size in kernel), "end": tuple(g.choose(0, 1, 2) for _ in kernel),
    }  # fmt: skip
    return followed(g, convolved(g, x, groups * g.choose(1, 3, 5), kernel, groups, **window))


def residual(g: Growing) -> str:
    """A bottleneck whose residual is the graph's input, or whatever lies in front of it, with a gate or none."""
    x = odd_image(g) if g.chance(4) else g.tensor(4, 3, 5)
    axes, channels = g.rank(x) - 2, g.shape(x)[1]
    y = x
    for size in (1, 3, 1):
        groups = channels if size == 3 and g.chance() else 1
        y = convolved(g, y, channels, (size,) * axes, groups)
        y = normed_channels(g, y) if g.chance() else y
        y = activated(g, y) if g.choose(True, False) else y
    if g.chance():
        y = _gated(g, y)
    y = paired(g, g.choose("add", "add", "mul"), x, y)
    return g.add(Activation("relu"), y) if g.choose(True, False) else y


def any_gate(g: Growing) -> str:
    return _gated(g, g.tensor(4, 3, 5))


def _gated(g: Growing, x: str) -> str:
    """ECA's, CBAM's two, coordinates', selective kernels', simple gates, and global response."""
    n, channels, *pixels = g.shape(x)
    axes = tuple(range(2, 2 + len(pixels)))
    ones = (1,) * len(pixels)
    match g.choose("eca", "channels", "pixels", "coordinates", "halves", "linear", "spread"):
        case "eca":
            line = g.add(Reduce("mean", axes, g.choose(True, False)), x)
            line = g.add(Reshape((n, 1, channels)), line)
            made = g.add(Reshape((n, channels, *ones)), convolved(g, line, 1, (g.choose(3, 5, 1),)))
            return paired(g, "mul", x, g.add(Activation("sigmoid"), made))
        case "channels":
            sides = []
            for mode in ("mean", "max"):
                side = convolved(g, g.add(Reduce(mode, axes, True), x), g.choose(2, 1), ones)
                sides.append(convolved(g, g.add(Activation("relu"), side), channels, ones))
            return paired(g, "mul", x, g.add(Activation("sigmoid"), paired(g, "add", *sides)))
        case "pixels":
            maps = g.add(Concat(1), *(g.add(Reduce(mode, (1,), True), x) for mode in ("mean", "max")))
            size = g.choose(7, 3, 1)
            return paired(g, "mul", x, g.add(Activation("sigmoid"), convolved(g, maps, 1, (size,) * len(pixels))))
        case "coordinates" if len(pixels) == 2:
            h, w = pixels
            rows, columns = g.add(Reduce("mean", (3,), True), x), g.add(Reduce("mean", (2,), True), x)
            both = g.add(Concat(2), rows, g.add(Transpose((0, 1, 3, 2)), columns))
            both = activated(g, convolved(g, both, g.choose(2, 3), (1, 1)))
            hidden = g.shape(both)[1]
            first = g.add(Slice((0, 0, 0, 0), (n, hidden, h, 1), (1,) * 4), both)
            second = g.add(Transpose((0, 1, 3, 2)), g.add(Slice((0, 0, h, 0), (n, hidden, w, 1), (1,) * 4), both))
            for each in (first, second):
                x = paired(g, "mul", x, g.add(Activation("sigmoid"), convolved(g, each, channels, (1, 1))))
            return x
        case "halves":
            left, right = cut(g, x, 1, 2) if channels % 2 == 0 else (x, x)
            return paired(g, "mul", left, g.add(Activation("sigmoid"), right) if g.chance() else right)
        case "linear":
            mean = g.add(Reduce("mean", axes, False), x)
            rows = g.add(Activation("hard_sigmoid", 1 / 6, 0.5), mean)
            return paired(g, "mul", x, g.add(Reshape((n, channels, *ones)), rows))
    shares = g.add(Softmax(1), g.add(Reduce(g.choose("mean", "sum", "max"), axes, True), x))
    return paired(g, g.choose("mul", "add", "sub"), x, shares)


def pixels_shuffled(g: Growing) -> str:
    """A product or window whose channels become pixels, or pixels become its channels; in both orders."""
    x = g.tensor(4)
    n, _, h, w = g.shape(x)
    a, b, c = g.choose(2, 1, 3), g.choose(2, 1, 3), g.choose(1, 3, 5)
    if g.chance():
        y = followed(g, convolved(g, x, a * b * c, (g.choose(1, 3),) * 2))
        if g.chance():
            y = g.add(Transpose((0, 3, 4, 1, 5, 2)), g.add(Reshape((n, a, b, c, h, w)), y))
        else:
            y = g.add(Transpose((0, 1, 4, 2, 5, 3)), g.add(Reshape((n, c, a, b, h, w)), y))
        return followed(g, g.add(Reshape((n, c, h * a, w * b)), y))
    if h % a or w % b:
        raise Dropped
    channels = g.shape(x)[1]
    y = g.add(Reshape((n, channels, h // a, a, w // b, b)), x)
    y = g.add(Transpose(g.choose((0, 3, 5, 1, 2, 4), (0, 1, 3, 5, 2, 4), (0, 5, 3, 1, 2, 4))), y)
    y = g.add(Reshape((n, channels * a * b, h // a, w // b)), y)
    return convolved(g, y, g.choose(4, 3, 5), (g.choose(1, 3),) * 2)


def slices_joined(g: Growing) -> str:
    """Every second pixel of each phase, concatenated: Swin's and YOLO's patches; or steps, turned around."""
    x = g.tensor(4, 3)
    rank = g.rank(x)
    axes = g.choose((rank - 2, rank - 1), (1, rank - 1), (rank - 1,))
    if any(g.shape(x)[axis] % 2 for axis in axes) or len(set(axes)) != len(axes):
        raise Dropped
    phases = [tuple((at >> place) & 1 for place in range(len(axes))) for at in range(2 ** len(axes))]
    parts = []
    for phase in (phases[at] for at in g.order(len(phases))) if g.chance() else phases:
        begin, count, step = [0] * rank, list(g.shape(x)), [1] * rank
        for axis, first in zip(axes, phase, strict=True):
            begin[axis], count[axis], step[axis] = first, count[axis] // 2, 2
        parts.append(g.add(Slice(tuple(begin), tuple(count), tuple(step)), x))
    y = g.add(Concat(g.choose(1, rank - 1)), *parts)
    return convolved(g, y, g.choose(4, 3), (1,) * (rank - 2)) if g.choose(True, False) else y


def picked(g: Growing) -> str:
    """The greatest elements and where they are, gathered from another tensor, or from the same one."""
    x = g.tensor()
    if not g.rank(x):
        raise Dropped
    axis = g.which(g.rank(x))
    count = 1 + g.which(g.shape(x)[axis])
    places = g.add(Places(axis, count, g.choose(True, False)), x)
    fits = [y for y in g.tensors(g.rank(x)) if g.shape(y) == g.shape(x)]
    found = g.add(GatherElements(axis), g.choose(x, *fits), places)
    return followed(g, found) if g.chance() and g.rank(found) > 2 else found


def put(g: Growing) -> str:
    """Some elements replaced, or added to."""
    x = g.tensor()
    shape = g.shape(x)
    if not shape:
        raise Dropped
    axis = g.which(len(shape))
    if g.chance():
        count = 1 + g.which(shape[axis])
        own = (*shape[:axis], count, *shape[axis + 1 :])
        index = np.broadcast_to(
            np.asarray(g.order(shape[axis])[:count]).reshape([-1 if at == axis else 1 for at in range(len(shape))]), own
        )
        fits = [y for y in g.tensors(len(shape)) if g.shape(y) == own]
        op = ScatterElements(axis, g.choose("none", "add", "max"))
        return g.add(op, x, g.constant(np.ascontiguousarray(index, np.int64)), g.choose(g.weights(*own), *fits))
    depth = 1 + g.which(len(shape))
    index = np.asarray([[g.which(extent) for extent in shape[:depth]]], np.int64)
    return g.add(ScatterND(g.choose("none", "add")), x, g.constant(index), g.weights(1, *shape[depth:]))


def _mostly_all(g: Growing, order: Sequence[int]) -> Sequence[int]:
    if not g.chance(3):
        return order
    return (*order, order[0]) if g.chance() else order[1:]


def interleaved(g: Growing) -> str:
    """Parts of a tensor assigned to every second place or further ones, mostly all of them."""
    x = g.tensor(3, 4, 2)
    axis, along, step = g.which(g.rank(x)), g.which(g.rank(x)), g.choose(2, 3)
    parts = cut(g, x, axis, step)
    if len({g.shape(part) for part in parts}) > 1 or not all(g.shape(parts[0])):
        raise Dropped
    small = g.shape(parts[0])
    shape = tuple(extent * (step if at == along else 1) for at, extent in enumerate(small))
    made = g.constant(np.zeros(shape, np.float32))
    order = g.order(step)
    for phase in _mostly_all(g, order):
        runs = [np.arange(phase, extent, step) if at == along else np.arange(extent) for at, extent in enumerate(shape)]
        if g.chance():
            index = np.stack(np.meshgrid(*runs, indexing="ij"), axis=-1)
            made = g.add(ScatterND(), made, g.constant(index.astype(np.int64)), parts[phase])
            continue
        turned = (along, *(at for at in range(len(shape)) if at != along))
        index = runs[along].reshape(-1, 1).astype(np.int64)
        data, part = (g.add(Transpose(turned), each) for each in (made, parts[phase]))
        made = g.add(ScatterND(), data, g.constant(index), part)
        made = g.add(Transpose(tuple(turned.index(at) for at in range(len(shape)))), made)
    return made


def gathered_nd(g: Growing) -> str:
    x = g.tensor()
    depth = 1 + g.which(max(1, g.rank(x)))
    if depth > g.rank(x):
        raise Dropped
    rows = [[g.which(extent) for extent in g.shape(x)[:depth]] for _ in range(g.choose(2, 1, 3))]
    return g.add(GatherND(), x, g.constant(np.asarray(rows, np.int64)))


def counted(g: Growing) -> str:
    """Conditions joined, turned, counted by whole numbers, and numbers again."""
    x = g.tensor()
    question = g.choose("greater", "less", "greater_or_equal", "less_or_equal")
    first = g.add(Compare(question), x, g.scalar(g.choose(0.0, 0.3)))
    fits = [y for y in g.tensors() if g.shape(y) == g.shape(x)]
    second = g.add(Compare("less"), g.choose(*fits), g.choose(x, g.scalar(0.5)))
    both = g.add(Logic(g.choose("and", "or", "xor")), first, second)
    both = g.add(Ask("not"), both) if g.chance() else both
    match g.choose("cast", "sum", "where", "count", "any"):
        case "cast":
            return paired(g, "mul", x, g.add(Cast(DType.F32), both))
        case "where":
            return g.add(Where(), both, x, g.choose(*fits))
        case "sum" if g.rank(x):
            whole = g.add(Cast(DType.I64), both)
            return g.add(Cast(DType.F32), g.add(CumSum(g.which(g.rank(x))), whole))
        case "any" if g.rank(x):
            whole, mode = g.add(Cast(DType.I64), both), g.choose("max", "min", "sum")
            found = g.add(Reduce(mode, (g.which(g.rank(x)),), True), whole)
            zero = g.constant(np.asarray(0, np.int64))
            asked = g.add(Compare(g.choose("greater", "equal")), found, zero) if mode == "sum" else found
            return paired(g, "mul", x, g.add(Cast(DType.F32), g.add(Cast(DType.BOOL), asked)))
    if not g.rank(x):
        raise Dropped
    whole = g.add(Cast(DType.I32), both)
    total = g.add(Reduce("sum", (g.which(g.rank(x)),), True), whole)
    return paired(g, "add", x, g.add(Cast(DType.F32), total))


def pooled(g: Growing) -> str:
    """Dilated and lopsided poolings behind windows, which something else reads too."""
    x = g.tensor(3, 4, 5)
    pixels = g.shape(x)[2:]
    kernel = tuple(g.choose(2, 3, 1) for _ in pixels)
    dilations = tuple(g.choose(1, 2) for _ in pixels)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    begin, end = (tuple(g.which(size) for size in kernel) for _ in range(2))
    if any(size > extent + a + b for size, extent, a, b in zip(reach, pixels, begin, end, strict=True)):
        raise Dropped
    mode = g.choose("max", "average")
    strides = tuple(g.choose(1, 2, 3) for _ in kernel)
    y = g.add(Pool(mode, kernel, strides, begin, end, dilations, g.chance(), mode == "average" and g.chance()), x)
    return followed(g, y)


def shared_constant(g: Growing) -> str:
    """One constant that several nodes read, in roles of its own: a filter that is also a factor."""
    x = g.tensor(4, 3)
    channels = g.shape(x)[1]
    axes = g.rank(x) - 2
    filters = g.weights(channels, channels, *(1,) * axes, of=channels)
    ones, none = (1,) * axes, (0,) * axes
    op = Conv(ones, none, none, ones)
    line = g.weights(channels)
    first = g.add(op, x, filters, line)
    second = g.add(op, activated(g, first), filters, line)
    factor = g.add(Reshape((channels, *ones)), line)
    return paired(g, "mul", paired(g, "add", first, second), factor)


def line_features(g: Growing) -> str:
    """Norms over the channels of signals and volumes, by hand."""
    x = g.tensor(3, 5)
    axes = tuple(range(1, g.rank(x)))
    if prod(g.shape(x)[1:]) < 3:
        raise Dropped
    mean = g.add(Reduce("mean", axes, True), x)
    apart = g.add(Binary("sub"), x, mean)
    variance = g.add(Reduce("mean", axes, True), paired(g, "mul", apart, apart))
    root = g.add(Activation("sqrt"), g.add(Binary("add"), variance, g.scalar(1e-2)))
    return paired(g, "mul", g.add(Binary("div"), apart, root), g.factors(g.shape(x)[1], *(1,) * (g.rank(x) - 2)))


IMAGES = (
    *[odd_window] * 2, *[residual] * 2, *[any_gate] * 2, *[pixels_shuffled] * 2, slices_joined, *GATHERS, picked, put,
    interleaved, gathered_nd, counted, pooled, shared_constant, line_features,
)  # fmt: skip
