"""What rounding does to normalisations: see `verify.rounding`.

y = g (x - m) / s + b: errors of x and of its mean are divided by s, which may be far below the mean; s is a sum of
squares, all of one sign.
"""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.verify.rounding.rounding import FUNCTION, Rule, Variance, Work, additions


@dataclass(frozen=True)
class _Rows:
    """What is normalised: rows of `count` numbers with their `mean`, that of their squares and 1 / s, of which the
    results are `made`; `arriving` is their variance and its mean, where they have one."""

    x: str
    count: str
    mean: str
    squares: str
    inverse: str
    made: str
    arriving: Variance


def _normalised(work: Work, rows: _Rows, scale: str | None, bias: str | None) -> Variance:
    """Of the results; `scale` and `bias` broadcast to the rows."""
    emit = work.emit
    ours, squared = additions(work, rows.count)
    own = emit.sum(
        emit.quotient(emit.product(rows.squares, ours), rows.count), emit.product(emit.square(rows.mean), squared)
    )
    difference = emit.scaled(emit.square(emit.add("Sub", [rows.x, rows.mean])), work.roundings.result)
    total = work.plus(rows.arriving, own, difference)
    assert total is not None
    carried = emit.product(total, emit.square(rows.inverse))
    if scale is not None:
        carried = emit.product(carried, emit.square(scale))
    relative = emit.affine(squared, 0.25, FUNCTION + work.weight(1) + work.roundings.result)
    result = emit.product(emit.square(rows.made), relative)
    offset = None if bias is None else emit.scaled(emit.square(bias), work.weight(2))
    return work.plus(carried, result, offset)


def _layer_norm(work: Work) -> Variance:
    """The operator itself gives the mean of anything, as its second output, and 1 / s as its third."""
    emit, (x, scale, *bias) = work.emit, work.inputs

    def again(value: str, output: int) -> str:
        return emit.again(work.node, [value, scale, *bias], output=output)

    inverse, arriving = again(x, 2), work.variances[0]
    rows = _Rows(
        x, emit.quotient(emit.size(x), emit.size(inverse)), again(x, 1), again(emit.square(x), 1), inverse,
        work.outputs[0], None if arriving is None else emit.sum(arriving, again(arriving, 1)),
    )  # fmt: skip
    return _normalised(work, rows, scale, next((name for name in bias if name), None))


def _planes(work: Work) -> Variance:
    """InstanceNormalization, whose rows are planes, and GroupNormalization, whose rows are as many as it has groups.
    The scale of the latter was one number a group before opset 21."""
    emit, (x, scale, bias) = work.emit, work.inputs
    groups = work.integer("num_groups", 0)

    def as_rows(values: str) -> str:
        return emit.add("Reshape", [values, emit.constant([0, groups, -1])])

    def mean(values: str) -> str:
        return emit.reduce("ReduceMean", values, [2])

    def spread(constant: str) -> str:
        column = emit.add("Reshape", [constant, emit.constant([-1, 1])])
        if groups and emit.opset < 21:
            return column
        channels = emit.add("Reshape", [emit.zeros_like(x), emit.constant([0, 0, -1])])
        return as_rows(emit.sum(channels, column))

    flat, arriving = as_rows(x), None if work.variances[0] is None else as_rows(work.variances[0])
    middle = mean(flat)
    variance = mean(emit.square(emit.add("Sub", [flat, middle])))
    inverse = emit.add("Reciprocal", [emit.add("Sqrt", [emit.affine(variance, 1.0, work.real("epsilon", 1e-5))])])
    rows = _Rows(
        flat, emit.quotient(emit.size(flat), emit.size(middle)), middle, mean(emit.square(flat)), inverse,
        as_rows(work.outputs[0]), None if arriving is None else emit.sum(arriving, mean(arriving)),
    )  # fmt: skip
    found = _normalised(work, rows, spread(scale), spread(bias))
    assert found is not None
    return emit.add("Reshape", [found, emit.add("Shape", [work.outputs[0]])])


RULES: dict[str, Rule] = {
    "LayerNormalization": _layer_norm, "InstanceNormalization": _planes, "GroupNormalization": _planes,
}  # fmt: skip
"""By operator of ONNX's own domain."""
