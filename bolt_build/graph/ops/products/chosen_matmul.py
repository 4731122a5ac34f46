"""Rows times the matrix that an index chooses for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.operands import expect_count, expect_indices, expect_same_dtype


@dataclass(frozen=True)
class ChosenMatMul(Op):
    """y[r] = x[r] W[index[r]]: inputs x [R, K], W [E, K, N] ([E, N, K] if transpose_b) and index [R], output [R, N].

    The experts of a mixture: rows were sorted by expert, so that rows of one matrix are neighbours; any order is right.
    No model has the operator; a pass makes it of products with all matrices, or with those that were gathered.
    """

    kind = "chosen_matmul"
    factors = 2
    transpose_b: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        expect_same_dtype(inputs[:2])
        rows, matrices, index = inputs
        expect_indices(index)
        if rows.rank != 2 or matrices.rank != 3 or index.shape != rows.shape[:1]:
            raise ShapeError(
                f"indices {list(index.shape)} choose no matrix of {list(matrices.shape)} for rows {list(rows.shape)}"
            )
        depth, columns = matrices.shape[1:] if not self.transpose_b else matrices.shape[:0:-1]
        if depth != rows.shape[1]:
            raise ShapeError(f"rows of {rows.shape[1]} cannot be multiplied with {depth}x{columns} matrices")
        return (TensorType(rows.dtype, (rows.shape[0], columns)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        rows, matrices = widened(inputs[0]), widened(inputs[1])
        if self.transpose_b:
            matrices = matrices.swapaxes(1, 2)
        index = within(inputs[2], len(matrices))
        made = np.zeros((len(rows), matrices.shape[2]), rows.dtype)
        for each in np.unique(index):
            made[index == each] = rows[index == each] @ matrices[each]
        return (narrowed(made, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * inputs[0].shape[1]

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {2: inputs[1].shape[0]}

    def ascending(self, inputs: Sequence[TensorType]) -> Mapping[int, tuple[int, int]]:
        return {2: (0, max(inputs[1].shape[0] - 1, 0))}
