"""What rounding does to the result of each operator of ONNX: see `verify.rounding`."""

from __future__ import annotations

import functools
from math import prod

from onnx import NodeProto

from bolt_build.graph.onnx_import import importer_table
from bolt_build.verify.rounding import (
    partial_sums,
    quantised_rules,
    rounding_functions,
    rounding_moves,
    rounding_norms,
    small_weights,
)
from bolt_build.verify.rounding.alike import of_means, of_positions, of_shares, of_sums
from bolt_build.verify.rounding.rounding import FUNCTION, UNIT, Rule, Variance, Work, additions, measured
from bolt_build.verify.rounding.rounding_einsum import einsum
from bolt_build.verify.rounding.rounding_recurrent import recurrence


def _convolution(work: Work) -> Variance:
    weight = work.inputs[1]
    count = work.emit.quotient(work.emit.size(weight), work.emit.extent(weight, 0))
    return _of_windows(work, count, work.emit.extent(weight, 1), 1)


def _transposed_convolution(work: Work) -> Variance:
    """Of a window only every stride-th place meets an input."""
    emit, weight, attributes = work.emit, work.inputs[1], {each.name: each for each in work.node.attribute}
    channels = emit.scaled(emit.extent(weight, 0), 1.0 / work.integer("group", 1))
    if "kernel_shape" in attributes:
        extents = attributes["kernel_shape"].ints
        strides = attributes["strides"].ints if "strides" in attributes else [1] * len(extents)
        places = emit.constant(float(prod(-(-extent // step) for extent, step in zip(extents, strides, strict=True))))
    else:
        places = emit.quotient(emit.size(weight), emit.product(emit.extent(weight, 0), emit.extent(weight, 1)))
    return _of_windows(work, emit.product(channels, places), channels, 0)


def _of_windows(work: Work, count: str, channels: str, axis: int) -> Variance:
    """Sums of `count` products each, of so many `channels`, which the weight has along `axis`."""
    emit, (x, weight, *bias) = work.emit, work.inputs
    share = emit.sum(additions(work, count)[0], emit.constant(work.weight(1)))
    arriving, behind = _with_parts(work, 0, count)
    if work.variances[0] is not None:
        # One weight's error meets every position of the window: their errors add up as if they were one.
        window = emit.quotient(count, channels)
        arriving = emit.sum(arriving, emit.product(work.variances[0], emit.quotient(window, share)))
    inputs = [arriving, emit.product(emit.square(weight), share)]
    inputs += [emit.product(emit.square(name), share) for name in bias if name]
    small = small_weights.of_windows(work, count, 1 - axis)
    spread = work.plus(work.again(inputs), behind, partial_sums.of_windows(work, count, axis), small)
    of_weight, *of_bias = work.variances[1:]
    if of_weight is not None or any(of_bias):
        carried = [
            emit.zeros_like(name) if v is None else v
            for name, v in zip(work.inputs[1:], (of_weight, *of_bias), strict=True)
        ]
        spread = work.plus(spread, work.again([emit.square(x), *carried]))
    return work.summed(spread, count)


def _with_parts(work: Work, index: int, count: str) -> tuple[str, Variance]:
    """The squares of input `index` of a product, and the variance of what that is without the constants in it: an
    engine may move these behind the product, so that its sums are as large as what they then cancel."""
    emit, x = work.emit, work.inputs[index]
    if x not in work.apart or not work.roundings.once:
        return emit.square(x), None
    part = work.apart[x]()
    inputs = [part if each == index else name for each, name in enumerate(work.inputs[:2])]
    if work.node.op_type == "Gemm":
        inputs += map(emit.zeros_like, work.inputs[2:])
    own = emit.affine(count, work.roundings.addition / 3.0, work.roundings.result)
    return emit.sum(emit.square(x), emit.square(part)), emit.product(emit.square(work.again(inputs)), own)


def _product(work: Work) -> Variance:
    """MatMul, and Gemm with the squares of its scales."""
    emit, (a, b, *rest) = work.emit, work.inputs
    gemm = work.node.op_type == "Gemm"
    axis = (0 if work.integer("transA", 0) else 1) if gemm else -1
    count = emit.extent(a, axis)
    share = emit.sum(additions(work, count)[0], emit.constant(max(work.weight(0), work.weight(1))))
    scales = {"alpha": work.real("alpha", 1.0) ** 2, "beta": work.real("beta", 1.0) ** 2} if gemm else {}
    (a2, of_a), (b2, of_b) = (_with_parts(work, index, count) for index in (0, 1))
    addends = [emit.product(emit.square(name), share) for name in rest if name]
    spread = work.plus(work.again([a2, emit.product(b2, share), *addends], **scales), of_a, of_b)
    spread = work.plus(spread, partial_sums.of_rows(work, count, axis), small_weights.of_matrices(work, count))
    if work.means:
        spread = work.plus(spread, of_means(work, a, b))
    if work.variances[0] is not None:
        spread = work.plus(spread, work.again([work.variances[0], b2], **scales))
    if work.variances[1] is not None:
        # A weight's error is the same in all rows of b: a mean over many does not level it out.
        factors = a if work.means else a2
        spread = work.plus(spread, work.again([factors, work.variances[1]], **scales))
    if len(work.variances) > 2 and work.variances[2] is not None:
        spread = work.plus(spread, emit.scaled(work.variances[2], scales["beta"]))
    return work.summed(spread, count)


def _batch_norm(work: Work) -> Variance:
    """y = k x + (bias - k mean) with k = scale / sqrt(variance + epsilon): the same operator over squares."""
    emit, (x, scale, bias, mean, variance) = work.emit, work.inputs
    shifted = emit.sum(variance, emit.constant(work.real("epsilon", 1e-5)))
    factor = emit.quotient(scale, emit.add("Sqrt", [shifted]))
    zeros = emit.zeros_like(scale)
    work.apart[work.outputs[0]] = functools.cache(lambda: work.again([x, scale, zeros, zeros, variance]))
    offset = emit.sum(emit.square(bias), emit.square(emit.product(mean, factor)))
    each = work.roundings.weight + work.roundings.result
    # An engine may begin the sum before with the offset: then every addition rounds what is as large as that.
    factors = emit.constant(each)
    for count in work.counts[-1:]:
        factors = emit.affine(count, work.roundings.addition / 3.0, each)
    variance_in = work.variances[0]
    arriving = emit.scaled(emit.square(x), each) if variance_in is None else variance_in
    inputs = [arriving, emit.square(scale), emit.product(offset, factors), emit.zeros_like(scale), emit.square(shifted)]
    spread = work.plus(work.again(inputs, epsilon=0.0), small_weights.behind_scale(work))
    return work.between(work.kept(spread))


def _sum(work: Work) -> Variance:
    """Add, Sub and Sum. What masks is not stored in parts: of two masks together each is as the model has it."""
    fixed = [work.storing(name) for index, name in enumerate(work.inputs) if work.fixed[index]]
    spread = work.plus(*work.variances, *fixed)
    if fixed or any(name in work.apart for name in work.inputs):
        work.apart[work.outputs[0]] = functools.cache(
            lambda: work.again([*map(work.without_constants, range(len(work.inputs)))])
        )
    if work.roundings.once and any(variance is not None for variance in work.variances):
        # A chain of sums may come to much less than one on the way, so that the end's own rounding is not the largest.
        return work.rounded(spread, work.roundings.addition)
    if work.roundings.once and spread is not None:  # of constants alone, which may have fewer axes than the sum
        spread = work.emit.sum(spread, work.emit.zeros_like(work.outputs[0]))
    return work.kept(spread)


def _times(work: Work) -> Variance:
    emit, (a, b), (va, vb) = work.emit, work.inputs, work.variances
    terms = [emit.product(emit.square(b), va) if va is not None else None]
    terms.append(emit.product(emit.square(a), vb) if vb is not None else None)
    scales = list(work.fixed).count(True) == 1
    if scales:
        moving = list(work.fixed).index(False)
        work.keep_apart(moving)
        terms.append(small_weights.behind_scale(work, moving))
    spread = work.rounded(work.plus(*terms), work.roundings.result + work.weight(0) + work.weight(1))
    return work.between(spread) if scales else spread


def _divided(work: Work) -> Variance:
    emit, b, (va, vb) = work.emit, work.inputs[1], work.variances
    above = work.plus(va, emit.product(emit.square(work.outputs[0]), vb) if vb is not None else None)
    carried = None if above is None else emit.quotient(above, emit.square(b))
    if work.fixed[1]:
        work.keep_apart()
        carried = work.plus(carried, small_weights.behind_scale(work))
    spread = work.rounded(carried, work.roundings.result + work.weight(0) + work.weight(1))
    return work.between(spread) if work.fixed[1] else spread


def _power(work: Work) -> Variance:
    """x^p: p x^(p-1) dx where p is constant."""
    emit, (x, exponent) = work.emit, work.inputs
    if not work.fixed[1]:
        return measured(work)
    carried = None
    if work.variances[0] is not None:
        slope = emit.product(exponent, emit.add("Pow", [emit.add("Abs", [x]), emit.affine(exponent, 1.0, -1.0)]))
        carried = emit.product(emit.square(slope), work.variances[0])
    return work.rounded(carried, work.roundings.result + FUNCTION)


def _root(work: Work) -> Variance:
    """sqrt(x + d) is off by d / 2y, and by sqrt(d) at most."""
    emit, variance = work.emit, work.variances[0]
    if variance is None:
        return work.rounded(None, work.roundings.result)
    slope = emit.scaled(emit.square(work.outputs[0]), 4.0)
    least = emit.affine(emit.scaled(emit.add("Sqrt", [variance]), UNIT), 1.0, 1e-30)
    return work.rounded(emit.quotient(variance, emit.sum(slope, least)), work.roundings.result)


def _reciprocal(work: Work) -> Variance:
    squared = work.emit.square(work.outputs[0])
    variance = work.variances[0]
    carried = None if variance is None else work.emit.product(work.emit.square(squared), variance)
    return work.rounded(carried, work.roundings.result)


def _exponential(work: Work) -> Variance:
    """The argument's rounding is relative to the result. Of a masked one that is 0, whatever the argument's is."""
    emit = work.emit
    relative = work.plus(emit.square(work.inputs[0]), work.variances[0])
    assert relative is not None
    relative = emit.add("Min", [emit.affine(relative, 1.0, FUNCTION + work.roundings.result), emit.constant(_MASKED)])
    return emit.product(emit.square(work.outputs[0]), relative)


_MASKED = 1e30
"""The largest relative variance of a power that is carried on."""


def _softmax(work: Work) -> Variance:
    """Each power is off by its argument's error: y_i (d_i - sum y_j d_j). Below opset 13 over all axes from one on."""
    emit, x, y, variance = work.emit, work.inputs[0], work.outputs[0], work.variances[0]
    axis = work.integer("axis", 1 if emit.opset < 13 else -1)
    coerced = emit.opset < 13
    if coerced:
        shape = emit.add("Shape", [y])
        x, y = emit.flat(x, axis), emit.flat(y, axis)
        variance = None if variance is None else emit.flat(variance, axis)
        axis = 1
    below = emit.add("Sub", [x, emit.reduce("ReduceMax", x, [axis])])
    argument = emit.scaled(emit.square(below), work.roundings.result)
    relative = argument if variance is None else emit.sum(argument, variance)
    # A masked argument may be off by anything: its power is zero, which times infinity would not be.
    relative = emit.add("Min", [emit.affine(relative, 1.0, FUNCTION), emit.constant(_MASKED)])
    mean = emit.reduce("ReduceSum", emit.product(y, relative), [axis])
    arguments = emit.add("Min", [emit.sum(relative, mean), _of_a_large_share(work, y, below, relative, axis)])
    total = emit.sum(arguments, of_shares(work, y, axis)[1])
    spread = emit.product(emit.square(y), emit.affine(total, 1.0, work.roundings.result))
    spread = emit.add("Min", [spread, emit.constant(UNIT**-2)])  # no share is off by more than all
    return emit.add("Reshape", [spread, shape]) if coerced else spread


def _of_a_large_share(work: Work, y: str, below: str, relative: str, axis: int) -> str:
    """What arguments' errors do to a share of more than a half: its own moves it by y (1 - y) alone, and so do the
    others', of which no more than that is left. `below` are the arguments less the largest, `relative` their variances.

    The rest is at most as many powers as there are arguments, each of the distance to the second largest less six
    deviations of both. So rows whose arguments are off by much more than 1 are judged where distances are larger still.
    For smaller shares the result is no less than what errors do to any."""
    emit = work.emit
    own = emit.add("Where", [emit.add("Less", [relative, emit.constant(_MASKED)]), relative, emit.zeros_like(relative)])
    most = emit.reduce("ReduceMax", own, [axis])
    apart = emit.add("Less", [below, emit.constant(0.0)])
    second = emit.reduce("ReduceMax", emit.add("Where", [apart, below, emit.constant(-_MASKED)]), [axis])
    nearest = emit.sum(second, emit.scaled(emit.add("Sqrt", [most]), 12.0 * UNIT))
    power = emit.add("Exp", [emit.add("Min", [nearest, emit.constant(0.0)])])
    left = emit.add("Min", [emit.product(power, emit.extent(y, axis)), emit.constant(1.0)])
    large = emit.add("Greater", [y, emit.constant(0.5)])
    rest = emit.add("Where", [large, left, emit.constant(1.0)])
    return emit.product(emit.scaled(emit.square(rest), 2.0), emit.sum(own, most))


def _mean(work: Work) -> Variance:
    """Means: of fully dependent errors, for those of neighbours often are."""
    return _averaged(work, of_positions(work, _extent(work)))


def _window_mean(work: Work) -> Variance:
    count = 1
    for attribute in work.node.attribute:
        if attribute.name == "kernel_shape":
            for extent in attribute.ints:
                count *= extent
    emit = work.emit
    size, number = work.again([emit.add("Abs", [work.inputs[0]])]), emit.constant(float(count))
    return _averaged(work, emit.product(emit.square(size), of_sums(work, number, number)))


def _averaged(work: Work, own: str) -> Variance:
    arriving = None if work.variances[0] is None else work.again([work.variances[0], *work.inputs[1:]])
    return work.rounded(work.plus(own, arriving), work.roundings.result)


def _total(work: Work) -> Variance:
    """ReduceSum, likewise."""
    count, variance = _extent(work), work.variances[0]
    own = of_positions(work, count)
    if variance is None:
        return own
    return work.plus(own, work.emit.product(work.again([variance, *work.inputs[1:]]), count))


def _extent(work: Work) -> str:
    """Of how many numbers each result of a reduction is made."""
    return work.emit.quotient(work.emit.size(work.inputs[0]), work.emit.size(work.outputs[0]))


RULES: dict[str, Rule] = {
    "Conv": _convolution, "ConvTranspose": _transposed_convolution, "MatMul": _product, "Gemm": _product,
    "Einsum": einsum, "BatchNormalization": _batch_norm, "Add": _sum, "Sub": _sum, "Sum": _sum, "Mul": _times,
    "Div": _divided, "Pow": _power, "Sqrt": _root, "Reciprocal": _reciprocal, "Exp": _exponential, "Softmax": _softmax,
    "ReduceMean": _mean, "GlobalAveragePool": _mean, "AveragePool": _window_mean, "ReduceSum": _total,
    **rounding_functions.RULES, **rounding_norms.RULES, **rounding_moves.RULES, **quantised_rules.RULES,
}  # fmt: skip
"""By operator of ONNX's own domain; Split, whose outputs are many, is its segment's."""
RECURRENT = ("LSTM", "GRU", "RNN")
"""Operators whose outputs are all those of one recurrence."""


@functools.cache
def _movers() -> frozenset[str]:
    """ONNX's own operators whose importers say that they only move elements."""
    found = importer_table().importers()
    return frozenset(importer.op_type for importer in found if importer.moves and not importer.domain)


def is_exact(node: NodeProto) -> bool:
    """Whether the node rounds nothing."""
    return node.domain in ("", "ai.onnx") and (node.op_type in rounding_moves.EXACT or node.op_type in _movers())


_IN_PROPORTION = ("Mul", "Div", "Relu", "LeakyRelu", "PRelu", "Abs", "Neg", "BatchNormalization")
"""Operators whose results are off by the same part of themselves as an input was, or look at that themselves."""
_OF_INTEGERS = ("DequantizeLinear", "QLinear", "QGemm", "ConvInteger", "MatMulInteger")
"""How operators begin that take integers, whose variances are in steps."""


def in_proportion(node: NodeProto) -> bool:
    """Whether roundings that are relative to the node's inputs, if there are any, are so to its results."""
    own = node.domain in ("", "ai.onnx")
    return is_exact(node) or (own and node.op_type in _IN_PROPORTION) or node.op_type.startswith(_OF_INTEGERS)


def variances_of(work: Work) -> tuple[Variance, ...]:
    """The variance of each of the node's outputs, by the operator's rule.

    Without one, what only moves elements is exact, and any other operator is `measured`, as are outputs behind the
    first: a new operator needs nothing here to be verified.
    """
    node = work.node
    if node.op_type == "DynamicQuantizeLinear":
        return quantised_rules.dynamic(work)[: len(work.outputs)]
    if node.op_type in RECURRENT and node.domain in ("", "ai.onnx"):
        return tuple(recurrence(work, output) if name else None for output, name in enumerate(work.outputs))
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if node.domain == "com.microsoft":
        rule = quantised_rules.OF_CONTRIB.get(node.op_type)
    if rule is None and is_exact(node):
        rule = rounding_moves.moved
    first: Variance = None
    if work.outputs[0]:
        first = measured(work) if rule is None else rule(work)
        small_weights.carry(work)
    rest = range(1, len(work.outputs))
    return (first, *(measured(work, output) if work.outputs[output] else None for output in rest))
