"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary

_PLAIN: dict[str, Callable[..., torch.Tensor]] = {
    "relu": F.relu, "sigmoid": torch.sigmoid, "hard_swish": F.hardswish, "tanh": torch.tanh, "softplus": F.softplus,
    "gelu": F.gelu, "erf": torch.erf, "silu": F.silu,
    "log": torch.log, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "mish": F.mish,
    "softsign": F.softsign, "sign": torch.sign,
    "exp": torch.exp, "sqrt": torch.sqrt, "square": torch.square, "neg": torch.neg, "abs": torch.abs,
    "reciprocal": torch.reciprocal,
}  # fmt: skip
_OF_TWO: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "pow": torch.pow, "max": torch.maximum,
    "min": torch.minimum, "mod": torch.remainder, "fmod": torch.fmod,
}  # fmt: skip
_BOUNDLESS = 3e38
"""A bound beyond this bounds nothing: ONNX's default is the greatest f32, which a 16-bit element cannot hold."""


def activation(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Activation)
    x = build.value(node.inputs[0])
    if op.function == "gelu_tanh":
        return build.call(F.gelu, x, approximate="tanh")
    if op.function in _PLAIN:
        return build.call(_PLAIN[op.function], x)
    if op.function == "leaky_relu":
        return build.call(F.leaky_relu, x, op.alpha)
    if op.function == "clip":
        return _clip(build, node, x, op)
    if op.function in ("elu", "celu"):
        return build.call(F.elu if op.function == "elu" else F.celu, x, op.alpha)
    if op.function == "selu":
        # torch has ONNX's numbers alone.
        return build.call(torch.mul, build.call(F.elu, x, op.alpha), op.beta)
    if op.function == "thresholded_relu":
        return build.call(F.threshold, x, op.alpha, 0.0)
    if op.function == "shrink":
        return _shrink(build, x, op)
    if op.function == "swish":
        return build.call(torch.mul, x, build.call(torch.sigmoid, build.call(torch.mul, x, op.alpha)))
    if op.function != "hard_sigmoid":
        raise Unsupported(f"the activation '{op.function}' has no counterpart here ('{node.name}')")
    line = build.call(torch.add, build.call(torch.mul, x, op.alpha), op.beta)
    return build.call(torch.clamp, line, 0.0, 1.0)


def _shrink(build: Builder, x: fx.Node, op: Activation) -> fx.Node:
    if op.beta == op.alpha:
        return build.call(F.softshrink, x, op.alpha)
    if op.beta == 0.0:
        return build.call(F.hardshrink, x, op.alpha)
    moved = build.call(torch.sub, x, build.call(torch.mul, build.call(torch.sign, x), op.beta))
    outside = build.call(torch.gt, build.call(torch.abs, x), op.alpha)
    return build.call(torch.where, outside, moved, build.call(torch.mul, x, 0.0))


def _clip(build: Builder, node: Node, x: fx.Node, op: Activation) -> fx.Node:
    if not build.graph.type(node.inputs[0]).dtype.is_float:
        return build.call(torch.clamp, x, int(op.alpha), int(op.beta))
    low = op.alpha if op.alpha > -_BOUNDLESS else None
    high = op.beta if op.beta < _BOUNDLESS else None
    return x if low is None and high is None else build.call(torch.clamp, x, low, high)


def binary(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Binary)
    a, b = (build.value(name) for name in node.inputs)
    if op.function == "div":
        rounding = None if build.graph.type(node.inputs[0]).dtype.is_float else "trunc"
        return build.call(torch.div, a, b, rounding_mode=rounding)
    if op.function == "prelu":
        return _prelu(build, node, a, b)
    if op.function not in _OF_TWO:
        raise Unsupported(f"the function '{op.function}' has no counterpart here ('{node.name}')")
    return build.call(_OF_TWO[op.function], a, b)


def _prelu(build: Builder, node: Node, x: fx.Node, slope: fx.Node) -> fx.Node:
    """torch's takes one slope, or one a channel: axis 1."""
    shape, own = build.shape(node.inputs[0]), build.shape(node.inputs[1])
    lead = (1,) * (len(shape) - len(own)) + own if len(own) <= len(shape) else own
    channels = len(shape) > 1 and lead == tuple(extent if axis == 1 else 1 for axis, extent in enumerate(shape))
    if build.is_float(node.inputs[0]) and len(lead) == len(shape) and (channels or set(lead) <= {1}):
        return build.call(F.prelu, x, build.call(torch.reshape, slope, (-1,)))
    return build.call(torch.where, build.call(torch.lt, x, 0), build.call(torch.mul, x, slope), x)


ELEMENTWISE: dict[type[Op], Lower] = {Activation: activation, Binary: binary}
