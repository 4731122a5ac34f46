"""What computes in a mixed graph: functions of elements, reductions, products, windows, norms, attention, recurrence.
Each function draws one node, or the few that exporters write for one thing."""

from __future__ import annotations

import math

import numpy as np
from mixed_graphs import Dropped, Growing, Value
from onnx import TensorProto

SMOOTH = (
    "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "HardSwish", "HardSigmoid", "Elu", "Selu", "Celu",
    "Mish", "Sin", "Cos", "ThresholdedRelu", "Gelu", "Atan",
)  # fmt: skip


def function(g: Growing) -> None:
    kind = g.choose("smooth", "smooth", "exact", "positive", "exponential")
    if kind == "smooth":
        g.node(g.choose(*SMOOTH), g.floats())
    elif kind == "exact":
        op = g.choose("Relu", "Neg", "Abs", "Identity", "Clip")
        bounds = (g.choose("", g.scalar(-0.5)), g.scalar(0.7)) if op == "Clip" else ()
        g.node(op, g.floats(), *bounds, exact=True)
    elif kind == "positive":
        positive = g.node("Add", g.node("Abs", g.floats(), exact=True), g.scalar(0.5))
        g.node(g.choose("Sqrt", "Log", "Reciprocal"), positive)
    else:
        g.node("Exp", g.node("Clip", g.floats(), g.scalar(-5), g.scalar(3)))


