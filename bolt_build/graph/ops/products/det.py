"""Determinants of square matrices: ONNX's Det."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float

LARGEST = 32
"""Rows of a matrix: a thread keeps all of its elements."""


@dataclass(frozen=True)
class Det(Op):
    """Input [..., M, M], output [...]: the determinant of each matrix, by elimination with the largest pivot."""

    kind = "det"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        expect_float(x)
        if x.rank < 2 or x.shape[-1] != x.shape[-2]:
            raise ShapeError(f"{list(x.shape)} is not of square matrices")
        if x.shape[-1] > LARGEST:
            raise ShapeError(f"matrices of {x.shape[-1]} rows are not supported, of at most {LARGEST} are")
        return (TensorType(x.dtype, x.shape[:-2]),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        return (narrowed(np.asarray(np.linalg.det(x)).reshape(x.shape[:-2]), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements * max(inputs[0].shape[-1], 1)


def import_det(node: NodeImport) -> None:
    node.emit(Det(), [node.input(0)], 0)


IMPORTERS = (
    Importer("Det", (11, 22), import_det, example=Example((Data((2, 3, 3)),)), note=f"of at most {LARGEST} rows"),
)
