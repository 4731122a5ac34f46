"""Functions of whole lines along an axis beside softmax: its logarithm, and hardmax."""

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
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails

FUNCTIONS = ("log_softmax", "hardmax")


@dataclass(frozen=True)
class Line(Op):
    """`function` of each line along `axis` (non-negative): "log_softmax", or "hardmax": 1 at the first greatest
    element, 0 elsewhere."""

    kind = "line"
    function: str
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        expect_float(inputs[0])
        if self.function not in FUNCTIONS:
            raise ShapeError(f"'{self.function}' is no function of lines")
        if not 0 <= self.axis < inputs[0].rank:
            raise ShapeError(f"axis {self.axis} does not exist in a tensor of rank {inputs[0].rank}")
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, axis = widened(inputs[0]), self.axis
        if not x.size:
            return (inputs[0],)
        if self.function == "hardmax":
            chosen = np.expand_dims(x.argmax(axis=axis), axis)
            y = np.zeros_like(x)
            np.put_along_axis(y, chosen, 1.0, axis)
            return (narrowed(y, inputs[0].dtype),)
        with np.errstate(all="ignore"):
            below = x - x.max(axis=axis, keepdims=True)
            y = below - np.log(np.exp(below).sum(axis=axis, keepdims=True))
        return (narrowed(y, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Maximum, difference, exponential, sum and difference of each element."""
        return 5 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        if any(at.axis(node.inputs[0], step) == self.axis for step in at.tails(node.inputs[0])):
            raise PaddingReaches(f"is {self.function} over it")
        return dict.fromkeys(at.tails(node.inputs[0]), ANYTHING)


_FUNCTION_OF = {"LogSoftmax": "log_softmax", "Hardmax": "hardmax"}


def import_line(node: NodeImport) -> None:
    axis = node.axis(node.integer("axis", -1), node.type(0).rank)
    node.emit(Line(_FUNCTION_OF[node.node.op_type], axis), [node.input(0)], 0)


def import_coerced_line(node: NodeImport) -> None:
    """Opsets below 13: over all axes from `axis` on, taken together."""
    x, shape, function = node.input(0), node.type(0).shape, _FUNCTION_OF[node.node.op_type]
    axis = node.integer("axis", 1)
    if axis != len(shape):
        axis = node.axis(axis, len(shape))
    flat = node.emit(Reshape((prod(shape[:axis]), prod(shape[axis:]))), [x])
    node.emit(Reshape(shape), [node.emit(Line(function, 1), [flat])], 0)


IMPORTERS = (
    *(Importer(name, (13,), import_line) for name in _FUNCTION_OF),
    *(Importer(name, (1, 11), import_coerced_line) for name in _FUNCTION_OF),
)
