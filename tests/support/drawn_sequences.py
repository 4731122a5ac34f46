"""More of what `drawn_graphs` draws: attention over channels, of parts of a sequence, and with several constants beside
its queries; the end of a block whose gate may be known before it; forward substitution; heads of a latent; experts."""

from __future__ import annotations

import numpy as np
from drawn_graphs import Growing
from drawn_layers import activated
from drawn_products import convolved, multiplied

from bolt_build.dtypes import DType
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul


def over_channels(g: Growing) -> str:
    """XCiT's: channels are the rows of a head, and queries and keys are normalised over all positions."""
    x = g.tensor(3)
    images, rows, _ = g.shape(x)
    heads, depth = g.choose(2, 1), g.choose(4, 8, 3)
    made = g.add(Reshape((images, rows, 3, heads, depth)), multiplied(g, x, 3 * heads * depth))
    order = g.choose((2, 0, 3, 4, 1), (2, 0, 3, 1, 4))  # the other one has positions as rows
    made = g.add(Transpose(order), made)
    query, key, value = (_picked(g, made, at) for at in range(3))
    statistic = g.choose("l2", "l2", "rms", "variance", "none")
    if statistic != "none":
        query, key = (g.add(Norm(statistic, (3,), 1e-2), each) for each in (query, key))
    scale = g.choose((heads, 1, 1), (), (1, heads, 1, 1))
    if g.chance():
        query = g.add(Binary("mul"), query, g.factors(*scale))
        scores = g.add(MatMul(transpose_b=True), query, key)
    else:
        scores = g.add(Binary("mul"), g.add(MatMul(transpose_b=True), query, key), g.factors(*scale))
    mixed = g.add(MatMul(), g.add(Softmax(3), scores), value)
    back = (0, 3, 1, 2) if order[-1] == 1 else (0, 2, 1, 3)
    return g.add(Reshape((images, rows, heads * depth)), g.add(Transpose(back), mixed))


def _picked(g: Growing, made: str, at: int) -> str:
    begin, count = (at, 0, 0, 0, 0), (1, *g.shape(made)[1:])
    if g.chance():
        return g.add(Gather(0), made, g.constant(at))
    return g.add(Reshape(count[1:]), g.add(Slice(begin, count, (1,) * 5), made))


def of_parts(g: Growing) -> str:
    """Qwen-VL's: neighbouring parts of a sequence have an attention each, whose results are concatenated."""
    x = g.tensor(3)
    images, rows, _ = g.shape(x)
    heads, depth, each = g.choose(1, 2), g.choose(4, 2), g.divisor(rows)
    sources = [multiplied(g, x, heads * depth) for _ in range(3)]
    if g.chance(4):
        sources[0] = activated(g, sources[0])
    results, op = [], Attention(heads, heads, g.choose(0.5, 1.0), g.chance(3))
    for begin in range(0, rows, each):
        begin = g.choose(begin, begin, begin, 0)
        parts = [g.add(Slice((0, begin, 0), (images, each, heads * depth), (1, 1, 1)), source) for source in sources]
        if g.chance(6):
            parts[1:] = [g.add(Slice((0, 0, 0), (images, each, heads * depth), (1, 1, 1)), y) for y in sources[1:]]
        results.append(g.add(op, *parts))
    return g.add(Concat(1), *results) if len(results) > 1 else results[0]


def with_positions(g: Growing) -> str:
    """Transformer-XL's: one constant is added to queries for the scores with keys, another for those with positions."""
    x = g.tensor(3)
    images, rows, _ = g.shape(x)
    heads, depth = g.choose(2, 1), g.choose(4, 2)
    query, key, value = (multiplied(g, x, heads * depth) for _ in range(3))
    query = g.add(Reshape((images, rows, heads, depth)), query)
    shape = (heads, depth)
    if g.chance():
        query, shape = g.add(Transpose((0, 2, 1, 3)), query), (heads, 1, depth)
    content, place = (
        g.add(Binary("add"), *(pair if g.choose(True, False) else pair[::-1]))
        for pair in ((query, g.weights(*shape)), (query, g.weights(*shape)))
    )
    if len(shape) == 3:
        content = g.add(Transpose((0, 2, 1, 3)), content)
    content = g.add(Reshape((images, rows, heads * depth)), content)
    mixed = g.add(Attention(heads, heads, 0.5), content, key, value)
    return g.add(Binary("add"), mixed, g.add(Reshape(g.shape(mixed)), place)) if g.chance() else mixed


