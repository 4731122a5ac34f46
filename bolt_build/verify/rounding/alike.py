"""Sums along positions, whose roundings are not independent: of means, pooling and attention.

Two things are true of images and of rows of a sequence that are not of channels. What lies side by side has one sign,
so that partial sums are as large as the sum of absolute values, whatever the sum itself comes to. And it is often the
same: a background, padding, or everything in a model that hardly depends on its input.
Where one number is added again and again, partial sums between two powers of two are all cut off by the same part of
their last bit. n such roundings grow with n, not with its square root. From 2^e to y = 2^e / r are n (1 - r) of them,
each at most u 2^e, below half as many of half the size, and so on: |error| <= n u |y| (r - 2 r^2 / 3) <= 3/8 n u |y|.
Two numbers count as the same where they differ by less than the last bit of the sum. A number below that bit rounds by
no more than itself, and zero not at all.
"""

from __future__ import annotations

from bolt_build.verify.rounding.rounding import UNIT, Variance, Work

_BOUND = 3.0 / 8.0
"""Both sides together may be off by 3/4 n u in every element, which must stay below `judgement.SPREAD`, 1.5: so the
variance is n^2 u^2 / 4. That of an addition is 2/3 u^2."""
_END = 2**31 - 1


def of_sums(work: Work, count: str, alike: str) -> str:
    """The variance of sums of `count` numbers, relative to the sum of their absolute values, where roundings of `alike`
    of them go one way."""
    emit, addition = work.emit, work.roundings.addition
    return emit.sum(emit.scaled(count, addition / 3.0), emit.scaled(emit.square(alike), _BOUND * addition))


def same(work: Work, x: str, axis: str, size: str) -> str:
    """For all of `x` but the last along `axis` (a tensor of one element): 1 where the next is the same, as seen from a
    sum whose absolute values come to `size`; less where the number itself is below the last bit of that."""
    emit = work.emit
    head = emit.add("Slice", [x, emit.constant([0]), emit.constant([-1]), axis])
    tail = emit.add("Slice", [x, emit.constant([1]), emit.constant([_END]), axis])
    bit = emit.scaled(size, 2.0 * UNIT)
    equal = emit.add("Less", [emit.add("Abs", [emit.add("Sub", [tail, head])]), bit])
    part = emit.quotient(emit.add("Abs", [head]), emit.affine(size, UNIT, 1e-37))
    weight = emit.add("Min", [part, emit.constant(1.0)])
    return emit.product(emit.add("Cast", [equal], to=1), weight)


def of_positions(work: Work, count: str) -> str:
    """The variance of a mean or sum of input 0, `count` numbers each."""
    size = work.again([work.emit.add("Abs", [work.inputs[0]]), *work.inputs[1:]])
    return work.emit.product(work.emit.square(size), of_sums(work, count, _alike(work, count)))


def _alike(work: Work, count: str) -> str:
    """How many of the numbers of each element of the result are the same as the next one along the last of the axes
    that are summed up. All are taken to be where these are not stated, and before opset 10, which has no such Slice."""
    emit, node, x = work.emit, work.node, work.inputs[0]
    listed = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), [])
    if node.op_type == "GlobalAveragePool":
        x, listed = emit.add("Reshape", [x, emit.constant([0, 0, -1])]), [2]
    named = next((name for name in work.inputs[1:] if name), None)
    if emit.opset < 10 or not (listed or named):
        return count
    axis = emit.constant(listed[-1:]) if named is None else emit.add("Gather", [named, emit.constant([-1])])

    def total(values: str) -> str:
        if named is not None:
            return emit.add("ReduceSum", [values, named], keepdims=1)
        return emit.reduce("ReduceSum", values, listed)

    found = total(same(work, x, axis, total(emit.add("Abs", [x]))))
    return emit.add("Reshape", [found, emit.add("Shape", [work.outputs[0]])])


def of_shares(work: Work, shares: str, axis: int) -> tuple[str, str]:
    """How many of the shares along `axis`, which sum up to 1, there are but for those near 0; and the relative variance
    of what they were divided by: it meets all of them, so that no sum over them levels it out."""
    emit = work.emit
    squares = emit.reduce("ReduceSum", emit.square(shares), [axis])
    count = emit.add("Reciprocal", [emit.affine(squares, 1.0, 1e-12)])
    alike = count
    if emit.opset >= 10:
        found = same(work, shares, emit.constant([axis]), emit.constant(1.0))
        alike = emit.reduce("ReduceSum", found, [axis])
    return count, of_sums(work, count, alike)


def of_means(work: Work, shares: str, values: str) -> Variance:
    """What additions do to means of `values` along the last axis but one by `shares` along the last. The shares' own
    divisor is off for all of them, and so is their storing where they are alike."""
    emit = work.emit
    count, divisor = of_shares(work, shares, -1)
    result, shape = work.outputs[0], None
    if emit.opset >= 10:
        shape = emit.add("Shape", [result])
        values, result = _columns(work, values), _columns(work, result)
    size = emit.add("Abs", [values])
    alike = count
    if emit.opset >= 10:
        found = same(work, values, emit.constant([-2]), emit.reduce("ReduceSum", size, [-2]))
        alike = emit.add("Min", [emit.reduce("ReduceSum", found, [-2]), count])
    of_sum = emit.product(emit.square(work.again([shares, size])), of_sums(work, count, alike))
    common = emit.affine(divisor, 1.0, work.roundings.result)
    found = emit.sum(of_sum, emit.product(emit.square(result), common))
    return found if shape is None else emit.add("Reshape", [found, shape])


def _columns(work: Work, values: str) -> str:
    """`values` with an axis of 1 behind the others where input 1 of the product is a single column, which has one axis:
    then the result has fewer axes than input 0."""
    emit = work.emit
    first, last = (emit.add("Size", [emit.add("Shape", [name])]) for name in (work.inputs[0], work.outputs[0]))
    lost = emit.add("Reshape", [emit.add("Sub", [first, last]), emit.constant([1])])
    ones = emit.add("Slice", [emit.constant([1]), emit.constant([0]), lost])
    return emit.add("Reshape", [values, emit.add("Concat", [emit.add("Shape", [values]), ones], axis=0)])
