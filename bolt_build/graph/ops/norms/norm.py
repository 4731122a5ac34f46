"""Normalisations by statistics of the data itself: layer, group, instance, root mean square, Lp, mean and variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, numpy_dtype, widened
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import NO_SCHEMA, Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Cast, Reshape
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_float
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tails
from bolt_build.graph.tail_rules import broadcast_tails

STATISTICS = ("variance", "deviation", "rms", "l1", "l2")


@dataclass(frozen=True)
class Norm(Op):
    """y = (x - m) f, times input 1 and plus input 2 where they are there, both broadcast to x.

    `statistic` over `axes` (non-negative, sorted) says what m and f are: "variance": the mean, and
    1 / sqrt(variance + epsilon); of the others m is 0 and f is that as well ("deviation"), 1 / sqrt(mean of squares +
    epsilon) ("rms"), 1 / sum of magnitudes ("l1") or 1 / sqrt(sum of squares) ("l2"), of which epsilon is the least
    that is divided by; the latter two are 0 where that is. Axis 1, where it is one of `axes`, is cut in `groups` equal
    parts that are normalised each by itself.
    """

    kind = "norm"
    statistic: str
    axes: tuple[int, ...]
    epsilon: float = 0.0
    groups: int = 1

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1, 3)
        for t in inputs:
            expect_float(t)
        x = inputs[0]
        if self.statistic not in STATISTICS:
            raise ShapeError(f"statistic '{self.statistic}' is none of {', '.join(STATISTICS)}")
        if self.axes != tuple(sorted(set(self.axes))) or any(not 0 <= axis < x.rank for axis in self.axes):
            raise ShapeError(f"axes {list(self.axes)} must be sorted axes of the input {list(x.shape)}, each once")
        if not self.axes:
            raise ShapeError("normalises over no axis")
        if self.groups != 1 and (1 not in self.axes or self.groups < 1 or x.shape[1] % self.groups):
            raise ShapeError(f"{list(x.shape)} cannot be cut in {self.groups} groups of channels")
        for what, t in zip(("scale", "bias"), inputs[1:], strict=False):
            if broadcast(x.shape, t.shape) != x.shape:
                raise ShapeError(f"{what} {list(t.shape)} does not broadcast to {list(x.shape)}")
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        shape, axes = x.shape, self.axes
        if self.groups != 1:
            x = x.reshape(shape[0], self.groups, shape[1] // self.groups, *shape[2:])
            axes = tuple(axis + 1 if axis else 0 for axis in axes)
        with np.errstate(all="ignore"):
            y = self._normalised(x, axes).reshape(shape)
            if len(inputs) > 1:
                y = y * widened(inputs[1])
            if len(inputs) > 2:
                y = y + widened(inputs[2])
        return (narrowed(y, inputs[0].dtype),)

    def _normalised(self, x: Array, axes: tuple[int, ...]) -> Array:
        if self.statistic in ("variance", "deviation"):
            deviation = x - x.mean(axis=axes, keepdims=True)
            variance = np.square(deviation).mean(axis=axes, keepdims=True)
            return np.asarray((deviation if self.statistic == "variance" else x) / np.sqrt(variance + self.epsilon))
        if self.statistic == "rms":
            return np.asarray(x / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + self.epsilon))
        if self.statistic == "l1":
            length = np.abs(x).sum(axis=axes, keepdims=True)
        else:
            length = np.sqrt(np.square(x).sum(axis=axes, keepdims=True))
        length = np.maximum(length, self.epsilon)
        return np.asarray(np.where(length == 0.0, 0.0 * x, x / length))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Sum, difference, square, sum, difference, and three products and sums of each element."""
        return 8 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        if any(at.axis(node.inputs[0], step) in self.axes for step in at.tails(node.inputs[0])):
            raise PaddingReaches("normalises over it")
        return dict.fromkeys(broadcast_tails(node, at), ANYTHING)


def _check_stash_type(node: NodeImport) -> None:
    """Statistics are kept in fp32, which is as wide as any half precision that is asked for."""
    stash = node.integer("stash_type", 1)
    if stash not in (1, 10, 16):
        raise Refusal("unsupported-attribute", f"stash_type {stash} is not supported (statistics are in fp32)")


def _trailing(node: NodeImport) -> tuple[int, ...]:
    rank = node.type(0).rank
    return tuple(range(node.axis(node.integer("axis", -1), rank), rank))


def import_layer_norm(node: NodeImport) -> None:
    """With its mean and the inverse of its standard deviation, computed apart where somebody asks for them."""
    _check_stash_type(node)
    axes, epsilon = _trailing(node), node.real("epsilon", 1e-5)
    extents, x = node.type(0).shape[axes[0] :], node.input(0)
    inputs = [node.input(index) for index in range(max(node.count(), 2))]
    for what, name in zip(("scale", "bias"), inputs[1:], strict=False):
        shape = node.type_of(name).shape
        if broadcast(extents, shape) != extents:
            raise ShapeError(f"{what} {list(shape)} does not broadcast to {list(extents)}, over which is normalised")
    node.emit(Norm("variance", axes, epsilon), inputs, 0)
    outputs = (*node.node.outputs, "", "")
    if not (outputs[1] or outputs[2]):
        return
    if node.type(0).dtype in (DType.F16, DType.BF16):
        x = node.emit(Cast(DType.F32), [x])
    mean = node.emit(Reduce("mean", axes), [x], 1 if outputs[1] else None)
    if outputs[2]:
        deviation = node.emit(Binary("sub"), [x, mean])
        variance = node.emit(Reduce("mean", axes), [node.emit(Binary("mul"), [deviation, deviation])])
        shifted = node.emit(Binary("add"), [variance, node.scalar_like(epsilon, variance)])
        node.emit(Activation("reciprocal"), [node.emit(Activation("sqrt"), [shifted])], 2)


