"""What rounding does to quantised tensors: nothing, but where a number lies near the border between two integers.

There its own rounding decides which of both it becomes. So an integer's variance is that of a step where `REACH`
standard deviations of the number in front of it reach another integer, and zero elsewhere: an engine may be a step off
at a border, and nowhere else. Variances of integers are in their steps, and in units of UNIT^2 as all others are.
"""

from __future__ import annotations

from onnx import TensorProto

from bolt_build.verify.rounding import UNIT, Rule, Variance, Work

REACH = 6.0
"""Standard deviations that a rounding error is below: the largest of a hundred million is some 6."""
STEP = 3.0
"""Deviations that a step at a border counts as: more than the root mean square of a right engine's, and less than any
largest deviation's limit (`verify.judgement`)."""
OWN = 4.0
"""Variance of the few operations in fp32 that make a number of steps: quotients and products, on both sides."""


def steps(work: Work, number: str, variance: Variance) -> Variance:
    """The variance of `number`, in steps, once it is rounded to an integer, where it had `variance` before."""
    emit = work.emit
    own = emit.scaled(emit.square(number), OWN)
    error = emit.add("Sqrt", [own if variance is None else emit.sum(own, variance)])
    reach = emit.scaled(error, REACH * UNIT)
    above = emit.add("Round", [emit.sum(number, reach)])
    below = emit.add("Round", [emit.add("Sub", [number, reach])])
    return emit.square(emit.scaled(emit.add("Sub", [above, below]), 1.0 / (STEP * UNIT)))


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


RULES: dict[str, Rule] = {"QuantizeLinear": quantised, "DequantizeLinear": dequantised}
"""Of ONNX's own domain."""
