"""What `drawn_graphs` draws: operators alone, on whatever fits, in the forms that passes look for and in others."""

from __future__ import annotations

from math import prod

import numpy as np
from drawn_graphs import Dropped, Growing

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import BatchNorm

_FUNCTIONS = (
    ("relu", 0.0, 0.0), ("sigmoid", 0.0, 0.0), ("exp", 0.0, 0.0), ("tanh", 0.0, 0.0), ("silu", 0.0, 0.0),
    ("gelu", 0.0, 0.0), ("clip", 0.0, 6.0), ("clip", 0.5, 2.0), ("leaky_relu", 0.1, 0.0), ("hard_sigmoid", 0.2, 0.5),
    ("hard_swish", 0.0, 0.0), ("softplus", 0.0, 0.0), ("erf", 0.0, 0.0), ("square", 0.0, 0.0), ("neg", 0.0, 0.0),
    ("abs", 0.0, 0.0), ("cos", 0.0, 0.0), ("mish", 0.0, 0.0), ("elu", 1.0, 0.0),
)  # fmt: skip


# --- elementwise ------------------------------------------------------------------------------------------------------


def activation(g: Growing) -> str:
    return activated(g, g.tensor())


def activated(g: Growing, x: str) -> str:
    return g.add(Activation(*g.choose(*_FUNCTIONS)), x)


def written_out(g: Growing) -> str:
    """An activation of several nodes."""
    x = g.tensor()
    match g.choose("silu", "hard_swish", "gelu", "mish", "softplus", "guarded", "leaky", "powers", "slopes"):
        case "silu":
            return paired(g, "mul", x, g.add(Activation("sigmoid"), x))
        case "hard_swish":
            gate = g.add(Activation("clip", 0.0, 6.0), paired(g, "add", x, g.scalar(3.0)))
            return g.add(Binary("div"), paired(g, "mul", x, gate), g.scalar(6.0))
        case "gelu":
            gate = g.add(Activation("erf"), g.add(Binary("div"), x, g.scalar(2**0.5)))
            gate = paired(g, "add", gate, g.scalar(1.0))
            return paired(g, "mul", paired(g, "mul", x, gate), g.scalar(0.5))
        case "mish":
            return paired(g, "mul", x, g.add(Activation("tanh"), g.add(Activation("softplus"), x)))
        case "guarded":
            large = g.add(Compare("greater"), x, g.scalar(20.0))
            return g.add(Where(), large, x, g.add(Activation("softplus"), x))
        case "leaky":
            below = g.add(Compare("less_equal"), x, g.scalar(g.choose(0.0, 0.0, 0.1)))
            return g.add(Where(), below, g.add(Binary("mul"), x, g.scalar(0.2)) if g.chance() else g.scalar(0.0), x)
        case "powers":
            power = g.add(Activation("exp"), g.add(Activation("neg"), x))
            total = paired(g, "add", power, g.scalar(g.choose(1.0, 1.0, 1.0, 2.0)))
            if g.chance():
                return g.add(Activation("log"), total)
            return g.add(Binary("div"), g.scalar(1.0) if g.chance() else x, total)
        case "slopes":
            below = g.add(Activation("relu"), g.add(Activation("neg"), x))
            below = paired(g, "mul", below, g.scalar(0.2)) if g.chance() else beside_constant(g, below)
            return g.add(Binary(g.choose("add", "sub")), g.add(Activation("relu"), x), below)
    return g.add(Activation("softplus"), x)


def paired(g: Growing, function: str, one: str, other: str) -> str:
    pair = (one, other) if g.choose(True, False) else (other, one)
    return g.add(Binary(function), *pair)


def with_constant(g: Growing) -> str:
    return beside_constant(g, g.tensor())


def beside_constant(g: Growing, x: str) -> str:
    function = g.choose("add", "mul", "sub", "div", "max", "min", "prelu", "pow")
    shape = g.broadcastable(g.shape(x))
    if g.chance(8):
        shape = (g.choose(1, 2), *shape)  # one more axis than the tensor
    other = g.factors(*shape) if function in ("mul", "div") else g.weights(*shape)
    if function == "prelu":
        return g.add(Binary(function), x, other)
    if function == "pow":
        return g.add(Binary(function), x, g.scalar(g.choose(2.0, 3.0)))
    if function == "div" and not g.chance(4):
        return g.add(Binary(function), x, other)
    if function == "div":
        x = g.add(Activation("exp"), x)
    return paired(g, function, x, other)


