"""Gives any CNN-like ONNX graph seeded weights with which its outputs depend on its input.

Weights drawn at random make networks that answer nearly the same whatever they see, so that a wrong engine looks
right. Here every normalisation is calibrated on seeded data, layer by layer, as training would have left it:
BatchNormalization gets the mean and variance of what reaches it; a layer without one behind it is scaled to unit
variance and centred, channel by channel. The factors and summands of every normalisation are drawn.

The bits are the same on every machine: weights come from NumPy's legacy uniform generator, the forward pass runs in
float64, and statistics are rounded to 12 bits before anything is computed from them, far above what the order of a
sum can change.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from math import prod, sqrt

import numpy as np
import onnx

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.reference import evaluate_node
from bolt_build.graph.zoo.replace import replace_constants
from bolt_build.graph.zoo.samples import sample
from bolt_build.scratch import scratch_folder

SAMPLES = 4
BITS = 12
LEAST_VARIANCE = 2.0**-10
"""A channel that hardly varies is not blown up to unit variance."""
FACTORS = (0.7, 1.3)
SHIFTS = (0.2, 1.0)
"""What a channel is moved by behind its normalisation, in standard deviations. A ReLU around zero would cut half of
every layer and enlarge each rounding by a fifth: fifty layers of that drown a comparison in bf16."""
LAST_GAIN = 4.0
"""The last layers' outputs are this much larger, so that a Softmax behind them does not level them."""


def calibrate(
    model: onnx.ModelProto, seed: int, dims: tuple[tuple[str, int], ...] = (), only: frozenset[str] | None = None
) -> onnx.ModelProto:
    """A copy of `model` with seeded, calibrated values in every weight that it has, or in those named in `only`.

    Structure and names stay; weights that nodes make (ConstantOfShape) become initializers. `dims` binds symbolic
    dimensions other than the batch. Raises BoltError where the graph cannot be imported.
    """
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        imported = load_model(path)
    first = imported.inputs[0].dims
    batch = first[0] if first and isinstance(first[0], int) else 1
    run = _Calibration(imported.bind(batch, dims), seed, only)
    for node in run.graph.nodes:
        run.visit(node)
    return replace_constants(model, run.chosen)


