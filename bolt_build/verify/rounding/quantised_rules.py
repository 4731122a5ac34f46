"""What rounding does to quantised tensors: nothing, but where a number lies near the border between two integers.

There its own rounding decides which of both it becomes. So an integer's variance is that of a step where `REACH`
standard deviations of the number in front of it reach another integer, and zero elsewhere: an engine may be a step off
at a border, and nowhere else. Variances of integers are in their steps, and in units of UNIT^2 as all others are.
"""

from __future__ import annotations

from onnx import TensorProto, helper

from bolt_build.verify.rounding.rounding import FUNCTION, UNIT, Rule, Variance, Work, additions, measured

REACH = 6.0
"""Standard deviations that a rounding error is below: the largest of a hundred million is some 6."""
OWN = 4.0
"""Variance of the few operations in fp32 that make a number of steps: quotients and products, on both sides."""


def steps(work: Work, number: str, variance: Variance) -> Variance:
    """The variance of `number`, in steps, once it is rounded to an integer, where it had `variance` before."""
    emit = work.emit
    own = emit.scaled(emit.square(number), OWN)
    total = own if variance is None else emit.sum(own, variance)
    reach = emit.scaled(emit.add("Sqrt", [total]), REACH * UNIT)
    # Opset 10 has no Round; borders lie where it says, too.
    middle = emit.affine(number, 1.0, 0.5)
    above = emit.add("Floor", [emit.sum(middle, reach)])
    below = emit.add("Floor", [emit.add("Sub", [middle, reach])])
    reached = emit.add("Min", [emit.add("Sub", [above, below]), emit.constant(1.0)])
    # A step at a border, and where errors are larger than steps, those too.
    return emit.product(reached, emit.affine(total, 1.0, 1.0 / UNIT**2))


def spread_scale(work: Work, like: str, scale: str) -> str:
    """The scale of each element of an integer tensor `like`, by the node's own axis and blocks."""
    emit = work.emit
    one = emit.add("Cast", [emit.affine(emit.zeros_like(like), 1.0, 1.0)], to=TensorProto.INT8)
    kept = {a.name for a in work.node.attribute} & {"axis", "block_size"}
    attributes = {a.name: a.i for a in work.node.attribute if a.name in kept}
    return emit.add("DequantizeLinear", [one, scale], **attributes)


def quantised(work: Work) -> Variance:
    """QuantizeLinear: exact of what is exact."""
    if work.variances[0] is None and work.variances[1] is None:
        return None
    emit, scale = work.emit, spread_scale(work, work.inputs[0], work.inputs[1])
    number = emit.quotient(work.inputs[0], scale)
    carried = None if work.variances[0] is None else emit.quotient(work.variances[0], emit.square(scale))
    if work.variances[1] is not None:
        relative = emit.quotient(work.variances[1], emit.square(scale))
        carried = work.plus(carried, emit.product(emit.square(number), relative))
    return steps(work, number, carried)


def dequantised(work: Work) -> Variance:
    """DequantizeLinear: an integer's steps, each as large as the scale."""
    emit, variance = work.emit, work.variances[0]
    carried = None
    if variance is not None:
        carried = emit.product(variance, emit.square(spread_scale(work, work.inputs[0], work.inputs[1])))
    return work.rounded(carried, work.roundings.result)


def dynamic(work: Work) -> tuple[Variance, Variance, Variance]:
    """DynamicQuantizeLinear: its scale, of the two numbers at the ends of the range, is off by both their errors."""
    emit, x, arriving = work.emit, work.inputs[0], work.variances[0]
    if len(work.outputs) < 3 or not all(work.outputs):
        return (None, None, None)  # no exporter leaves one out
    scale = work.outputs[1]
    if arriving is None:
        return None, work.rounded(None, work.roundings.result, 1), None
    largest = emit.add("ReduceMax", [arriving], keepdims=0)
    of_scale = work.rounded(emit.scaled(largest, 2.0 / 255.0**2), work.roundings.result, 1)
    assert of_scale is not None
    number = emit.quotient(x, scale)
    relative = emit.quotient(of_scale, emit.square(scale))
    carried = emit.sum(
        emit.quotient(arriving, emit.square(scale)),
        emit.product(emit.affine(emit.square(number), 1.0, 255.0**2), relative),
    )
    return steps(work, number, carried), of_scale, None


