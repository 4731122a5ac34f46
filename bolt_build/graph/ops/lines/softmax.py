"""Softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails


@dataclass(frozen=True)
class Softmax(Op):
    """Over one axis (non-negative). The coerced 2-D form of opsets below 13 is a Reshape, this, and a Reshape back."""

    kind = "softmax"
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        expect_float(inputs[0])
        if not 0 <= self.axis < inputs[0].rank:
            raise ShapeError(f"axis {self.axis} does not exist in a tensor of rank {inputs[0].rank}")
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        with np.errstate(invalid="ignore"):
            powers = np.exp(x - x.max(axis=self.axis, keepdims=True))
        return (narrowed(powers / powers.sum(axis=self.axis, keepdims=True), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Maximum, difference, exponential, sum and quotient of each element."""
        return 5 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        (name,), found = node.inputs, dict[int, Tail]()
        for step, tail in at.tails(name).items():
            along = at.axis(name, step) == self.axis
            if along and not tail.hidden:
                raise PaddingReaches("is a softmax over it without a mask that an input gives")
            found[step] = Tail(0.0) if along else ANYTHING
        return found


def import_softmax(node: NodeImport) -> None:
    node.emit(Softmax(node.axis(node.integer("axis", -1), node.type(0).rank)), [node.input(0)], 0)


def import_coerced_softmax(node: NodeImport) -> None:
    """Opsets below 13: over all axes from `axis` on, taken together."""
    x, shape = node.input(0), node.type(0).shape
    axis = node.integer("axis", 1)
    if axis != len(shape):
        axis = node.axis(axis, len(shape))
    if axis < len(shape) and prod(shape[axis + 1 :]) == 1:
        node.emit(Softmax(axis), [x], 0)
        return
    flat = node.emit(Reshape((prod(shape[:axis]), prod(shape[axis:]))), [x])
    node.emit(Reshape(shape), [node.emit(Softmax(1), [flat])], 0)


IMPORTERS = (
    Importer("Softmax", (13,), import_softmax),
    Importer("Softmax", (1, 11), import_coerced_softmax),
)