def of_two(g: Growing) -> str:
    """Arithmetic of two tensors, which may be one, or of one with a part of it that broadcasts."""
    x = g.tensor()
    fits = [y for y in g.tensors() if _broadcasts(g.shape(y), g.shape(x))]
    function = g.choose("add", "mul", "sub", "max", "min")
    return paired(g, function, x, g.choose(*reversed(fits)))


def _broadcasts(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def masked(g: Growing) -> str:
    x = g.tensor()
    mask = g.constant(g.numbers(*g.broadcastable(g.shape(x))) > 0)
    other = g.scalar(g.choose(0.0, -1e4)) if g.choose(True, False) else g.weights(*g.broadcastable(g.shape(x)))
    return g.add(Where(), mask, *((x, other) if g.choose(True, False) else (other, x)))


# --- moves ------------------------------------------------------------------------------------------------------------


def reshape(g: Growing) -> str:
    x = g.tensor()
    shape = list(g.shape(x))
    for _ in range(1 + g.which(2)):
        match g.choose("merge", "split", "one", "drop"):
            case "merge" if len(shape) > 1:
                at = g.which(len(shape) - 1)
                shape[at : at + 2] = [shape[at] * shape[at + 1]]
            case "split" if shape:
                at = g.which(len(shape))
                part = g.divisor(shape[at])
                shape[at : at + 1] = [part, shape[at] // part]
            case "one":
                shape.insert(g.which(len(shape) + 1), 1)
            case _ if 1 in shape:
                shape.remove(1)
    return g.add(Reshape(tuple(shape)), x)


def transpose(g: Growing) -> str:
    x = g.tensor()
    rank = g.rank(x)
    if rank < 2:
        raise Dropped
    last, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    first, end = (1, 0, *range(2, rank)), (*range(rank - 2), rank - 1, rank - 2)
    return g.add(Transpose(g.choose(end, first, last, back, g.order(rank))), x)


def piece(g: Growing) -> str:
    """A part of a tensor along one or two axes; backwards or with steps now and then."""
    x = g.tensor()
    shape = g.shape(x)
    begin, count, step = [0] * len(shape), list(shape), [1] * len(shape)
    for _ in range(1 + g.which(2)):
        axis = g.which(len(shape)) if shape else 0
        if not shape:
            raise Dropped
        begin[axis] = g.which(shape[axis])
        count[axis] = 1 + g.which(shape[axis] - begin[axis])
        step[axis] = 1
        if g.chance(4):
            step[axis] = g.choose(2, -1)
            room = (shape[axis] - begin[axis] + 1) // 2 if step[axis] == 2 else begin[axis] + 1
            count[axis] = 1 + g.which(room)
    return g.add(Slice(tuple(begin), tuple(count), tuple(step)), x)


def pieces(g: Growing) -> list[str]:
    """All of a tensor along one axis, in parts."""
    x = g.tensor()
    return cut(g, x, g.which(g.rank(x))) if g.rank(x) else []


def cut(g: Growing, x: str, axis: int, parts: int | None = None) -> list[str]:
    """Parts along an axis, about alike. Raises Dropped where there are not so many."""
    shape, at, found = g.shape(x), 0, []
    most = parts or g.choose(2, 3)
    while at < shape[axis]:
        count = min(-(-shape[axis] // most), shape[axis] - at)
        begin, counts = [0] * len(shape), list(shape)
        begin[axis], counts[axis] = at, count
        found.append(g.add(Slice(tuple(begin), tuple(counts), (1,) * len(shape)), x))
        at += count
    if parts is not None and len(found) != parts:
        raise Dropped
    return found


def concat(g: Growing) -> str:
    """Tensors, constants, one tensor twice: whatever agrees but for one axis."""
    x = g.tensor()
    shape = g.shape(x)
    if not shape:
        raise Dropped
    axis = g.choose(*dict.fromkeys((min(1, len(shape) - 1), len(shape) - 1, 0, g.which(len(shape)))))
    rest = [extent for at, extent in enumerate(shape) if at != axis]
    fits = [
        y for y in g.tensors(len(shape))
        if [extent for at, extent in enumerate(g.shape(y)) if at != axis] == rest
    ]  # fmt: skip
    parts = [x]
    for _ in range(1 + g.which(2)):
        if g.choose(True, False):
            parts.insert(g.which(len(parts) + 1), g.choose(*reversed(fits)))
        else:
            own = list(shape)
            own[axis] = g.choose(1, 2, 3)
            parts.insert(g.which(len(parts) + 1), g.weights(*own))
    return g.add(Concat(axis), *parts)


def gather(g: Growing) -> str:
    """Constant indices: one, some in order or not, from the end, several axes of them."""
    x = g.tensor()
    if not g.rank(x):
        raise Dropped
    axis = g.which(g.rank(x))
    extent = g.shape(x)[axis]
    match g.choose("one", "order", "some", "table"):
        case "one":
            index = np.int64(g.which(extent) - (extent if g.chance(3) else 0))
        case "order":
            index = np.arange(extent)[:: -1 if g.chance() else 1]
        case "some":
            index = np.array([g.which(extent) for _ in range(g.choose(2, 1, 3))])
        case _:
            index = np.array([[g.which(extent) for _ in range(2)] for _ in range(2)])
    return g.add(Gather(axis), x, g.constant(np.asarray(index, np.int64)))


def expand(g: Growing) -> str:
    x = g.tensor()
    shape = [extent if extent != 1 else g.choose(2, 3, 4) for extent in g.shape(x)]
    if g.chance():
        shape.insert(0, g.choose(2, 3, 1))
    return g.add(Expand(tuple(shape)), x)


def pad(g: Growing) -> str:
    x = g.tensor()
    begin, end = [0] * g.rank(x), [0] * g.rank(x)
    for _ in range(1 + g.which(2)):
        if not begin:
            raise Dropped
        axis = len(begin) - 1 - g.which(len(begin))
        begin[axis], end[axis] = g.choose(1, 0, 2, -1), g.choose(1, 0, 2)
    mode = g.choose("constant", "constant", "edge", "reflect")
    value = g.choose(0.0, 0.5) if mode == "constant" else 0.0
    return g.add(Pad(tuple(begin), tuple(end), mode, value), x)


def identity(g: Growing) -> str:
    return g.add(Identity(), g.tensor())


def moved_channels(g: Growing) -> str:
    """Channels shuffled, space to depth and back, windows of an image."""
    x = g.tensor(4)
    n, c, h, w = g.shape(x)
    match g.choose("shuffle", "depth", "space", "windows"):
        case "shuffle":
            groups = g.divisor(c)
            split, perm, whole = (n, groups, c // groups, h, w), (0, 2, 1, 3, 4), (n, c, h, w)
        case "depth":
            a, b = g.divisor(h), g.divisor(w)
            split = (n, c, h // a, a, w // b, b)
            perm, whole = g.choose((0, 3, 5, 1, 2, 4), (0, 1, 3, 5, 2, 4)), (n, c * a * b, h // a, w // b)
        case "space":
            a = g.choose(2, 1, 3)
            if c % (a * a):
                raise Dropped
            split, whole = (n, a, a, c // (a * a), h, w), (n, c // (a * a), h * a, w * a)
            perm = (0, 3, 4, 1, 5, 2)
        case _:
            a, b = g.divisor(h), g.divisor(w)
            split, perm = (n, c, h // a, a, w // b, b), (0, 2, 4, 3, 5, 1)
            whole = (n * (h // a) * (w // b), a * b, c)
    return g.add(Reshape(whole), g.add(Transpose(perm), g.add(Reshape(split), x)))


# --- lines ------------------------------------------------------------------------------------------------------------


def norm(g: Growing) -> str:
    return normed(g, g.tensor(3, 4, 2))


def normed(g: Growing, x: str) -> str:
    rank = g.rank(x)
    axes = g.choose((rank - 1,), (1,) if rank > 1 else (0,), tuple(range(1, rank)) or (0,), (g.which(rank),))
    shape = tuple(extent if at in axes else 1 for at, extent in enumerate(g.shape(x)))[min(axes) :]
    if prod(shape) < 3:
        raise Dropped  # a variance of near nothing
    factors = [g.factors(*shape), g.weights(*shape)][: g.choose(2, 1, 0)]
    made = g.add(Norm(g.choose("variance", "rms"), axes, 1e-2), x, *factors)
    return _modulated(g, made) if axes == (rank - 1,) and rank == 3 and g.chance() else made


def _modulated(g: Growing, x: str) -> str:
    """Rows scaled and shifted by what each image has of its own."""
    images, _, extent = g.shape(x)
    scale, shift = (g.add_input(images, 1, extent) for _ in range(2))
    x = paired(g, "mul", x, scale)
    return paired(g, "add", x, shift) if g.choose(True, False) else x


def norm_written_out(g: Growing) -> str:
    x = g.tensor(3, 4, 2)
    axis = (g.choose(g.rank(x) - 1, 1),)
    if g.shape(x)[axis[0]] < 3:
        raise Dropped
    if g.chance(5):
        return _by_length(g, x, axis)
    centred = g.add(Binary("sub"), x, g.add(Reduce("mean", axis, True), x)) if g.choose(True, False) else x
    square = paired(g, "mul", centred, centred) if g.chance() else g.add(Binary("pow"), centred, g.scalar(2.0))
    if g.chance(4):  # sums whose axis is put back
        shape = tuple(1 if at in axis else extent for at, extent in enumerate(g.shape(x)))
        total = g.add(Reshape(shape), g.add(Reduce("sum", axis, False), square))
        mean = g.add(Binary("div"), total, g.scalar(g.shape(x)[axis[0]]))
    else:
        mean = g.add(Reduce("mean", axis, True), square)
    if g.chance(4):  # by one less, as torch.var divides
        count = g.shape(x)[axis[0]]
        mean = g.add(Binary("div"), g.add(Binary("mul"), mean, g.scalar(count)), g.scalar(count - 1))
    root = g.add(Activation("sqrt"), g.add(Binary("add"), mean, g.scalar(1e-2)))
    found = g.add(Binary("div"), centred if g.choose(True, False) else x, root)
    return beside_constant(g, beside_constant(g, found))


def _by_length(g: Growing, x: str, axis: tuple[int, ...]) -> str:
    """Rows divided by their length, with a factor in front of it or behind it."""
    length = g.add(Activation("clip", g.choose(1e-12, 1e-5), 3.4028234663852886e38), g.add(Reduce("l2", axis, True), x))
    above = paired(g, "mul", x, g.scalar(2.0)) if g.chance(3) else x
    return beside_constant(g, beside_constant(g, g.add(Binary("div"), above, length)))


def reduction(g: Growing) -> str:
    x = g.tensor()
    if not g.rank(x):
        raise Dropped
    axes = g.choose((g.rank(x) - 1,), tuple(range(2, g.rank(x))) or (0,), (0,), g.order(g.rank(x))[: g.choose(1, 2)])
    return g.add(Reduce(g.choose("mean", "sum", "max", "min", "prod", "l1"), tuple(sorted(axes)), g.chance()), x)


def softmax(g: Growing) -> str:
    x = g.tensor()
    if not g.rank(x):
        raise Dropped
    return g.add(Softmax(g.choose(g.rank(x) - 1, min(1, g.rank(x) - 1), 0)), x)


def pool(g: Growing) -> str:
    x = g.tensor(4, 4, 3, 5)
    kernel = tuple(g.choose(2, 3, 1) for _ in range(g.rank(x) - 2))
    begin, end = (tuple(g.which(extent) for extent in kernel) for _ in range(2))
    strides = tuple(g.choose(1, 2, 3) for _ in kernel)
    padded = [extent + a + b for extent, a, b in zip(g.shape(x)[2:], begin, end, strict=True)]
    if any(size > extent for size, extent in zip(kernel, padded, strict=True)):
        raise Dropped
    mode = g.choose("max", "average")
    op = Pool(mode, kernel, strides, begin, end, (1,) * len(kernel), g.chance(3), mode == "average" and g.chance())
    return g.add(op, x)


def resize(g: Growing) -> str:
    """Rows or columns interpolated or repeated, or both."""
    x = g.tensor(4)
    for axis in g.choose((2, 3), (3,), (2,), (3, 2)):
        extent = g.shape(x)[axis]
        results = g.choose(2 * extent, extent, extent + 1, max(1, extent // 2))
        places = np.arange(results) * extent // results
        if g.chance():
            x = g.add(Gather(axis), x, g.constant(places))
            continue
        table = np.clip(np.stack([places, places + 1], 1), 0, extent - 1)
        x = g.add(Interpolate(axis), x, g.constant(table), g.constant(g.numbers(results, 2, low=0.2)))
    return x


def normed_channels(g: Growing, x: str) -> str:
    channels = g.shape(x)[1]
    names = [g.weights(channels) for _ in range(3)]
    return g.add(BatchNorm(1e-3), x, *names, g.factors(channels))


def batch_norm(g: Growing) -> str:
    return normed_channels(g, g.tensor(4, 3, 2, 5))


LAYERS = (
    activation, written_out, *[with_constant] * 2, *[of_two] * 2, masked, reshape, *[transpose] * 2, *[piece] * 2,
    pieces, *[concat] * 2, gather, expand, pad, identity, *[moved_channels] * 2, batch_norm, norm, norm_written_out,
    reduction, softmax, pool, resize,
)  # fmt: skip
"""As often as each is drawn."""
