"""What becomes of rounding where elements are moved, joined, chosen or resized: see `verify.rounding`."""

from __future__ import annotations

from bolt_build.verify.rounding.rounding import Rule, Variance, Work, measured


def _largest(work: Work) -> Variance:
    """Max, Min: of whichever is taken."""
    if all(variance is None for variance in work.variances):
        return None
    return work.plus(work.emit.zeros_like(work.outputs[0]), *work.variances)


def moved(work: Work) -> Variance:
    """What only moves elements moves their variances with them."""
    if work.node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity"):
        work.keep_apart()
    if work.variances[0] is None:
        return None
    return work.again([work.variances[0], *work.inputs[1:]])


def _gathered(work: Work) -> Variance:
    """What is taken of a constant is rounded as that is stored."""
    own = work.storing(work.outputs[0]) if any(work.stored[:1]) else None
    return work.plus(moved(work), own)


def _padded(work: Work) -> Variance:
    """Behind the border is a constant, which is exact."""
    if work.variances[0] is None:
        return None
    rest = list(work.inputs[1:])
    if len(rest) > 1:
        rest[1] = ""
    return work.again([work.variances[0], *rest], **({} if rest else {"value": 0.0}))


def _parts(work: Work, first: int) -> list[str] | None:
    """The variances of the inputs from `first` on, of which the result has parts; None where nothing rounds them.
    Constants among them are rounded as they are stored."""
    parts = [
        work.storing(name) if variance is None and stored else variance
        for name, variance, stored in zip(
            work.inputs, work.variances, work.stored or [False] * len(work.inputs), strict=True
        )
    ][first:]
    if all(each is None for each in parts):
        return None
    names = work.inputs[first:]
    return [work.emit.zeros_like(name) if each is None else each for name, each in zip(names, parts, strict=True)]


def _joined(work: Work) -> Variance:
    parts = _parts(work, 0)
    return None if parts is None else work.again(parts)


def _scattered(work: Work) -> Variance:
    """ScatterElements and ScatterND: what is put or added has its own variance."""
    reduction = next((attribute.s for attribute in work.node.attribute if attribute.name == "reduction"), b"none")
    if reduction not in (b"none", b"add"):
        return measured(work)
    if work.variances[0] is None and work.variances[2] is None:
        return None
    data, updates = (work.variances[i] or work.emit.zeros_like(work.inputs[i]) for i in (0, 2))
    return work.again([data, work.inputs[1], updates])


def _chosen(work: Work) -> Variance:
    """Where: of whichever is taken."""
    parts = _parts(work, 1)
    return None if parts is None else work.again([work.inputs[0], *parts])


def _resized(work: Work) -> Variance:
    """Linear and cubic: where a result lies in the input is computed in fp32, and off by as much as the last bit of the
    largest place. An error of 1 there is as much as the neighbours are. `nearest` takes one, of integers too.

    Of several axes one is resized behind the other, and what is between them is stored as the result is: where the
    neighbours cancel it is larger than that."""
    emit, (x, *rest), y = work.emit, work.inputs, work.outputs[0]
    mode = next((attribute.s for attribute in work.node.attribute if attribute.name == "mode"), b"nearest")
    if mode == b"nearest":
        return moved(work)
    shapes = [emit.add("Shape", [name]) for name in (x, y)]
    scaled = emit.add("Cast", [emit.add("Not", [emit.add("Equal", shapes)])], to=1)
    extents = emit.product(emit.add("Cast", [shapes[0]], to=1), scaled)
    places = emit.reduce("ReduceSum", emit.square(extents), [0])

    def around(values: str) -> str:
        return emit.sum(emit.add("Abs", [work.again([values, *rest])]), emit.add("ReduceMean", [values]))

    carried = None if work.variances[0] is None else around(work.variances[0])
    between = emit.affine(emit.reduce("ReduceSum", scaled, [0]), 1.0, -1.0)
    stored = emit.scaled(emit.add("Max", [between, emit.constant(0.0)]), work.roundings.result)
    each = emit.sum(emit.affine(places, 1.0, work.roundings.addition), stored)
    own = emit.product(around(emit.square(x)), each)
    return work.rounded(work.plus(carried, own), work.roundings.result)


MOVING = (
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Identity", "Dropout", "Cast", "MaxPool",
    "GlobalMaxPool", "ReduceMax",
)  # fmt: skip
"""Operators that move elements or take some of them, beside those whose importers say so (`Importer.moves`)."""
EXACT = (*MOVING, "Split", "Concat", "Pad", "Where", "Relu", "Clip", "Neg", "Abs", "Max", "Min")
"""Operators that round nothing."""
RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVING, moved), **dict.fromkeys(("Max", "Min"), _largest),
    **dict.fromkeys(("Resize", "Upsample"), _resized), **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),
    "Concat": _joined, "Pad": _padded, "Where": _chosen, "Gather": _gathered,
}  # fmt: skip
"""By operator of ONNX's own domain."""
