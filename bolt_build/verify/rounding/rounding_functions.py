"""What rounding does to functions of one number, many of which level off: see `verify.rounding`."""

from __future__ import annotations

from bolt_build.verify.rounding.rounding import FUNCTION, UNIT, Rule, Variance, Work

_REACH = 16.0
"""Deviations of an argument that a function which levels off is looked at: more than a layer may be off by."""


def _function(slope: float, kind: str, *, levels_off: bool = False) -> Rule:
    """A function with slopes of at most `slope`: "exact", or off by FUNCTION relative to 1 + |y| ("bounded") or to
    |x| + |y| ("product", those that are a product of x with a bounded one). One that rises and `levels_off` is off by
    no more than it rises around its argument: x sigmoid(x) of a large x is off as x is, not as its square is."""

    def rule(work: Work) -> Variance:
        emit, variance = work.emit, work.variances[0]
        carried = None if variance is None else emit.scaled(variance, slope * slope)
        if variance is not None and levels_off:
            assert carried is not None
            carried = emit.add("Min", [carried, _rise(work, variance)])
        if kind == "exact":
            return carried
        size = emit.square(work.outputs[0])
        other = emit.constant(1.0) if kind == "bounded" else emit.square(work.inputs[0])
        own = emit.scaled(emit.sum(size, other), FUNCTION)
        return work.plus(carried, own, emit.scaled(size, work.roundings.result))

    return rule


def _sigmoid(work: Work) -> Variance:
    """Off by a part of itself, however small it is: 1 / (1 + e^-x) is what engines compute. The argument's rounding is
    relative to e^-x, and errors are passed on with the largest slope that the argument may be at."""
    emit, x, y, variance = work.emit, work.inputs[0], work.outputs[0], work.variances[0]
    size = emit.add("Abs", [x])
    rest = emit.product(emit.add("Min", [size, emit.constant(100.0)]), emit.affine(y, -1.0, 1.0))
    relative = emit.affine(emit.square(rest), 1.0, FUNCTION + work.roundings.result)
    own = emit.product(emit.square(y), relative)
    if variance is None:
        return own
    reach = _reach(work, variance)
    nearest = emit.add("Max", [emit.add("Sub", [size, reach]), emit.constant(0.0)])
    left = emit.logistic(emit.add("Neg", [nearest]))
    slope = emit.product(left, emit.affine(left, -1.0, 1.0))
    carried = emit.product(emit.square(slope), variance)
    above, below = (emit.logistic(emit.add(way, [x, reach])) for way in ("Add", "Sub"))
    most = emit.square(emit.scaled(emit.add("Sub", [above, below]), 1.0 / UNIT))
    return emit.sum(own, emit.add("Min", [carried, most]))


def _reach(work: Work, variance: str) -> str:
    """`_REACH` deviations. A variance that is a difference may come out below 0."""
    emit = work.emit
    return emit.scaled(emit.add("Sqrt", [emit.add("Abs", [variance])]), _REACH * UNIT)


def _rise(work: Work, variance: str) -> str:
    """The square of what the node's function rises by between `_REACH` deviations below and above its argument."""
    emit, (x, *rest) = work.emit, work.inputs
    reach = _reach(work, variance)
    above, below = (work.again([emit.add(way, [x, reach]), *rest]) for way in ("Add", "Sub"))
    return emit.square(emit.scaled(emit.add("Sub", [above, below]), 1.0 / UNIT))


def _leaky(work: Work) -> Variance:
    return _function(max(1.0, abs(work.real("alpha", 0.01))), "product")(work)


_OF_A_POWER = 4.0
"""The variance of a power of e near 1: it is off by its last bit or two."""


def _elu(scale: float, alpha: float) -> Rule:
    """scale * x, and scale * alpha * (e^x - 1) of an x below 0. onnxruntime computes it as it stands here: of a small x
    it is off by what e^x is, however exact an engine is."""

    def rule(work: Work) -> Variance:
        gain, most = work.real("gamma", scale), work.real("alpha", alpha)
        slope = 1.0 if work.node.op_type == "Celu" else gain * max(1.0, abs(most))
        power = work.emit.constant(_OF_A_POWER * (gain * most) ** 2)
        return work.plus(_function(slope, "product")(work), power)

    return rule


RULES: dict[str, Rule] = {
    "Elu": _elu(1.0, 1.0), "Celu": _elu(1.0, 1.0), "Selu": _elu(1.05070102214813232421875, 1.67326319217681884765625),
    "LeakyRelu": _leaky, "Sigmoid": _sigmoid, "HardSigmoid": _function(1.0, "bounded", levels_off=True),
    "Tanh": _function(1.0, "bounded", levels_off=True), "Erf": _function(1.13, "bounded", levels_off=True),
    "Softplus": _function(1.0, "bounded", levels_off=True), "Gelu": _function(1.13, "product"),
    "Swish": _function(1.1, "product"), "HardSwish": _function(1.5, "product"),
    "Clip": _function(1.0, "exact", levels_off=True),
    **dict.fromkeys(("Relu", "Neg", "Abs"), _function(1.0, "exact")),
}  # fmt: skip
"""By operator of ONNX's own domain."""
