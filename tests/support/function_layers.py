"""A layer for each elementwise function of one tensor, with what it takes and where it is defined."""

from __future__ import annotations

from families_harness import Input, Layer

from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS

PARAMETERS = {
    "leaky_relu": (0.1, 0.0), "clip": (-0.5, 1.0), "hard_sigmoid": (0.2, 0.5), "elu": (0.7, 0.0), "celu": (0.7, 0.0),
    "selu": (1.67, 1.05), "thresholded_relu": (0.6, 0.0), "shrink": (0.5, 0.2), "swish": (1.7, 0.0),
}  # fmt: skip
POSITIVE = ("sqrt", "reciprocal", "log")
RANGES = {
    **dict.fromkeys(POSITIVE, (0.1, 4.0)), **dict.fromkeys(("asin", "acos", "atanh"), (-0.95, 0.95)),
    "acosh": (1.05, 4.0), "tan": (-1.4, 1.4),
}  # fmt: skip
"""Where functions are defined, or do not run away."""


def functions(shape: tuple[int, ...]) -> list[Layer]:
    return [
        Layer(
            name,
            Activation(name, *PARAMETERS.get(name, ())),
            (Input(shape, False, *RANGES.get(name, (-4.0, 4.0))),),
        )
        for name in FUNCTIONS
    ]
