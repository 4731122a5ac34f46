"""Softmax and its logarithm along any axis: short lines, of a thread each; odd ones of a warp or a block; lines across
neighbours, of one thread and of several; and those that are too long to be held."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax

SHAPES = (
    ((300, 21), 1), ((300, 24), 1), ((300, 50), 1), ((70, 101), 1), ((40, 1025), 1), ((5, 2100), 1), ((3, 5000), 1),
    ((3, 21, 37), 1), ((2, 21, 64), 1), ((2, 30, 34), 1), ((2, 197, 35), 1), ((2, 700, 24), 1), ((2, 1100, 3), 1),
)  # fmt: skip


def line_trials() -> list[Trial]:
    found = []
    for shape, axis in SHAPES:
        label = "x".join(map(str, shape))
        for op in (Softmax(axis), Line("log_softmax", axis)):
            kind = type(op).__name__.lower()
            layer = Layer(f"{kind}-{label}-{axis}", op, (Input(shape, low=-6, high=6),), (), DType.F16, TOLERANCE)
            found += trials_of(layer, "portable", 9, without=("staged",))
    return found
