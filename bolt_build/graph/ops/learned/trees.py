"""Decision trees, as the domain ai.onnx.ml has them: each row of numbers goes down every tree, and what stands at the
leaves is added up.

A walk is one operator, which says the leaf that each row ends at in each tree. Looking up the leaves' numbers and
adding them are a Gather and a Reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.gather import within
from bolt_build.graph.ops.operands import expect_count, expect_float

LEAF, MISSING = 0, 8
QUESTIONS = ("LEAF", "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""What a node asks of a number and its threshold, by the names of ONNX's version 3. With MISSING added, what is no
number goes where the answer is yes."""
MOST_DEPTH = 4096

_ASK = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


@dataclass(frozen=True)
class TreeLeaves(Op):
    """Inputs x [N,F], thresholds (f32) [M], nodes (i32) [M,4] and roots (i32) [T]; output (i32) [N,T].

    A node is its question, the column of x that it asks about, and the nodes that follow the answers yes and no. That
    of a leaf is 0, and its column what the output says of it. From its root a row takes at most `depth` steps.
    """

    kind = "tree_leaves"
    depth: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 4)
        x, thresholds, nodes, roots = inputs
        expect_float(x)
        expect_float(thresholds)
        if x.rank != 2 or thresholds.rank != 1 or nodes.shape != (*thresholds.shape, 4) or roots.rank != 1:
            shapes = ", ".join(str(list(each.shape)) for each in inputs)
            raise ShapeError(f"{shapes} are no rows, thresholds [M], nodes [M, 4] and roots")
        if nodes.dtype is not DType.I32 or roots.dtype is not DType.I32:
            raise ShapeError("nodes and roots must be of i32")
        if not 0 <= self.depth <= MOST_DEPTH:
            raise ShapeError(f"trees of {self.depth} steps; supported are {MOST_DEPTH}")
        return (TensorType(DType.I32, (x.shape[0], roots.shape[0])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, thresholds, nodes, roots = widened(inputs[0]), widened(inputs[1]), inputs[2], inputs[3]
        at = np.broadcast_to(within(roots, len(nodes)), (len(x), len(roots))).copy()
        rows = np.arange(len(x))[:, None]
        for _ in range(self.depth):
            question, column = nodes[at, 0], nodes[at, 1]
            inner = question % MISSING != LEAF
            if not inner.any():
                break
            number = x[rows, np.where(inner, within(np.where(inner, column, 0), x.shape[1]), 0)]
            answers = [ask(number, thresholds[at]) for ask in _ASK]
            yes = np.choose(np.clip(question % MISSING - 1, 0, len(_ASK) - 1), answers)
            yes |= np.isnan(number) & (question >= MISSING)
            at = np.where(inner, within(np.where(inner, np.where(yes, nodes[at, 2], nodes[at, 3]), 0), len(nodes)), at)
        return (nodes[at, 1].astype(np.int32),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return max(1, self.depth) * outputs[0].elements
