"""An operator: the distances of vectors, `CDist` of the domain com.microsoft, which exporters of nearest-neighbour
models write and onnxruntime computes.

The module is what a file of `bolt_build/graph/ops` is: `Op` classes, and the tuple `IMPORTERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_float, expect_same_dtype

METRICS = ("euclidean", "sqeuclidean")


@dataclass(frozen=True)
class Distances(Op):
    """[M, K] and [N, K] become [M, N]: the distance of each row of the first to each row of the second, squared or not;
    `negated`: how near they are instead."""

    kind = "distances"
    squared: bool
    negated: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2)
        expect_same_dtype(inputs)
        expect_float(inputs[0])
        a, b = inputs
        if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[1]:
            raise ShapeError(f"takes rows of one length, not {list(a.shape)} and {list(b.shape)}")
        return (TensorType(a.dtype, (a.shape[0], b.shape[0])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (widened(each) for each in inputs)
        squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=-1)
        found = squares if self.squared else np.sqrt(squares)
        return (narrowed(-found if self.negated else found, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """A difference, a product and a sum for each pair of elements."""
        return 3 * outputs[0].elements * inputs[0].shape[1]


def import_distances(node: NodeImport) -> None:
    metric = node.text("metric", "sqeuclidean")
    if metric not in METRICS:
        raise Refusal("unsupported-attribute", f"the metric '{metric}' is none of {', '.join(METRICS)}")
    node.emit(Distances(squared=metric == "sqeuclidean"), [node.input(0), node.input(1)], 0)


IMPORTERS = (
    Importer(
        "CDist", (1,), import_distances, domain="com.microsoft",
        example=Example((Data((4, 8)), Weights((3, 8))), (("metric", "euclidean"),)),
    ),
)  # fmt: skip
