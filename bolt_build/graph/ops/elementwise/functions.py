"""Functions of one number, one row each: what NumPy makes of them, and what kernels ask of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import converted
from bolt_build.graph.ir import Array


@dataclass(frozen=True)
class Function:
    """`evaluate` is of an array and an `Activation`'s alpha and beta, of which the first `parameters` count; the others
    are 0. `transcendental` functions cost tens of operations an element instead of one or two. `on_integers` says that
    integers have the function too.

    C++ has a functor of the same name in camel case, with alpha and beta as members: `leaky_relu` is `LeakyRelu{0.1f}`.
    """

    evaluate: Callable[[Array, float, float], Array]
    parameters: int = 0
    transcendental: bool = False
    on_integers: bool = False


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64).reshape(np.shape(x))


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, power) / (1.0 + power)


def _softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0))


def _clip(x: Array, low: float, high: float) -> Array:
    """Integers between the integers that their type has."""
    if x.dtype.kind == "f":
        return np.minimum(np.maximum(x, low), high)
    least, most = (converted(np.asarray(bound, np.float64), x.dtype) for bound in (low, high))
    return np.minimum(np.maximum(x, least), most)


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _shrink(x: Array, threshold: float, bias: float) -> Array:
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, 0.0 * x))


def _expm1_below(x: Array) -> Array:
    """e^x - 1 where x is at most 0, else 0."""
    return np.asarray(np.expm1(np.minimum(x, 0.0)))


def _costly(evaluate: Callable[[Array, float, float], Array], parameters: int = 0) -> Function:
    return Function(evaluate, parameters, transcendental=True)


FUNCTIONS: dict[str, Function] = {
    "relu": Function(lambda x, a, b: np.maximum(x, 0), on_integers=True),
    "leaky_relu": Function(lambda x, a, b: np.where(x < 0, a * x, x), 1),
    "clip": Function(_clip, 2, on_integers=True),
    "sigmoid": _costly(lambda x, a, b: _sigmoid(x)),
    "hard_sigmoid": Function(lambda x, a, b: np.clip(a * x + b, 0.0, 1.0), 2),
    "hard_swish": Function(lambda x, a, b: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)),
    "tanh": _costly(lambda x, a, b: np.tanh(x)),
    "softplus": _costly(lambda x, a, b: _softplus(x)),
    "gelu": _costly(lambda x, a, b: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))),
    "gelu_tanh": _costly(lambda x, a, b: _gelu_tanh(x)),
    "erf": _costly(lambda x, a, b: _erf(x)),
    "silu": _costly(lambda x, a, b: x * _sigmoid(x)),
    "exp": _costly(lambda x, a, b: np.exp(x)),
    "sqrt": Function(lambda x, a, b: np.sqrt(x)),
    "square": Function(lambda x, a, b: x * x),
    "neg": Function(lambda x, a, b: np.negative(x), on_integers=True),
    "abs": Function(lambda x, a, b: np.abs(x), on_integers=True),
    "reciprocal": Function(lambda x, a, b: 1.0 / x),
    "sign": Function(lambda x, a, b: np.sign(x), on_integers=True),
    "log": _costly(lambda x, a, b: np.log(x)),
    "sin": _costly(lambda x, a, b: np.sin(x)),
    "cos": _costly(lambda x, a, b: np.cos(x)),
    "tan": _costly(lambda x, a, b: np.tan(x)),
    "asin": _costly(lambda x, a, b: np.arcsin(x)),
    "acos": _costly(lambda x, a, b: np.arccos(x)),
    "atan": _costly(lambda x, a, b: np.arctan(x)),
    "sinh": _costly(lambda x, a, b: np.sinh(x)),
    "cosh": _costly(lambda x, a, b: np.cosh(x)),
    "asinh": _costly(lambda x, a, b: np.arcsinh(x)),
    "acosh": _costly(lambda x, a, b: np.arccosh(x)),
    "atanh": _costly(lambda x, a, b: np.arctanh(x)),
    "floor": Function(lambda x, a, b: np.floor(x)),
    "ceil": Function(lambda x, a, b: np.ceil(x)),
    "round": Function(lambda x, a, b: np.rint(x)),
    "elu": _costly(lambda x, a, b: np.where(x > 0, x, a * _expm1_below(x)), 1),
    "selu": _costly(lambda x, a, b: b * np.where(x > 0, x, a * _expm1_below(x)), 2),
    "celu": _costly(lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0) / a)), 1),
    "mish": _costly(lambda x, a, b: x * np.tanh(_softplus(x))),
    "thresholded_relu": Function(lambda x, a, b: np.where(x > a, x, np.where(x == x, 0.0, x)), 1),
    "softsign": Function(lambda x, a, b: x / (1.0 + np.abs(x))),
    "shrink": Function(_shrink, 2),
    "swish": _costly(lambda x, a, b: x / (1.0 + np.exp(-a * x)), 1),
}
