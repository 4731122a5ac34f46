"""Forward substitution: the lower triangle of square matrices, a row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float

LARGEST = 64
"""Rows of a matrix: a thread keeps a column."""


@dataclass(frozen=True)
class Substitution(Op):
    """Input and output [..., M, M]. Row i's elements in front of the diagonal become themselves plus the product of
    these, as they were given, with the rows above as they have become. The diagonal, and what is behind it, stays.

    Of A, all of which lies under the diagonal, that is the inverse of I - A, less I; with `unit` I is added, so it is
    the inverse: gated delta rules (DeltaNet, Qwen3-Next) solve the dependencies within a chunk of tokens so. No model
    has the operator; a pass makes it of what exporters unroll.
    """

    kind = "substitution"
    unit: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_float(x)
        if x.rank < 2 or x.shape[-1] != x.shape[-2]:
            raise ShapeError(f"{list(x.shape)} is not of square matrices")
        if x.shape[-1] > LARGEST:
            raise ShapeError(f"matrices of {x.shape[-1]} rows are not supported, of at most {LARGEST} are")
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        made = np.array(widened(inputs[0]))
        for row in range(1, made.shape[-1]):
            own = made[..., row : row + 1, :row]
            made[..., row : row + 1, :row] = own + own @ made[..., :row, :row]
        if self.unit:
            made += np.eye(made.shape[-1], dtype=made.dtype)
        return (narrowed(made, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements * max(inputs[0].shape[-1], 1) // 3