def _real(work: Work, q: int) -> str:
    """Input `q` with the scale and the zero point behind it, as real numbers."""
    return work.emit.add("DequantizeLinear", [name for name in work.inputs[q : q + 3] if name])


def _factor(work: Work, q: int, columns_first: bool) -> str:
    """The same of a factor whose columns may have numbers of their own, along its first axis or its last one: in opset
    10 no DequantizeLinear takes such."""
    emit = work.emit
    real, scale, *zero = (
        emit.add("Cast", [name], to=TensorProto.FLOAT) for name in work.inputs[q : q + 3] if name
    )  # fmt: skip
    real = emit.add("Transpose", [real]) if columns_first else real
    for each in zero:
        real = emit.add("Sub", [real, each])
    real = emit.product(real, scale)
    return emit.add("Transpose", [real]) if columns_first else real


def _two(function: str) -> Rule:
    """QLinearAdd and QLinearMul: what is rounded is off by roundings as large as both sides, and as zero points, which
    onnxruntime scales and adds up by themselves."""

    def rule(work: Work) -> Variance:
        emit, sides, scale = work.emit, (_real(work, 0), _real(work, 3)), work.inputs[6]
        squares = [emit.square(emit.quotient(side, scale) if function == "Add" else side) for side in sides]
        number = emit.quotient(emit.add(function, sides), scale)
        own = emit.sum(*squares) if function == "Add" else emit.square(number)
        total: Variance = emit.affine(own, OWN, OWN * 2.0 * 255.0**2)
        for place, other in ((0, 1), (3, 0)):
            variance = work.variances[place]
            if variance is not None:
                step = emit.square(emit.quotient(work.inputs[place + 1], scale))
                carried = emit.product(variance, step)
                total = work.plus(total, carried if function == "Add" else emit.product(carried, squares[other]))
        return steps(work, number, total)

    return rule


def _one(function: str, rounded: float = OWN) -> Rule:
    """One operator with scale and zero point behind its input; `rounded` is its variance, relative to the result."""

    def rule(work: Work) -> Variance:
        emit = work.emit
        kept = {a.name: a for a in work.node.attribute if a.name not in ("channels_last",)}
        x, last = _real(work, 0), work.integer("channels_last", 0)
        if last:
            x = emit.add("Transpose", [x], perm=[0, 3, 1, 2])
        made = emit.fresh()
        node = helper.make_node(function, [x], [made])
        node.attribute.extend(kept.values())
        emit.nodes.append(node)
        if last:
            made = emit.add("Transpose", [made], perm=[0, 2, 3, 1])
        number = emit.quotient(made, work.inputs[3])
        return steps(work, number, emit.affine(emit.square(number), rounded, rounded))

    return rule


def _joined(work: Work) -> Variance:
    """QLinearConcat: the result's scale comes first."""
    parts = [_real(work, index) for index in range(2, len(work.inputs), 3)]
    joined = work.emit.add("Concat", parts, axis=work.integer("axis", 0))
    return steps(work, work.emit.quotient(joined, work.inputs[0]), None)


def _softmax(work: Work) -> Variance:
    """QLinearSoftmax: along one axis, or before opset 13 over all from one on."""
    emit, x, axis = work.emit, _real(work, 0), work.integer("axis", -1)
    if work.integer("opset", 13) < 13:
        made = emit.add("Softmax", [emit.flat(x, axis)], axis=1)
        made = emit.add("Reshape", [made, emit.add("Shape", [x])])
    else:
        made = emit.add("Softmax", [x], axis=axis)
    number = emit.quotient(made, work.inputs[3])
    return steps(work, number, emit.scaled(emit.square(number), FUNCTION))