def gated_end(g: Growing) -> str:
    """SE-ResNet's: a linear 1x1 convolution, the gate of its own mean, and the sum with what the block begins with."""
    x = g.tensor(4)
    channels = g.choose(g.shape(x)[1], 8, 4)
    made = convolved(g, convolved(g, x, g.choose(4, 8), (g.choose(3, 1),) * 2), channels, (1, 1))
    made = activated(g, made) if g.chance(6) else made
    mean = g.add(Reduce("mean", (2, 3), True), made)
    if g.chance():
        mean = g.add(Activation("relu"), convolved(g, mean, g.choose(2, 4), (1, 1)))
    gated = g.add(Binary("mul"), made, g.add(Activation("sigmoid"), convolved(g, mean, channels, (1, 1))))
    if g.chance(3):  # NFNets scale it
        gated = g.add(Binary("mul"), gated, g.factors(*g.choose((), (1, channels, 1, 1))))
    ends = [y for y in g.tensors(4) if g.shape(y) == g.shape(gated) and y not in (made, gated)]
    return g.add(Activation("relu"), g.add(Binary("add"), gated, g.choose(*ends))) if ends else gated


def by_rows_and_columns(g: Growing) -> str:
    """SAM's: scores of pixels with biases by the rows and by the columns of their image, of queries or constant."""
    x = g.tensor(3, 4)
    if g.rank(x) == 4:
        images, channels, height, width = g.shape(x)
        x = g.add(Transpose((0, 2, 1)), g.add(Reshape((images, channels, height * width)), x))
    else:
        images, rows, _ = g.shape(x)
        height = g.divisor(rows)
        width = rows // height
    depth = g.choose(4, 2)
    query, key, value = (multiplied(g, x, depth) for _ in range(3))
    apart = g.add(Reshape((images, height, width, depth)), query)
    scores = g.add(MatMul(transpose_b=True), query, key)
    scores = g.add(Reshape((images, height, width, height, width)), scores)
    biases = [
        g.add(MatMul(), apart, g.weights(height, depth, height)), g.add(MatMul(), apart, g.weights(depth, width)),
    ]  # fmt: skip
    shapes = [(images, height, width, height, 1), (images, height, width, 1, width)]
    for bias, shape in list(zip(biases, shapes, strict=True))[:: g.choose(1, -1)]:
        scores = g.add(Binary("add"), scores, g.add(Reshape(shape), bias))
    scores = g.add(Reshape((images, height * width, height * width)), scores)
    return g.add(MatMul(), g.add(Softmax(2), scores), value)


def substituted(g: Growing) -> str:
    """DeltaNet's: each row of a small matrix is added its product with the rows above it, one after the other."""
    x = g.tensor(3)
    images, rows, _ = g.shape(x)
    rows = min(rows, g.choose(4, 5, 6))
    made = multiplied(g, g.add(Slice((0, 0, 0), (images, rows, g.shape(x)[2]), (1, 1, 1)), x), rows)
    for row in range(1, rows):
        above = g.choose(made, made, made, made, made, made, made, x) if g.shape(x) == g.shape(made) else made
        own = g.add(Slice((0, row, 0), (images, 1, row), (1, 1, 1)), made)
        square = g.add(Slice((0, 0, 0), (images, row, row), (1, 1, 1)), above)
        column = g.add(Reshape((images, row, 1)), own)
        product = g.add(Reduce("sum", (1,), keepdims=False), g.add(Binary("mul"), column, square))
        total = g.add(Binary("add"), g.add(Reshape((images, row)), own), product)
        places = np.stack(np.meshgrid(range(images), [row], range(row), indexing="ij"), -1)
        made = g.add(ScatterND(), made, g.constant(places), g.add(Reshape((images, 1, row)), total))
    return g.add(Binary("add"), made, g.constant(np.eye(rows, dtype=np.float32))) if g.chance() else made


