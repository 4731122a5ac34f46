"""Functions of one number beside the activations that are as old as this project: what NumPy makes of them.

`graph.ops.elementwise.activation` has them among its own; `a` and `b` are an `Activation`'s alpha and beta.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.graph.ir import Array


def _softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0))


def _shrink(x: Array, threshold: float, bias: float) -> Array:
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, 0.0 * x))


FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "log": lambda x, a, b: np.log(x),
    "sin": lambda x, a, b: np.sin(x),
    "cos": lambda x, a, b: np.cos(x),
    "tan": lambda x, a, b: np.tan(x),
    "asin": lambda x, a, b: np.arcsin(x),
    "acos": lambda x, a, b: np.arccos(x),
    "atan": lambda x, a, b: np.arctan(x),
    "sinh": lambda x, a, b: np.sinh(x),
    "cosh": lambda x, a, b: np.cosh(x),
    "asinh": lambda x, a, b: np.arcsinh(x),
    "acosh": lambda x, a, b: np.arccosh(x),
    "atanh": lambda x, a, b: np.arctanh(x),
    "floor": lambda x, a, b: np.floor(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "round": lambda x, a, b: np.rint(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
    "selu": lambda x, a, b: b * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
    "celu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0) / a)),
    "mish": lambda x, a, b: x * np.tanh(_softplus(x)),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, np.where(x == x, 0.0, x)),
    "softsign": lambda x, a, b: x / (1.0 + np.abs(x)),
    "shrink": lambda x, a, b: _shrink(x, a, b),
    "swish": lambda x, a, b: x / (1.0 + np.exp(-a * x)),
}