def _chosen(work: Work) -> Variance:
    """QLinearWhere: the result's scale comes last."""
    chosen = work.emit.add("Where", [work.inputs[0], _real(work, 1), _real(work, 4)])
    return steps(work, work.emit.quotient(chosen, work.inputs[7]), None)


def _integers(op_type: str, places: tuple[int, int, int, int]) -> Rule:
    """A product of integers that are scaled and rounded again: its sums are exact, and what scales them rounds.

    `places`: where x, w, the scale of the result and the bias stand.
    """

    def rule(work: Work) -> Variance:
        emit, (x_at, w_at, scale_at, bias_at) = work.emit, places
        if scale_at >= len(work.inputs) or not work.inputs[scale_at]:
            return _scaled(9)(work)
        turned = op_type == "Conv" or (op_type == "Gemm" and work.integer("transB", 0) == 1)
        sides = [_factor(work, x_at, False), _factor(work, w_at, turned)]
        if bias_at < len(work.inputs) and work.inputs[bias_at]:
            scales = emit.product(work.inputs[x_at + 1], work.inputs[w_at + 1])
            sides.append(emit.product(emit.add("Cast", [work.inputs[bias_at]], to=TensorProto.FLOAT), scales))
        elif op_type == "Gemm":
            sides.append(emit.constant(0.0))  # up to opset 10 it had to add something

        def again(inputs: list[str]) -> str:
            """The product of real numbers, in steps of the result."""
            made = emit.fresh()
            node = helper.make_node(op_type, inputs, [made])
            node.attribute.extend(work.node.attribute)
            emit.nodes.append(node)
            return emit.quotient(made, work.inputs[scale_at])

        columns = emit.extent(sides[1], 0 if turned else -1)
        share = emit.sum(additions(work, emit.quotient(emit.size(sides[1]), columns))[0], emit.constant(OWN))
        squares = [emit.product(emit.square(sides[0]), share), *(emit.square(each) for each in sides[1:])]
        return steps(work, again(sides), emit.quotient(again(squares), work.inputs[scale_at]))

    return rule


def _scaled(bias: int) -> Rule:
    """Sums of integers as real numbers, with a bias: input `bias`."""

    def rule(work: Work) -> Variance:
        if work.variances[0] is not None:
            return measured(work)
        has = len(work.inputs) > bias and work.inputs[bias]
        own = work.emit.scaled(work.emit.square(work.inputs[bias]), OWN) if has else None
        return work.rounded(own, OWN)

    return rule


OF_CONTRIB: dict[str, Rule] = {
    "QLinearAdd": _two("Add"), "QLinearMul": _two("Mul"), "QLinearConcat": _joined,
    "QLinearSoftmax": _softmax, "QLinearWhere": _chosen,
    "QLinearSigmoid": _one("Sigmoid", FUNCTION), "QLinearLeakyRelu": _one("LeakyRelu"),
    "QLinearAveragePool": _one("AveragePool"), "QLinearGlobalAveragePool": _one("GlobalAveragePool", 64.0 * OWN),
    "QGemm": _integers("Gemm", (0, 3, 7, 6)), "MatMulIntegerToFloat": _scaled(6), "DynamicQuantizeMatMul": _scaled(4),
    "QuantizeLinear": quantised, "DequantizeLinear": dequantised,
}  # fmt: skip
"""Of com.microsoft."""


RULES: dict[str, Rule] = {
    "QuantizeLinear": quantised, "DequantizeLinear": dequantised,
    "QLinearConv": _integers("Conv", (0, 3, 6, 8)), "QLinearMatMul": _integers("MatMul", (0, 3, 6, 9)),
}  # fmt: skip
"""Of ONNX's own domain."""
