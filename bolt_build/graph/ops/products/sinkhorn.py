"""Sinkhorn's iterations: small matrices whose rows and columns are divided by their sums, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float

MOST = 64
"""Elements of a matrix: a thread keeps them in registers."""


@dataclass(frozen=True)
class Sinkhorn(Op):
    """Input and output [..., R, C]. In each of `turns` turns every row, or every column, is divided by the sum of its
    elements and `epsilon`; rows and columns take turns, and `rows_first` says which begin.

    Networks whose layers pass several streams on keep the matrix that mixes these doubly stochastic so
    (hyper-connections of DeepSeek-V4 and GLM-5). No model has the operator; a pass makes it of what exporters unroll.
    """

    kind = "sinkhorn"
    turns: int
    rows_first: bool = False
    epsilon: float = 0.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_float(x)
        if x.rank < 2:
            raise ShapeError(f"{list(x.shape)} has no matrices")
        if x.shape[-1] * x.shape[-2] > MOST:
            raise ShapeError(f"matrices of {x.shape[-2]}x{x.shape[-1]} are not supported: of {MOST} elements at most")
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        made = np.array(widened(inputs[0]))
        for turn in range(self.turns):
            axis = -1 if (turn % 2 == 0) == self.rows_first else -2
            made = made / (made.sum(axis=axis, keepdims=True) + made.dtype.type(self.epsilon))
        return (narrowed(made, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * self.turns * inputs[0].elements