def decision(g: Growing) -> None:
    """What of a value that is rounded could come out either way."""
    x = g.floats(exact=True)
    axis = g.integer(-x.rank, x.rank - 1) if x.rank else 0
    match g.choose("round", "cast", "byte", "place", "top", "compare", "compare"):
        case "round":
            g.node(g.choose("Floor", "Ceil", "Round", "Sign", "IsNaN"), x, exact=True)
        case "cast":
            g.node("Cast", x, exact=True, to=g.choose(TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
        case "byte":
            g.node("Cast", g.node("Clip", x, g.scalar(0), g.scalar(200), exact=True), exact=True, to=TensorProto.UINT8)
        case "place" if x.rank:
            op, last = g.choose("ArgMax", "ArgMin"), g.choose(0, 0, 1)
            g.node(op, x, exact=True, axis=axis, keepdims=g.choose(0, 1), select_last_index=last)
        case "top" if x.rank:
            count = g.integers(g.integer(1, x.shape[axis]))
            g.split("TopK", 2, x, count, exact=True, axis=axis, largest=g.choose(0, 1))
        case _:
            pair = [x, g.beside(x, exact=True)]
            g.random.shuffle(pair)
            op = g.choose("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")
            g.node(op, *pair, exact=True)


def arithmetic(g: Growing) -> None:
    x = g.floats()
    op = g.choose("Add", "Add", "Mul", "Mul", "Sub", "Max", "Min", "Div", "Sum", "Mean", "Pow")
    if op == "Pow":
        g.node(op, x, g.constant(g.choose(np.float32(2), np.float32(3), np.asarray([2]))))
        return
    operands = [x, g.beside(x)]
    if op == "Div":
        operands[1] = g.node("Add", g.node("Abs", operands[1], exact=True), g.scalar(0.5))
    elif g.chance(0.4):
        g.random.shuffle(operands)
    if op in ("Sum", "Mean", "Max", "Min") and g.chance(0.4):
        operands.append(g.beside(x))
    g.node(op, *operands, exact=op in ("Max", "Min"))


def whole_numbers(g: Growing) -> None:
    x = g.one_of(value for value in g.values if value.array.dtype in (np.int64, np.int32, np.uint8))
    match op := g.choose(
        "Add", "Mul", "Sub", "Max", "Mod", "Div", "Equal", "Greater", "Cast", "Abs", "Reduce", "Reduce"
    ):
        case "Cast":
            kinds = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL, TensorProto.INT64
            g.node(op, x, exact=True, to=g.choose(*kinds))
        case "Abs":
            g.node(op, x, exact=True)
        case "Reduce":
            _reduce(g, x, g.choose("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"))
        case "Mod" | "Div":
            g.node(op, x, g.constant(g.filled(g.broadcastable(x.shape), x.array.dtype)), exact=True)
        case _:
            g.node(op, x, g.beside(x, exact=True), exact=True)


def logic(g: Growing) -> None:
    x = g.one_of(value for value in g.values if value.array.dtype == np.bool_)
    match op := g.choose("Not", "And", "Or", "Xor", "Where", "Where", "Where", "Cast"):
        case "Not":
            g.node(op, x, exact=True)
        case "Cast":
            g.node(op, x, exact=True, to=g.choose(TensorProto.FLOAT, TensorProto.INT64))
        case "Where":
            either = g.floats()
            both = [either, g.beside(either)]
            g.random.shuffle(both)
            g.node(op, x, *both, exact=True)
        case _:
            g.node(op, x, g.beside(x), exact=True)


def _reduce(g: Growing, x: Value, op: str) -> Value:
    if not x.rank:
        raise Dropped
    axes = g.random.sample(range(x.rank), g.integer(1, x.rank))
    axes = [axis - x.rank if g.chance(0.3) else axis for axis in axes]
    exact, keep = op in ("ReduceMax", "ReduceMin") or not x.is_float, g.choose(0, 1)
    if op == "ReduceSum" or g.opset >= 18:
        return g.node(op, x, g.integers(*axes), exact=exact, keepdims=keep)
    return g.node(op, x, exact=exact, keepdims=keep, axes=axes)


def reduction(g: Growing) -> None:
    op = g.choose(
        "ReduceSum", "ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
        "ReduceSumSquare", "ReduceProd", "CumSum", "GlobalAveragePool", "GlobalMaxPool",
    )  # fmt: skip
    if op.startswith("Global"):
        g.node(op, g.floats(3, 4, 5))
    elif op == "CumSum":
        x = g.floats(1, 2, 3, 4)
        axis = g.constant(np.asarray(g.integer(-x.rank, x.rank - 1)))
        g.node(op, x, axis, exclusive=g.choose(0, 1), reverse=g.choose(0, 1))
    else:
        _reduce(g, g.floats(), op)


def softmax(g: Growing) -> None:
    x = g.floats(1, 2, 3, 4, 5)
    g.node(g.choose("Softmax", "Softmax", "LogSoftmax"), x, axis=g.integer(-x.rank, x.rank - 1))


def row_norm(g: Growing) -> None:
    """LayerNorm as one operator, and LayerNorm or RMSNorm written out."""
    x = g.floats(2, 3, 4)
    if x.shape[-1] < 3:
        raise Dropped
    if g.chance(0.4):
        axis = g.integer(1, x.rank - 1)
        factors = [g.weights(*x.shape[axis:]) for _ in range(g.choose(1, 2, 2))]
        g.node("LayerNormalization", x, *factors, axis=g.choose(axis, axis - x.rank))
        return

    def mean(value: Value) -> Value:
        if g.opset >= 18:
            return g.node("ReduceMean", value, g.integers(-1))
        return g.node("ReduceMean", value, axes=[-1])

    centred = g.node("Sub", x, mean(x)) if g.chance(0.5) else x
    square = g.node("Pow", centred, g.scalar(2)) if g.chance(0.5) else g.node("Mul", centred, centred)
    root = g.node("Sqrt", g.node("Add", mean(square), g.scalar(1e-5)))
    made = g.node("Div", centred, root) if g.chance(0.6) else g.node("Mul", centred, g.node("Reciprocal", root))
    scaled = [made, g.weights(x.shape[-1])]
    g.random.shuffle(scaled)
    made = g.node("Mul", *scaled)
    if g.chance(0.7):
        g.node("Add", made, g.weights(x.shape[-1]))


def channel_norm(g: Growing) -> None:
    x = g.floats(3, 4, 5)
    channels, ones = x.shape[1], [1] * (x.rank - 2)
    op = g.choose("BatchNormalization", "InstanceNormalization", "GroupNorm", "LpNormalization", "LRN", "MeanVariance")
    if op != "BatchNormalization" and math.prod(x.shape[2:]) < 3:
        raise Dropped
    match op:
        case "BatchNormalization":
            batch_norm(g, x)
        case "InstanceNormalization":
            g.node(op, x, g.weights(channels), g.weights(channels), epsilon=1e-3)
        case "GroupNorm":
            groups = g.choose(*(count for count in range(1, channels + 1) if channels % count == 0))
            rows = g.node("Reshape", x, g.integers(0, groups, -1), exact=True)
            unit = g.constant(np.ones(groups, np.float32)), g.constant(np.zeros(groups, np.float32))
            rows = g.node("InstanceNormalization", rows, *unit, epsilon=1e-3)
            made = g.node("Reshape", rows, g.integers(*x.shape))
            made = g.node("Mul", made, g.weights(channels, *ones))
            g.node("Add", made, g.weights(channels, *ones))
        case "LpNormalization":
            g.node(op, x, axis=g.integer(0, x.rank - 1), p=g.choose(1, 2))
        case "LRN":
            g.node(op, x, size=g.choose(1, 3, 5))
        case _:
            g.node("MeanVarianceNormalization", x, axes=[0, *range(2, x.rank)])


def batch_norm(g: Growing, x: Value) -> Value:
    channels = x.shape[1]
    return g.node("BatchNormalization", x, *(g.weights(channels) for _ in range(3)), g.factors(channels))


def product(g: Growing) -> None:
    x, count = g.floats(2, 3, 4), g.choose(1, 3, 4, 8, 8, 16, 24)
    depth = x.shape[-1]
    match g.choose("layer", "layer", "layer", "gemm", "two tensors", "A operand", "einsum"):
        case "layer":
            made = g.node("MatMul", x, g.weights(depth, count, of=depth))
            if g.chance(0.6):
                pair = [made, g.weights(count)]
                g.random.shuffle(pair)
                made = g.node("Add", *pair)
            if g.chance(0.4):
                g.node(g.choose("Relu", "Gelu", "Sigmoid", "Tanh"), made)
        case "gemm":
            x = g.floats(2)
            rows, depth, turned = *x.shape, g.choose(0, 1)
            right = g.weights(*((count, depth) if turned else (depth, count)), of=depth)
            added = g.choose((), (count,), (rows, count), (1,), (rows, 1))
            third = [g.weights(*added)] if added else []
            g.node("Gemm", x, right, *third, transB=turned, alpha=g.choose(1.0, 0.5), beta=g.choose(1.0, 0.3))
        case "two tensors":
            fitting = [
                value for value in g.values
                if value.is_float and value.rank == x.rank and value.shape[-2] == depth and value is not x
            ]  # fmt: skip
            turned_axes = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
            g.node("MatMul", x, g.choose(*fitting) if fitting else g.node("Transpose", x, perm=turned_axes))
        case "A operand":
            g.node("MatMul", g.weights(count, x.shape[-2], of=x.shape[-2]), x)
        case _:
            _einsum(g, count)


def _einsum(g: Growing, count: int) -> None:
    equation = g.choose(
        "bij,jk->bik", "bij,bkj->bik", "bij->bji", "bij,bij->bi", "bij,bik->bjk", "bij,j->bi", "bij,bij->b"
    )
    x = g.floats(3)
    extents = {**dict(zip("bij", x.shape, strict=True)), "k": count}
    others = equation.split("->")[0].split(",")[1:]
    g.node("Einsum", x, *(g.weights(*(extents[axis] for axis in axes), of=6) for axes in others), equation=equation)


def convolution(g: Growing) -> None:
    x = g.floats(3, 4, 4, 4, 5)
    axes, channels = x.rank - 2, x.shape[1]
    kernel = [g.choose(1, 1, 2, 3, 3, 5) for _ in range(axes)]
    if g.chance(0.5):
        kernel = kernel[:1] * axes
    pads = [g.integer(0, extent // 2 + (extent > 1)) for extent in kernel * 2]
    groups = g.choose(1, 1, 1, channels, *(count for count in range(1, channels + 1) if channels % count == 0))
    filters = groups * g.choose(1, 1, 2, 3, 4, 8) if groups > 1 else g.choose(1, 3, 4, 8, 8, 12, 16)
    window = {
        "kernel_shape": kernel, "group": groups, "strides": [g.choose(1, 1, 1, 2, 3) for _ in kernel],
        "dilations": [g.choose(1, 1, 1, 2) for _ in kernel],
    }  # fmt: skip
    size = channels // groups * math.prod(kernel)
    if g.chance(0.2):
        weights = g.weights(channels, filters // groups, *kernel, of=size)
        bias = [g.weights(filters)] if g.chance(0.6) else []
        made = g.node("ConvTranspose", x, weights, *bias, pads=pads, **window)
    else:
        bias = [g.weights(filters)] if g.chance(0.6) else []
        if g.chance(0.2):
            window |= {"auto_pad": g.choose("SAME_UPPER", "SAME_LOWER", "VALID"), "dilations": [1] * axes}
        else:
            window["pads"] = pads
        made = g.node("Conv", x, g.weights(filters, channels // groups, *kernel, of=size), *bias, **window)
    _behind_a_convolution(g, made)


def _behind_a_convolution(g: Growing, made: Value) -> None:
    if g.chance(0.2):
        made = batch_norm(g, made)
    match g.choose("nothing", "activation", "activation", "swish", "squeeze"):
        case "activation":
            g.node(g.choose("Relu", "Sigmoid", "HardSwish", "LeakyRelu"), made)
        case "swish":
            g.node("Mul", made, g.node("Sigmoid", made))
        case "squeeze":
            channels, ones = made.shape[1], [1] * (made.rank - 2)
            fewer = max(1, channels // 2)
            gate = g.node("GlobalAveragePool", made)
            gate = g.node("Relu", g.node("Conv", gate, g.weights(fewer, channels, *ones, of=channels)))
            gate = g.node("Sigmoid", g.node("Conv", gate, g.weights(channels, fewer, *ones, of=fewer)))
            pair = [made, gate]
            g.random.shuffle(pair)
            g.node("Mul", *pair)


def pooling(g: Growing) -> None:
    x = g.floats(3, 4, 4, 5)
    kernel = [g.choose(1, 2, 3, 3) for _ in range(x.rank - 2)]
    pads = [g.integer(0, extent - 1) for extent in kernel * 2]
    extents = [extent + pads[i] + pads[i + len(kernel)] for i, extent in enumerate(x.shape[2:])]
    if any(size > extent for size, extent in zip(kernel, extents, strict=True)):
        raise Dropped  # onnxruntime takes windows that fit nowhere
    window = {"kernel_shape": kernel, "strides": [g.choose(1, 1, 2, 3) for _ in kernel], "pads": pads}
    op = g.choose("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool")
    if op != "LpPool":
        window["ceil_mode"] = g.choose(0, 0, 1)
    if op == "AveragePool":
        window["count_include_pad"] = g.choose(0, 1)
    g.node(op, x, exact=op == "MaxPool", **window)


def attention(g: Growing) -> None:
    """Heads of a token mixer, its scale, bias and mask wherever exporters put them."""
    x = g.floats(3)
    batch, _, width = x.shape
    heads, extent, biased = g.choose(1, 2, 4), g.choose(2, 4, 8), g.chance(0.6)
    others = [v for v in g.values if v.is_float and v.rank == 3 and v.shape[0] == batch and v.shape[2] == width]
    memory = g.choose(*others) if g.chance(0.3) else x

    def projected(source: Value, *order: int) -> Value:
        made = g.node("MatMul", source, g.weights(width, heads * extent, of=width))
        if biased:
            made = g.node("Add", made, g.weights(heads * extent))
        return g.node("Transpose", g.node("Reshape", made, g.integers(batch, -1, heads, extent)), perm=list(order))

    query, key, value = projected(x, 0, 2, 1, 3), projected(memory, 0, 2, 3, 1), projected(memory, 0, 2, 1, 3)
    scaled = g.choose("query", "key", "scores", "quotient", "nothing")
    if scaled == "query":
        query = g.node("Mul", query, g.scalar(extent**-0.5))
    if scaled == "key":
        key = g.node("Mul", key, g.scalar(extent**-0.5))
    scores = g.node("MatMul", query, key)
    if scaled in ("scores", "quotient"):
        op, factor = ("Mul", extent**-0.5) if scaled == "scores" else ("Div", extent**0.5)
        scores = g.node(op, scores, g.scalar(factor))
    scores = _masked(g, scores)
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    rows = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), g.integers(batch, -1, heads * extent))
    made = g.node("MatMul", rows, g.weights(heads * extent, width, of=width))
    if made.shape == x.shape and g.chance(0.7):
        g.node("Add", x, made)


def _masked(g: Growing, scores: Value) -> Value:
    batch, heads, queries, keys = scores.shape
    later = np.triu(np.ones((queries, keys), np.bool_), 1)
    match g.choose("none", "none", "bias", "where", "sum"):
        case "bias":
            shapes = (1, 1, queries, keys), (heads, queries, keys), (batch, 1, 1, keys), (queries, keys)
            return g.node("Add", scores, g.weights(*g.choose(*shapes)))
        case "where":
            return g.node("Where", g.constant(~later), scores, g.scalar(-1e4))
        case "sum":
            return g.node("Add", scores, g.constant(np.where(later, np.float32(-1e4), np.float32(0))))
    return scores


def recurrence(g: Growing) -> None:
    x = g.floats(3)
    hidden, (op, gates) = g.choose(2, 4, 8), g.choose(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    direction = g.choose("forward", "reverse", "bidirectional")
    if x.shape[0] > 6:
        raise Dropped
    ways = 2 if direction == "bidirectional" else 1
    settings = {"linear_before_reset": g.choose(0, 1)} if op == "GRU" else {}
    shapes = [(ways, gates * hidden, x.shape[2]), (ways, gates * hidden, hidden)]
    if g.chance(0.5):
        shapes.append((ways, 2 * gates * hidden))
    operands = (g.weights(*shape, of=4) for shape in shapes)
    g.split(op, 2, x, *operands, hidden_size=hidden, direction=direction, **settings)


def quantised(g: Growing) -> None:
    zero = g.constant(g.choose(np.uint8(g.integer(0, 255)), np.int8(0)))
    scale = g.scalar(0.037)
    g.node("DequantizeLinear", g.node("QuantizeLinear", g.floats(exact=True), scale, zero), scale, zero)


NODES = (
    *[function] * 6, *[decision] * 3, *[arithmetic] * 8, *[whole_numbers] * 2, *[logic] * 2, *[reduction] * 4,
    *[softmax] * 3, *[row_norm] * 2, *[channel_norm] * 2, *[product] * 5, *[convolution] * 7, *[pooling] * 3,
    *[attention] * 3, recurrence, quantised,
)  # fmt: skip
"""As often as each is drawn."""