@dataclass
class _Calibration:
    """The forward pass: values of every sample by tensor name, and the constants chosen so far."""

    graph: Graph
    seed: int
    only: frozenset[str] | None = None
    chosen: dict[str, Array] = field(default_factory=dict)
    _values: dict[str, list[Array]] = field(default_factory=dict)
    _readers: dict[str, int] = field(default_factory=dict)
    _inner: set[str] = field(default_factory=set)
    """Tensors that a later layer with weights depends on."""

    def __post_init__(self) -> None:
        for index, name in enumerate(self.graph.inputs):
            shape = self.graph.type(name).shape
            data = [sample(shape, self.seed, index, number) for number in range(SAMPLES)]
            self._values[name] = [array.astype(np.float64) for array in data]
        for node in reversed(self.graph.nodes):
            if isinstance(node.op, Conv | MatMul) or not self._inner.isdisjoint(node.outputs):
                self._inner.update(node.inputs)
            for name in node.inputs:
                self._readers[name] = self._readers.get(name, 0) + 1

    def visit(self, node: Node) -> None:
        """Chooses the node's constants, and computes its outputs for every sample."""
        op = node.op
        if isinstance(op, BatchNorm):
            self._batch_norm(node)
        elif isinstance(op, Norm):
            self._factors(*node.op_inputs[1:])
        elif isinstance(op, Conv | MatMul) and self._is_weight(node.inputs[1]):
            self._draw(node)
            normalised = all(isinstance(reader.op, BatchNorm) for reader in self.graph.consumers(node.outputs[0]))
            if not normalised or node.outputs[0] in self.graph.outputs:
                self._centre(node)
        elif isinstance(op, Binary):
            self._arithmetic(node, op)
        results = self._evaluate(node, node.inputs)
        for index, name in enumerate(node.outputs):
            self._values[name] = [result[index] for result in results]
        for name in node.inputs:
            self._readers[name] -= 1
            if self._readers[name] == 0:
                self._values.pop(name, None)

    def _is_weight(self, name: str) -> bool:
        """True for a constant of the model that is to have a value and has none yet."""
        if self.only is not None and name not in self.only:
            return False
        value = self.graph.value(name)
        is_float = value.type.dtype.is_float
        return value.constant is not None and not value.synthetic and is_float and name not in self.chosen

    def _choose(self, name: str, array: Array) -> None:
        """`array`, rounded to the element type of constant `name`, becomes its value."""
        kind = self.graph.type(name)
        self.chosen[name] = np.broadcast_to(array, kind.shape).astype(numpy_dtype(kind.dtype))

    def _array(self, name: str, number: int) -> Array:
        """The value of a tensor for sample `number`, floating point as float64."""
        if name in self._values:
            return self._values[name][number]
        array = self.chosen.get(name, self.graph.constant(name))
        assert array is not None, name
        return array.astype(np.float64) if self.graph.type(name).dtype.is_float else array

    def _evaluate(self, node: Node, inputs: tuple[str, ...]) -> list[tuple[Array, ...]]:
        return [evaluate_node(node, [self._array(name, k) for name in inputs]) for k in range(SAMPLES)]

    def _uniform(self, name: str, low: float, high: float) -> Array:
        """Numbers for constant `name` that depend on nothing but the seed and the name."""
        random = np.random.RandomState([self.seed, zlib.crc32(name.encode())])
        return random.uniform(low, high, self.graph.type(name).shape)

    def _batch_norm(self, node: Node) -> None:
        x, scale, bias, mean, variance = node.inputs
        centre, spread = _statistics([self._array(x, k) for k in range(SAMPLES)], axis=1)
        self._factors(scale, bias)
        if self._is_weight(mean) and self._is_weight(variance):
            self._choose(mean, centre)
            self._choose(variance, spread)

    def _factors(self, *names: str) -> None:
        """What a normalised tensor is multiplied by, and what is added to that."""
        for name, limits in zip(names, (FACTORS, SHIFTS), strict=False):
            if self._is_weight(name):
                self._choose(name, self._uniform(name, *limits))

    def _draw(self, node: Node) -> None:
        """He's uniform weights: the variance of the output is that of the input through a ReLU."""
        name = node.inputs[1]
        shape = self.graph.type(name).shape
        if isinstance(node.op, Conv):
            fan_in = prod(shape[1:])
        else:
            fan_in = shape[-1] if isinstance(node.op, MatMul) and node.op.transpose_b else shape[-2]
        bound = sqrt(6.0 / fan_in)
        self._choose(name, self._uniform(name, -bound, bound))
        if len(node.op_inputs) > 2 and self._is_weight(node.inputs[2]):
            self._choose(node.inputs[2], np.zeros(()))

    def _centre(self, node: Node) -> None:
        """Scales the weights by a power of two to about unit variance; the bias takes the mean out of each channel.

        Without a bias the weights lose the part along the mean of the input instead.
        """
        weight = node.inputs[1]
        axis = 1 if isinstance(node.op, Conv) else -1
        biased = len(node.op_inputs) > 2 and node.inputs[2] in self.chosen
        if not biased:
            self._choose(weight, self._without_mean(node))
        results = [outputs[0] for outputs in self._evaluate(node, node.inputs)]
        centre, spread = _statistics(results, axis)
        last = node.outputs[0] not in self._inner
        scale = (LAST_GAIN if last else 1.0) * 2.0 ** -np.round(0.5 * np.log2(max(float(spread.mean()), 2.0**-60)))
        self._choose(weight, self.chosen[weight].astype(np.float64) * scale)
        if biased:
            bias = node.inputs[2]
            shift = 0.0 if last else self._uniform(bias, *SHIFTS)
            self._choose(bias, shift - centre * scale)

    def _without_mean(self, node: Node) -> Array:
        """The weights less their projection on the mean input, so that the outputs' mean is about zero."""
        weight = self.chosen[node.inputs[1]].astype(np.float64)
        inputs = [self._array(node.inputs[0], k) for k in range(SAMPLES)]
        if isinstance(node.op, MatMul):
            mean, _ = _statistics(inputs, -2 if node.op.transpose_a else -1)
            along = -1 if node.op.transpose_b else -2
            mean = mean if along == -1 else mean[:, None]
            part = _rounded((weight * mean).sum(along, keepdims=True) / _squared(mean, None))
            return np.asarray(weight - part * mean)
        groups = node.op.groups if isinstance(node.op, Conv) else 1
        mean, _ = _statistics(inputs, 1)
        grouped = weight.reshape(groups, -1, *weight.shape[1:])
        spatial = (1,) * (weight.ndim - 2)
        mean = np.broadcast_to(mean.reshape(groups, 1, -1, *spatial), (groups, 1, *weight.shape[1:]))
        axes = tuple(range(2, grouped.ndim))
        part = _rounded((grouped * mean).sum(axes, keepdims=True) / _squared(mean, axes))
        return np.asarray(grouped - part * mean).reshape(weight.shape)

    def _arithmetic(self, node: Node, op: Binary) -> None:
        """Constant arrays that all have one value are placeholders too: factors about one, and summands."""
        for name in node.op_inputs:
            array = self.graph.constant(name)
            if array is None or array.size < 2 or not self._is_weight(name) or np.ptp(array) != 0:
                continue
            factor = op.function in ("mul", "div")
            self._choose(name, self._uniform(name, *(FACTORS if factor else SHIFTS)))


def _statistics(arrays: list[Array], axis: int) -> tuple[Array, Array]:
    """Mean and variance of each channel (along `axis`) over all samples and positions, rounded to `BITS` bits.

    The mean is rounded to a fraction of the standard deviation, and so does not hang on how it cancels.
    """
    channels = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in arrays]
    count = sum(part.shape[1] for part in channels)
    mean = sum((part.sum(1) for part in channels), np.zeros(len(channels[0]))) / count
    variance = sum((np.square(part - mean[:, None]).sum(1) for part in channels), np.zeros(len(mean))) / count
    variance = _rounded(np.maximum(variance, LEAST_VARIANCE))
    step = np.exp2(np.floor(0.5 * np.log2(variance)) - BITS)
    return np.round(mean / step) * step, variance


def _rounded(array: Array) -> Array:
    """Every number to `BITS` bits of mantissa."""
    mantissa, exponent = np.frexp(array)
    rounded: Array = np.ldexp(np.round(mantissa * 2.0**BITS), exponent - BITS)
    return rounded


def _squared(vector: Array, axes: tuple[int, ...] | None) -> Array:
    """The squared length along `axes`, kept away from zero."""
    return np.asarray(np.maximum(np.sum(vector**2, axis=axes, keepdims=True), 1e-30))
