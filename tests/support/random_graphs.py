"""Seeded random CNN-like ONNX models: `random_model(seed)`.

Eight to some twenty-five nodes over a small image; odd sizes and channel counts, branches that join by Add, Concat or
Mul, and every operator that an engine must know. Weights are He-scaled and every few layers are normalised, so numbers
stay near one and a comparison in fp32 means something. `tests/graph/test_zoo_random_graphs.py` says what is
promised of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (13, 14, 15, 16, 17)
T = TypeVar("T")
FloatArray = npt.NDArray[np.float32]


@dataclass
class Tensor:
    """A feature map of the graph under construction; the batch axis is symbolic."""

    name: str
    channels: int
    height: int
    width: int


@dataclass
class _Growing:
    """The graph under construction, and the source of its decisions."""

    random: np.random.RandomState
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def integer(self, low: int, high: int) -> int:
        """Uniform in [low, high]."""
        return int(self.random.randint(low, high + 1))

    def choose(self, *options: T) -> T:
        return options[int(self.random.randint(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random_sample() < probability)

    def uniform(self, low: float, high: float, *shape: int) -> FloatArray:
        return self.random.uniform(low, high, shape).astype(np.float32)

    def constant(self, array: npt.NDArray[np.generic]) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        index = len(self.nodes)
        output = f"t{index}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"{op}_{index}", **attributes))
        return output


def _weights(g: _Growing, out: int, fan_in: int, *kernel: int, gain: float = 2.0) -> str:
    """He-uniform weights [out, fan_in, *kernel]."""
    bound = (3.0 * gain / (fan_in * int(np.prod(kernel)))) ** 0.5
    return g.constant(g.uniform(-bound, bound, out, fan_in, *kernel))


def _conv(g: _Growing, x: Tensor) -> Tensor:
    """Any convolution that fits: strides, asymmetric pads, dilations, groups, depthwise, auto_pad."""
    limit = min(x.height, x.width)
    kernel = (g.choose(1, 1, 2, 3, 3, 5), g.choose(1, 3, 3, 3, 2))
    stride = (g.choose(1, 1, 2), g.choose(1, 1, 2))
    dilation = g.choose((1, 1), (1, 1), (2, 1), (2, 2)) if limit >= 9 else (1, 1)
    divisors = [d for d in range(1, x.channels + 1) if x.channels % d == 0]
    groups = g.choose(1, 1, 1, x.channels, g.choose(*divisors))
    out = groups * g.integer(1, max(1, 24 // groups)) if groups < x.channels else x.channels * g.choose(1, 1, 2)
    inputs = [x.name, _weights(g, out, x.channels // groups, *kernel)]
    if g.chance(0.6):
        inputs.append(g.constant(g.uniform(-0.3, 0.3, out)))
    common = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "group": groups}
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    if g.chance(0.2) and dilation == (1, 1):
        name = g.node("Conv", *inputs, auto_pad=g.choose("SAME_UPPER", "SAME_LOWER"), **common)
        return Tensor(name, out, -(-x.height // stride[0]), -(-x.width // stride[1]))
    pads = [g.integer(0, reach[i % 2] // 2) for i in range(4)]
    while x.height + pads[0] + pads[2] < reach[0] or x.width + pads[1] + pads[3] < reach[1]:
        pads = [pad + 1 for pad in pads]
    name = g.node("Conv", *inputs, pads=pads, **common)
    height = (x.height + pads[0] + pads[2] - reach[0]) // stride[0] + 1
    width = (x.width + pads[1] + pads[3] - reach[1]) // stride[1] + 1
    return Tensor(name, out, height, width)


def _same_conv(g: _Growing, x: Tensor, out: int) -> Tensor:
    """A convolution that keeps height and width, to `out` channels: branches are made of these."""
    kernel = g.choose(1, 3)
    pad = kernel // 2
    inputs = [x.name, _weights(g, out, x.channels, kernel, kernel)]
    if g.chance(0.5):
        inputs.append(g.constant(g.uniform(-0.3, 0.3, out)))
    return Tensor(g.node("Conv", *inputs, pads=[pad] * 4), out, x.height, x.width)


def _pool(g: _Growing, x: Tensor) -> Tensor:
    """MaxPool or AveragePool, also with ceil_mode, padding that counts or does not, and overlapping windows."""
    op = g.choose("MaxPool", "AveragePool")
    kernel = (g.choose(2, 3), g.choose(2, 3))
    stride = (g.choose(1, 2), g.choose(1, 2, 3))
    pads = [g.integer(0, kernel[i % 2] // 2) for i in range(4)]
    if x.height + pads[0] + pads[2] < kernel[0] or x.width + pads[1] + pads[3] < kernel[1]:
        return x
    spans = [size + pads[i] + pads[i + 2] - kernel[i] for i, size in enumerate((x.height, x.width))]
    beyond = [(-(-span // stride[i])) * stride[i] - span >= kernel[i] - pads[i + 2] for i, span in enumerate(spans)]
    # Where the rounded-up window would start in the end padding, ONNX's shape inference and runtimes disagree.
    ceil = 0 if any(beyond) else g.choose(0, 1)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": pads, "ceil_mode": ceil}
    if op == "AveragePool":
        attributes["count_include_pad"] = g.choose(0, 1)
    height, width = ((-(-span // stride[i]) if ceil else span // stride[i]) + 1 for i, span in enumerate(spans))
    return Tensor(g.node(op, x.name, **attributes), x.channels, height, width)


def _batch_norm(g: _Growing, x: Tensor) -> Tensor:
    c = x.channels
    parts = [g.uniform(0.7, 1.3, c), g.uniform(-0.3, 0.3, c), g.uniform(-0.2, 0.2, c), g.uniform(0.5, 2.0, c)]
    name = g.node("BatchNormalization", x.name, *(g.constant(part) for part in parts), epsilon=g.choose(1e-5, 1e-3))
    return Tensor(name, c, x.height, x.width)


def _activation(g: _Growing, x: Tensor) -> Tensor:
    """One activation, or one of those that exporters write as several nodes."""
    simple: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Relu", {}), ("Relu", {}), ("LeakyRelu", {"alpha": 0.1}), ("Sigmoid", {}), ("Tanh", {}), ("Softplus", {}),
        ("HardSigmoid", {"alpha": 0.25, "beta": 0.4}), ("Erf", {}),
    )  # fmt: skip
    kind = g.integer(0, len(simple) + 4)
    if kind < len(simple):
        op, attributes = simple[kind]
        name = g.node(op, x.name, **attributes)
    elif kind == len(simple):
        name = g.node("Clip", x.name, g.scalar(0.0), g.scalar(6.0))
    elif kind == len(simple) + 1:
        gate = g.node("Clip", g.node("Add", x.name, g.scalar(3.0)), g.scalar(0.0), g.scalar(6.0))
        name = g.node("Div", g.node("Mul", x.name, gate), g.scalar(6.0))
    elif kind == len(simple) + 2:
        erf = g.node("Erf", g.node("Div", x.name, g.scalar(2.0**0.5)))
        name = g.node("Mul", g.node("Mul", x.name, g.node("Add", erf, g.scalar(1.0))), g.scalar(0.5))
    elif kind == len(simple) + 3 and g.opset >= 14:
        name = g.node("HardSwish", x.name)
    else:
        name = g.node("Mul", x.name, g.node("Sigmoid", x.name))
    return Tensor(name, x.channels, x.height, x.width)


def _residual(g: _Growing, x: Tensor) -> Tensor:
    """x + f(x), in either order of operands; sometimes through Sum."""
    y = _same_conv(g, x, x.channels)
    if g.chance(0.5):
        y = _same_conv(g, _activation(g, y), x.channels)
    sides = (y.name, x.name) if g.chance(0.5) else (x.name, y.name)
    name = g.node(g.choose("Add", "Add", "Sum"), *sides)
    joined = Tensor(name, x.channels, x.height, x.width)
    return _activation(g, joined) if g.chance(0.7) else joined


def _branches(g: _Growing, x: Tensor) -> Tensor:
    """Two or three branches joined along the channels."""
    parts = []
    for _ in range(g.integer(2, 3)):
        y = _same_conv(g, x, g.integer(1, 11))
        parts.append(_activation(g, y) if g.chance(0.5) else y)
    if g.chance(0.3):
        parts.append(x)
    name = g.node("Concat", *(part.name for part in parts), axis=1)
    return Tensor(name, sum(part.channels for part in parts), x.height, x.width)


def _squeeze_excite(g: _Growing, x: Tensor) -> Tensor:
    """x * gate(mean of x), the gate a pair of 1x1 convolutions."""
    hidden = g.integer(1, 5)
    mean = (
        g.node("GlobalAveragePool", x.name) if g.chance(0.5) else g.node("ReduceMean", x.name, axes=[2, 3], keepdims=1)
    )
    squeezed = g.node("Relu", g.node("Conv", mean, _weights(g, hidden, x.channels, 1, 1)))
    bias = g.constant(g.uniform(-0.3, 0.3, x.channels))
    gate = g.node(
        g.choose("Sigmoid", "HardSigmoid"), g.node("Conv", squeezed, _weights(g, x.channels, hidden, 1, 1), bias)
    )
    return Tensor(g.node("Mul", x.name, gate), x.channels, x.height, x.width)


def _per_channel(g: _Growing, x: Tensor) -> Tensor:
    """Arithmetic with one constant a channel."""
    op = g.choose("Mul", "Add", "Sub", "Div")
    low, high = (0.6, 1.4) if op in ("Mul", "Div") else (-0.4, 0.4)
    name = g.node(op, x.name, g.constant(g.uniform(low, high, x.channels, 1, 1)))
    return Tensor(name, x.channels, x.height, x.width)


def _pad(g: _Growing, x: Tensor) -> Tensor:
    mode = g.choose("constant", "constant", "reflect", "edge")
    pads = [0, 0, g.integer(0, 2), g.integer(0, 2), 0, 0, g.integer(0, 2), g.integer(0, 2)]
    if min(x.height, x.width) <= 2:
        mode = "constant"
    inputs = [x.name, g.integers(*pads)]
    if mode == "constant" and g.chance(0.5):
        inputs.append(g.scalar(0.5))
    name = g.node("Pad", *inputs, mode=mode)
    return Tensor(name, x.channels, x.height + pads[2] + pads[6], x.width + pads[3] + pads[7])


def _slice(g: _Growing, x: Tensor) -> Tensor:
    """Some of the channels, or some of the rows; now and then with a step, or counted from the end."""
    axis = g.choose(1, 2)
    extent = x.channels if axis == 1 else x.height
    begin = g.integer(0, max(0, extent // 3))
    step = g.choose(1, 1, 2)
    end = g.choose(extent, 2**31 - 1, extent - 1 if extent - begin > 2 else extent)
    count = -(-(min(end, extent) - begin) // step)
    name = g.node("Slice", x.name, g.integers(begin), g.integers(end), g.integers(axis), g.integers(step))
    return Tensor(name, count, x.height, x.width) if axis == 1 else Tensor(name, x.channels, count, x.width)


def _transpose(g: _Growing, x: Tensor) -> Tensor:
    """Height and width swapped, or to channels last, an activation there, and back."""
    if g.chance(0.5):
        return Tensor(g.node("Transpose", x.name, perm=[0, 1, 3, 2]), x.channels, x.width, x.height)
    last = g.node("Relu", g.node("Transpose", x.name, perm=[0, 2, 3, 1]))
    return Tensor(g.node("Transpose", last, perm=[0, 3, 1, 2]), x.channels, x.height, x.width)


def _shuffle(g: _Growing, x: Tensor) -> Tensor:
    """ShuffleNet's exchange of channels between groups."""
    groups = next((d for d in (2, 3, 5) if x.channels % d == 0), 1)
    split = g.node("Reshape", x.name, g.integers(-1, groups, x.channels // groups, x.height, x.width))
    swapped = g.node("Transpose", split, perm=[0, 2, 1, 3, 4])
    return Tensor(
        g.node("Reshape", swapped, g.integers(-1, x.channels, x.height, x.width)), x.channels, x.height, x.width
    )


def _lrn(g: _Growing, x: Tensor) -> Tensor:
    name = g.node("LRN", x.name, size=g.choose(3, 5), alpha=g.choose(1e-4, 0.1), beta=0.75, bias=g.choose(1.0, 2.0))
    return Tensor(name, x.channels, x.height, x.width)


def _bypass(g: _Growing, x: Tensor) -> Tensor:
    """What inference leaves out: Identity and Dropout."""
    return Tensor(g.node(g.choose("Identity", "Dropout"), x.name), x.channels, x.height, x.width)


BLOCKS: tuple[tuple[int, Callable[[_Growing, Tensor], Tensor]], ...] = (
    (6, _conv), (3, _pool), (3, _batch_norm), (4, _activation), (4, _residual), (2, _branches), (1, _squeeze_excite),
    (1, _per_channel), (1, _pad), (1, _slice), (1, _transpose), (1, _shuffle), (1, _lrn), (1, _bypass),
)  # fmt: skip
"""What a graph is made of, with how often."""


def _classifier(g: _Growing, x: Tensor) -> tuple[str, list[int]]:
    """The end of the graph: a pooled, flattened, fully connected one, or the feature map itself."""
    if g.chance(0.15):
        return x.name, [x.channels, x.height, x.width]
    if g.chance(0.3):
        flat, features = g.node("Flatten", x.name), x.channels * x.height * x.width
    elif g.chance(0.5):
        flat, features = g.node("Flatten", g.node("GlobalAveragePool", x.name)), x.channels
    else:
        flat, features = g.node("ReduceMean", x.name, axes=[2, 3], keepdims=0), x.channels
    classes = g.integer(2, 13)
    if g.chance(0.7):
        bias = g.constant(g.uniform(-0.3, 0.3, classes))
        y = g.node("Gemm", flat, _weights(g, classes, features, gain=1.0), bias, transB=1)
    else:
        bound = (3.0 / features) ** 0.5
        y = g.node("MatMul", flat, g.constant(g.uniform(-bound, bound, features, classes)))
    if g.chance(0.5):
        y = g.node("Softmax", y, axis=g.choose(1, -1))
    return y, [classes]


def random_model(seed: int, batch: int | str = "N") -> onnx.ModelProto:
    """The model of `seed`: input "input" f32 [batch, C, H, W] (spatial extents up to 33), output "output" f32."""
    random = np.random.RandomState(seed)
    g = _Growing(random, OPSETS[seed % len(OPSETS)])
    x = first = Tensor("input", g.choose(1, 3, 3, 4, 5), g.integer(9, 33), g.integer(9, 33))
    x = _conv(g, x)
    blocks = [block for weight, block in BLOCKS for _ in range(weight)]
    wanted = g.integer(6, 16)
    while len(g.nodes) < wanted:
        x = g.choose(*blocks)(g, x)
        if x.channels > 40:
            x = _same_conv(g, x, g.integer(3, 17))
    name, tail = _classifier(g, x)
    g.nodes.append(helper.make_node("Identity", [name], ["output"], name="output"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        g.nodes,
        f"random_{seed}",
        [info("input", TensorProto.FLOAT, [batch, first.channels, first.height, first.width])],
        [info("output", TensorProto.FLOAT, [batch, *tail])],
        g.initializers,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", g.opset)])