def import_rms_norm(node: NodeImport) -> None:
    _check_stash_type(node)
    node.emit(Norm("rms", _trailing(node), node.real("epsilon", 1e-5)), [node.input(0), node.input(1)], 0)


def by_channel(node: NodeImport, index: int) -> str:
    """A vector of one number a channel as [C,1,...], one that broadcasts to input 0."""
    (channels,) = node.type(index).shape
    return node.emit(Reshape((channels, *(1,) * (node.type(0).rank - 2))), [node.input(index)])


def _check_channels(node: NodeImport, extent: int, each: str) -> None:
    """Raises ShapeError unless inputs 1 and 2 are vectors of `extent`, and input 0 has channels."""
    if node.type(0).rank < 2:
        raise ShapeError(f"input {list(node.type(0).shape)} must have batch and channels")
    for index, what in ((1, "scale"), (2, "bias")):
        if node.type(index).shape != (extent,):
            raise ShapeError(f"{what} {list(node.type(index).shape)} must be [{extent}], one a {each}")


def import_group_norm(node: NodeImport) -> None:
    """Scale and bias have one number a group in version 18, one a channel since 21."""
    if node.version >= 21:
        _check_stash_type(node)
    groups, epsilon = node.integer("num_groups"), node.real("epsilon", 1e-5)
    rank, channels = node.type(0).rank, node.type(0).shape[1] if node.type(0).rank > 1 else 0
    if groups < 1 or channels % groups:
        raise ShapeError(f"{channels} channels cannot be cut in {groups} groups")
    op = Norm("variance", tuple(range(1, rank)), epsilon, groups)
    if node.version >= 21:
        _check_channels(node, channels, "channel")
        node.emit(op, [node.input(0), by_channel(node, 1), by_channel(node, 2)], 0)
        return
    _check_channels(node, groups, "group")
    spread = []
    for index in (1, 2):
        each = node.emit(Reshape((groups, 1)), [node.input(index)])
        ones = node.helper(np.ones((1, channels // groups), numpy_dtype(node.type(index).dtype)), "ones")
        repeated = node.emit(Binary("mul"), [each, ones])
        spread.append(node.emit(Reshape((channels, *(1,) * (rank - 2))), [repeated]))
    node.emit(op, [node.input(0), *spread], 0)


def import_instance_norm(node: NodeImport) -> None:
    rank = node.type(0).rank
    if rank < 3:
        raise ShapeError(f"input {list(node.type(0).shape)} must have batch, channels and at least one spatial axis")
    _check_channels(node, node.type(0).shape[1], "channel")
    op = Norm("variance", tuple(range(2, rank)), node.real("epsilon", 1e-5))
    node.emit(op, [node.input(0), by_channel(node, 1), by_channel(node, 2)], 0)


def import_lp_norm(node: NodeImport) -> None:
    axis, p = node.axis(node.integer("axis", -1), node.type(0).rank), node.integer("p", 2)
    if p not in (1, 2):
        raise Refusal("unsupported-attribute", f"p {p} is not supported (only 1 and 2)")
    node.emit(Norm(f"l{p}", (axis,)), [node.input(0)], 0)


_MVN_EPSILON = 1e-18
"""Added to a variance, as 1e-9 is to the standard deviation in ONNX's definition: it only keeps zeros zero."""


def import_mean_variance(node: NodeImport) -> None:
    axes = tuple(sorted(node.axes(node.integers("axes", (0, 2, 3)), node.type(0).rank)))
    node.emit(Norm("variance", axes, _MVN_EPSILON), [node.input(0)], 0)


_VECTOR = Weights((IMAGE[1],))
_ROWS = Weights((IMAGE[-1],))
_OF_GROUPS = Example((Data(IMAGE), _VECTOR, _VECTOR), (("num_groups", 2),))

IMPORTERS = (
    Importer("LayerNormalization", (NO_SCHEMA, 17), import_layer_norm, example=Example((Data(IMAGE), _ROWS, _ROWS))),
    Importer("SimplifiedLayerNormalization", (NO_SCHEMA,), import_rms_norm, example=Example((Data(IMAGE), _ROWS))),
    Importer("RMSNormalization", (23,), import_rms_norm, example=Example((Data(IMAGE), _ROWS))),
    Importer("GroupNormalization", (18, 21), import_group_norm, example=_OF_GROUPS),
    Importer("InstanceNormalization", (6, 22), import_instance_norm, example=Example((Data(IMAGE), _VECTOR, _VECTOR))),
    Importer("LpNormalization", (1, 22), import_lp_norm),
    Importer("MeanVarianceNormalization", (9, 13), import_mean_variance),
)