def latent_heads(g: Growing) -> str:
    """DeepSeek's: keys and values of a latent; the last elements of keys are turned and all heads', assigned or not."""
    x = g.tensor(3)
    images, rows, width = g.shape(x)
    heads, own, shared, values = g.choose(2, 3), g.choose(2, 4), g.choose(2, 4), g.choose(4, 3)
    angles = [g.weights(rows, shared // 2) for _ in range(2)]

    def cut(value: str, first: int, count: int, step: int = 1) -> str:
        shape = g.shape(value)
        begin, steps = (*(0,) * (len(shape) - 1), first), (*(1,) * (len(shape) - 1), step)
        return g.add(Slice(begin, (*shape[:-1], count), steps), value)

    def turned(value: str) -> list[str]:
        """Neighbours of the last elements as halves, each turned."""
        one, other = (cut(value, at, shared // 2, 2) for at in range(2))
        first = g.add(Binary("sub"), g.add(Binary("mul"), one, angles[0]), g.add(Binary("mul"), other, angles[1]))
        return [
            first,
            g.add(Binary("add"), g.add(Binary("mul"), other, angles[0]), g.add(Binary("mul"), one, angles[1])),
        ]

    def apart(value: str, each: int) -> str:
        return g.add(Transpose((0, 2, 1, 3)), g.add(Reshape((images, rows, heads, each)), value))

    query = apart(g.add(MatMul(), x, g.weights(width, heads * (own + shared))), own + shared)
    query = g.add(Concat(3), cut(query, 0, own), *turned(cut(query, own, shared)))
    both = g.add(MatMul(), x, g.weights(width, 6 + shared))
    keys = g.add(Concat(3), *turned(g.add(Reshape((images, 1, rows, shared)), cut(both, 6, shared))))
    every = g.add(Expand((images, heads, rows, shared)), keys)
    pair = apart(g.add(MatMul(), cut(both, 0, 6), g.weights(6, heads * (own + values))), own + values)
    parts = [cut(pair, 0, own), every]
    if g.chance():
        front = (3, 1, 2, 0)
        key = g.add(Transpose(front), g.add(Concat(0), *(g.add(Transpose(front), each) for each in parts)))
    else:
        key = g.add(Concat(3), *parts)
    scores = g.add(MatMul(transpose_b=True), query, key)
    mixed = g.add(MatMul(), g.add(Softmax(3), scores), cut(pair, own, values))
    return g.add(Reshape((images, rows, heads * values)), g.add(Transpose((0, 2, 1, 3)), mixed))


def experts(g: Growing) -> str:
    """Rows times the matrix of the expert that each has chosen: all are computed, or matrices gathered; rows may have
    been sorted and put back, and numbers of experts may have been through floating point."""
    x = g.add_input(g.batch, g.choose(2, 3), 8) if g.chance() else g.tensor(3)
    images, length, depth = g.shape(x)
    rows, count, columns, turned = images * length, g.choose(2, 3), g.choose(3, 4, 8, 8), g.chance()
    flat = g.add(Reshape((rows, depth)), x)
    chosen = g.add(Places(1, 1), g.add(MatMul(), flat, g.weights(depth, count)))
    index = g.add(Reshape((rows,)), chosen)
    order = None
    if g.choose(True, False):
        order = g.add(Places(0, rows, greatest=False), index)
        index = g.add(GatherElements(0), index, order)
        flat = g.add(Gather(0), flat, order)
    if g.chance(3):
        width = g.constant(np.float32((count - 1) / count))
        index = g.add(Cast(DType.I64), g.add(Binary("div"), g.add(Cast(DType.F32), index), width))
        index = g.add(Binary("min"), index, g.constant(np.int64(count - 1)))
    stack = g.weights(count, columns, depth, of=depth) if turned else g.weights(count, depth, columns, of=depth)
    if g.chance():
        lines, matrices = g.add(Reshape((rows, 1, depth)), flat), g.add(Gather(0), stack, index)
        return _put_back(g, g.add(MatMul(transpose_b=turned), lines, matrices), (images, length, columns), order)
    every = g.add(MatMul(transpose_b=turned), g.add(Reshape((1, rows, depth)), flat), stack)
    behind = g.add(Binary("mul"), index, g.constant(np.int64(rows)))
    place = g.add(Binary("add"), behind, g.constant(np.arange(rows)))
    made = g.add(Gather(0), g.add(Reshape((count * rows, columns)), every), place)
    return _put_back(g, made, (images, length, columns), order)


def _put_back(g: Growing, rows: str, shape: tuple[int, int, int], order: str | None) -> str:
    """Rows of all images, in the order in which they were before they were sorted."""
    images, length, columns = shape
    made = g.add(Reshape((images * length, columns)), rows)
    if order is not None and g.choose(True, False):
        made = g.add(Gather(0), made, g.add(Places(0, images * length, greatest=False), order))
    return g.add(Reshape(shape), made)


def differences(g: Growing) -> str:
    """Differential attention: the difference of two softmaxes, parts of one whose heads are pairs or halves, or each by
    itself; each head of what it leaves may be normalised. An activation may come behind the move of heads."""
    x = g.tensor(3)
    images, rows, width = g.shape(x)
    heads, depth, way = g.choose(1, 2, 3), g.choose(4, 2, 3), g.choose("pairs", "halves", "apart")

    def moved(count: int, extent: int) -> str:
        made = g.add(MatMul(), x, g.weights(width, count * extent))
        made = g.add(Transpose((0, 2, 1, 3)), g.add(Reshape((images, rows, count, extent)), made))
        return g.add(Activation(g.choose("relu", "tanh")), made) if g.chance(4) else made

    def shares(count: int, mask: str | None) -> str:
        scores = g.add(MatMul(transpose_b=True), moved(count, depth), moved(count, depth))
        scores = g.add(Binary("mul"), scores, g.scalar(depth**-0.5))
        return g.add(Softmax(3), scores if mask is None else g.add(Binary("add"), scores, mask))

    mask = g.weights(*g.choose((rows, rows), (1, 1, 1, rows))) if g.chance(3) else None
    if way == "apart":
        first, second = shares(heads, mask), shares(heads, mask)
    else:
        both = shares(2 * heads, mask)
        shape = (images, heads, rows, rows)
        if way == "pairs":
            cut = g.add(Reshape((images, heads, 2, rows, rows)), both)
            first, second = (g.add(Gather(2), cut, g.constant(np.int64(side))) for side in (0, 1))
        else:
            first, second = (g.add(Slice((0, side * heads, 0, 0), shape, (1, 1, 1, 1)), both) for side in (0, 1))
    factor = g.scalar(0.3) if g.chance() else g.weights(heads, 1, 1)
    left = g.add(Binary("sub"), first, g.add(Binary("mul"), *g.choose((second, factor), (factor, second))))
    made = g.add(MatMul(), left, moved(heads, 2 * depth))
    if g.chance():
        made = g.add(Norm("rms", (3,), 1e-5), made, g.weights(2 * depth))
    return g.add(Reshape((images, rows, heads * 2 * depth)), g.add(Transpose((0, 2, 1, 3)), made))


def balanced(g: Growing) -> str:
    """Positive numbers whose rows and columns are divided by their sums, in turns; sometimes one axis twice."""
    x = g.tensor(3)
    made = g.add(Activation("sigmoid"), x)
    axis, epsilon = g.choose(1, 2), g.constant(np.float32(g.choose(1e-3, 0.1)))
    for _ in range(g.choose(2, 3, 4, 5)):
        total = g.add(Reduce("sum", (axis,)), made)
        made = g.add(Binary("div"), made, g.add(Binary("add"), total, epsilon))
        axis = axis if g.chance(6) else 3 - axis
    return made


def of_pairs(g: Growing) -> str:
    """A product of what both ends of a pair have, and what the pair has; or what edges take of nodes."""
    x = g.tensor(3)
    images, rows, columns = g.shape(x)
    width = g.choose(1, columns, 2 * columns, 2 * columns + 1)
    if g.chance():
        which = g.constant(g.numbers(4 * rows).argsort() % rows)
        taken = g.add(Gather(1), x, which)
        beside = multiplied(g, taken, g.choose(1, 3))
        parts = g.choose((taken, beside), (beside, taken))
        count = columns + g.shape(beside)[-1]
        return g.add(MatMul(), g.add(Concat(2), *parts), g.weights(count, width, of=count))
    left = g.add(Expand((images, rows, rows, columns)), g.add(Reshape((images, rows, 1, columns)), x))
    right = g.add(Expand((images, rows, rows, columns)), g.add(Reshape((images, 1, rows, columns)), x))
    apart = g.add(Reduce("sum", (3,)), g.add(Binary("mul"), left, right))
    parts = g.choose((left, right, apart), (left, right), (apart, right), (apart, left, right))
    count = sum(g.shape(part)[-1] for part in parts)
    made = g.add(MatMul(), g.add(Concat(3), *parts), g.weights(count, width, of=count))
    return g.add(Reduce("mean", (2,), keepdims=False), made)


def recurrence(g: Growing) -> str:
    """A loop over tokens that an exporter unrolled: a state that decays, and what is read of it, in either direction.
    Now and then a step is not as the others are."""
    x = g.tensor(3)
    images, steps, width = g.shape(x)
    steps = min(steps, g.choose(6, 5, 7))
    states = g.choose(0, 3)  # of each element: a matrix, whose rows are weighed and added up
    rest = (images, width, states) if states else (images, width)
    decay = g.choose(activated(g, x), g.weights(1, g.shape(x)[1], width), g.weights(width, states) if states else x)
    weights = g.weights(images, g.shape(x)[1], max(states, 1))
    state, made = g.weights(*g.choose(rest, (1,) * len(rest))), list[str]()

    gathers = g.chance()

    def taken(value: str, step: int) -> str:
        """One place of the tokens, where the value has any."""
        shape = g.shape(value)
        if len(shape) < 3:
            return value
        if gathers:
            return g.add(Gather(1), value, g.constant(np.int64(step)))
        cut = g.add(Slice((0, step, 0), (shape[0], 1, shape[2]), (1, 1, 1)), value)
        return g.add(Reshape((shape[0], shape[2])), cut)

    order = range(steps) if g.chance() else range(steps - 1, -1, -1)
    odd = g.choose(*order) if g.chance(4) else -1
    whole = not g.chance(4)
    for step in order:
        factor, own = taken(decay, step), taken(x, step)
        if states:
            own = g.add(Reshape((images, width, 1)), own)
            if len(g.shape(factor)) == 2 and g.shape(factor) != (width, states):
                factor = g.add(Reshape((*g.shape(factor), 1)), factor)
        state = g.add(Binary("mul"), state, factor)
        state = g.add(Binary("max" if step == odd else "add"), state, own)
        if not whole and step != order[-1]:
            continue
        read = state
        if states:
            row = g.add(Reshape((images, 1, states)), taken(weights, step))
            read = g.add(Reduce("sum", (2,), keepdims=False), g.add(Binary("mul"), state, row))
        made.append(g.add(Reshape((images, 1, width)), read))
        if g.chance(40):
            activated(g, read)
    if order[0] != 0:
        made.reverse()
    return g.add(Concat(1), *made) if whole else activated(g, made[0])


def logarithms(g: Growing) -> str:
    """Of sums of exponentials, with the greatest element taken off or another one, and of shares."""
    x = g.tensor(2, 3, 4)
    axis = g.choose(g.rank(x) - 1, 0, 1)
    kept = g.choose(True, False)
    offset, less = g.add(Reduce(g.choose("max", "mean"), (axis,)), x), x
    shifted = g.choose(True, False)
    if shifted:
        less = g.add(Binary("sub"), x, offset)
    total = g.add(Activation("log"), g.add(Reduce("sum", (axis,), kept), g.add(Activation("exp"), less)))
    if shifted:
        shape = g.shape(total)
        total = g.add(Binary("add"), total, offset if kept else g.add(Reshape(shape), offset))
    if not g.chance():
        return total
    return g.add(Binary("sub"), x, total if kept else g.add(Reshape(g.shape(offset)), total))


def greatest(g: Growing) -> str:
    """1 at the first greatest element along an axis."""
    x = g.tensor(2, 3, 4)
    return g.add(Line("hardmax", g.choose(g.rank(x) - 1, 0, 1)), x)


SEQUENCES = (
    differences,
    over_channels,
    of_parts,
    with_positions,
    gated_end,
    by_rows_and_columns,
    substituted,
    balanced,
    of_pairs,
    latent_heads,
    experts,
    recurrence,
    logarithms,
    greatest,
)
