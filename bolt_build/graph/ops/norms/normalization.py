"""Normalisations over channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.limits import MOST_EXTENT
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.norms.norm import Norm, by_channel
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image


@dataclass(frozen=True)
class BatchNorm(Op):
    """Inference form: inputs x [N,C,...], scale, bias, mean, variance, each [C]."""

    kind = "batch_norm"
    epsilon: float

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 5)
        for t in inputs:
            expect_float(t)
        x = inputs[0]
        if x.rank < 2:
            raise ShapeError(f"input {list(x.shape)} must have batch and channels")
        for what, t in zip(("scale", "bias", "mean", "variance"), inputs[1:], strict=True):
            if t.shape != (x.shape[1],):
                raise ShapeError(f"{what} {list(t.shape)} must be [{x.shape[1]}], one a channel")
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        scale, bias, mean, variance = (widened(t).reshape(-1, *(1,) * (x.ndim - 2)) for t in inputs[1:])
        return (narrowed((x - mean) * (scale / np.sqrt(variance + self.epsilon)) + bias, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)


@dataclass(frozen=True)
class Lrn(Op):
    """Local response normalisation: x / (bias + alpha/size * sum of squares over `size` channels around) ** beta."""

    kind = "lrn"
    size: int
    alpha: float
    beta: float
    bias: float

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        expect_float(inputs[0])
        if inputs[0].rank < 2:
            raise ShapeError(f"input {list(inputs[0].shape)} must have batch and channels")
        if not 1 <= self.size <= MOST_EXTENT:
            raise ShapeError(f"size {self.size} must be 1 to {MOST_EXTENT}")
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x = widened(inputs[0])
        before, channels = (self.size - 1) // 2, x.shape[1]
        squares = np.zeros((x.shape[0], channels + self.size - 1, *x.shape[2:]))
        squares[:, before : before + channels] = x * x
        total = np.zeros_like(x)
        for shift in range(self.size):
            total += squares[:, shift : shift + channels]
        return (narrowed(x / (self.bias + self.alpha / self.size * total) ** self.beta, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * (self.size + 4)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """With the margin of channels."""
        x = inputs[0]
        return super().workspace(inputs, outputs) + x.elements // x.shape[1] * (x.shape[1] + self.size)

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)


def import_batch_norm(node: NodeImport) -> None:
    """With statistics of the model, or of the batch itself: PyTorch writes the latter where a layer keeps none. Before
    version 14 more outputs than y say so. Before version 9 scale and bias may be of each element (spatial=0)."""
    apart, epsilon, x = not node.integer("spatial", 1), node.real("epsilon", 1e-5), node.input(0)
    if node.integer("training_mode", 0) or (node.version < _SAYS_MODE and any(node.node.outputs[1:])):
        _normalised_by_batch(node, epsilon, apart)
        return
    given = [node.input(index) for index in range(1, 5)]
    if not apart:
        node.emit(BatchNorm(epsilon), [x, *given], 0)
        return
    images, *rest = node.type(0).shape
    each = [node.emit(Reshape((math.prod(rest),)), [name]) for name in given]
    flat = node.emit(BatchNorm(epsilon), [node.emit(Reshape((images, math.prod(rest))), [x]), *each])
    node.emit(Reshape((images, *rest)), [flat], 0)


_SAYS_MODE = 14
"""From this version on an attribute says whether statistics are the batch's."""


def _normalised_by_batch(node: NodeImport, epsilon: float, apart: bool) -> None:
    """By mean and variance over the batch and, unless `apart`, all pixels; with the running statistics that follow."""
    x, shape = node.input(0), node.type(0).shape
    axes = (0,) if apart else (0, *range(2, len(shape)))
    if len(shape) > 2 and shape[0] == 1 and not apart:
        axes = axes[1:]  # one image by itself, as weights that NFNets and BiT standardise
    vectors = [node.input(index) if apart else by_channel(node, index) for index in (1, 2)]
    node.emit(Norm("variance", axes, epsilon), [x, *vectors], 0)
    if node.version < _SAYS_MODE or not (node.wants(1) or node.wants(2)):
        return
    momentum = node.real("momentum", 0.9)
    mean = node.emit(Reduce("mean", axes), [x])
    for output, running in ((1, 3), (2, 4)):
        if not node.wants(output):
            continue
        found = mean
        if output == 2:
            deviation = node.emit(Binary("sub"), [x, mean])
            found = node.emit(Reduce("mean", axes), [node.emit(Binary("mul"), [deviation, deviation])])
        found = node.emit(Reshape(node.type(running).shape), [found])
        old = node.emit(Binary("mul"), [node.input(running), node.scalar_like(momentum, node.input(running))])
        new = node.emit(Binary("mul"), [found, node.scalar_like(1 - momentum, found)])
        node.emit(Binary("add"), [old, new], output)


def import_lrn(node: NodeImport) -> None:
    op = Lrn(node.integer("size"), node.real("alpha", 1e-4), node.real("beta", 0.75), node.real("bias", 1.0))
    node.emit(op, [node.input(0)], 0)


_NORMALIZED = Example((Data(IMAGE), *[Weights((IMAGE[1],))] * 4))

IMPORTERS = (
    Importer(
        "BatchNormalization",
        (7, 9, 14, 15),
        import_batch_norm,
        ignores=("momentum",),
        example=_NORMALIZED,
    ),
    Importer("LRN", (1, 13), import_lrn, example=Example((Data(IMAGE),), (("size", 3),))),
)
