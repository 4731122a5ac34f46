"""A small model of each kind, in which faults are planted: seeded, calibrated where there is a BatchNorm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.calibrate import calibrate


class _Net:
    """Nodes of one output each, which is called what the node is."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def node(self, op: str, name: str, *inputs: str, **attributes: object) -> str:
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))  # type: ignore[arg-type]
        return name

    def constant(self, name: str, array: Array | float) -> str:
        self._constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def normal(self, name: str, *shape: int, scale: float = 1.0) -> str:
        return self.constant(name, scale * self.random.standard_normal(shape))

    def conv(self, name: str, x: str, channels: int, out: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """With a BatchNorm behind it."""
        weight = self.constant(f"{name}.w", np.zeros((out, channels // group, kernel, kernel)))
        pads, strides = [kernel // 2] * 4, [stride] * 2
        y = self.node("Conv", f"{name}/conv", x, weight, pads=pads, strides=strides, group=group)
        return self.norm(f"{name}/bn", y, out)

    def norm(self, name: str, x: str, channels: int) -> str:
        parts = [self.constant(f"{name}.{part}", np.ones(channels)) for part in ("scale", "bias", "mean", "var")]
        return self.node("BatchNormalization", name, x, *parts, epsilon=1e-5)

    def silu(self, name: str, x: str) -> str:
        return self.node("Mul", f"{name}/silu", x, self.node("Sigmoid", f"{name}/sigmoid", x))

    def pooled(self, x: str, channels: int, classes: int = 16) -> str:
        flat = self.node("Flatten", "flat", self.node("GlobalAveragePool", "pool", x))
        weight, bias = self.constant("fc.w", np.zeros((classes, channels))), self.constant("fc.b", np.zeros(classes))
        return self.node("Gemm", "scores", flat, weight, bias, transB=1)

    def model(self, name: str, shape: list[int | str], output: str, made: list[int | str]) -> onnx.ModelProto:
        ports = [
            [helper.make_tensor_value_info(port, TensorProto.FLOAT, extents)]
            for port, extents in (("input", shape), (output, made))
        ]
        graph = helper.make_graph(self._nodes, name, *ports, self._constants)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


IMAGE: list[int | str] = ["N", 3, 32, 32]


def depthwise() -> onnx.ModelProto:
    """MobileNet's blocks: 1x1, depthwise 3x3, 1x1, and a sum."""
    net = _Net(1)
    x = net.node(
        "Clip", "stem/clip", net.conv("stem", "input", 3, 16, 3, 2), net.constant("low", 0), net.constant("high", 6)
    )
    for index, (channels, out, stride) in enumerate(((16, 16, 1), (16, 24, 2), (24, 24, 1))):
        name = f"block{index}"
        y = net.node("Relu", f"{name}/relu1", net.conv(f"{name}/expand", x, channels, 4 * channels))
        y = net.conv(f"{name}/depthwise", y, 4 * channels, 4 * channels, 3, stride, 4 * channels)
        y = net.node("HardSwish", f"{name}/hardswish", y)
        y = net.conv(f"{name}/project", y, 4 * channels, out)
        x = net.node("Add", f"{name}/add", y, x) if channels == out and stride == 1 else y
    return calibrate(net.model("depthwise", IMAGE, net.pooled(x, 24), ["N", 16]), 1)


def squeezed() -> onnx.ModelProto:
    """EfficientNet's blocks: a depthwise window, a gate of its means, and a sum."""
    net = _Net(2)
    x = net.silu("stem", net.conv("stem", "input", 3, 16, 3, 2))
    for index in range(3):
        name = f"block{index}"
        y = net.silu(f"{name}/expand", net.conv(f"{name}/expand", x, 16, 64))
        y = net.silu(f"{name}/depthwise", net.conv(f"{name}/depthwise", y, 64, 64, 3, 1, 64))
        gate = net.node("GlobalAveragePool", f"{name}/squeeze", y)
        gate = net.node("Conv", f"{name}/down", gate, net.normal(f"{name}.d", 8, 64, 1, 1), net.normal(f"{name}.db", 8))
        gate = net.silu(f"{name}/down", gate)
        gate = net.node("Conv", f"{name}/up", gate, net.normal(f"{name}.u", 64, 8, 1, 1), net.normal(f"{name}.ub", 64))
        y = net.node("Mul", f"{name}/gated", y, net.node("Sigmoid", f"{name}/gate", gate))
        x = net.node("Add", f"{name}/add", net.conv(f"{name}/project", y, 64, 16), x)
    return calibrate(net.model("squeezed", IMAGE, net.pooled(x, 16), ["N", 16]), 2)


def dense() -> onnx.ModelProto:
    """DenseNet's: every layer reads all before it, normalised before its convolution, with average poolings between."""
    net = _Net(3)
    x = net.node("MaxPool", "stem/pool", net.node("Relu", "stem/relu", net.conv("stem", "input", 3, 16, 3)),
                 kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])  # fmt: skip
    channels = 16
    for block in range(2):
        for index in range(3):
            name = f"block{block}/layer{index}"
            y = net.node("Relu", f"{name}/relu1", net.norm(f"{name}/norm", x, channels))
            y = net.node("Relu", f"{name}/relu2", net.conv(f"{name}/reduce", y, channels, 32))
            weight = net.constant(f"{name}.w", np.zeros((16, 32, 3, 3)))
            x = net.node(
                "Concat", f"{name}/concat", x, net.node("Conv", f"{name}/conv", y, weight, pads=[1] * 4), axis=1
            )
            channels += 16
        y = net.node("Relu", f"block{block}/relu", net.norm(f"block{block}/norm", x, channels))
        weight = net.constant(f"block{block}.w", np.zeros((channels // 2, channels, 1, 1)))
        y = net.node("Conv", f"block{block}/conv", y, weight)
        x = net.node("AveragePool", f"block{block}/pool", y, kernel_shape=[2, 2], strides=[2, 2])
        channels //= 2
    return calibrate(net.model("dense", IMAGE, net.pooled(x, channels), ["N", 16]), 3)


def attention() -> onnx.ModelProto:
    """A transformer's blocks as exporters decompose them: normalisation, attention and GELU in single operators."""
    net = _Net(4)
    x, width, heads = "input", 64, 4
    for index in range(2):
        name = f"block{index}"
        y = _normalized(net, f"{name}/norm1", x, width)
        parts = []
        for part in ("q", "k", "v"):
            z = net.node("MatMul", f"{name}/{part}", y, net.normal(f"{name}.{part}", width, width, scale=width**-0.5))
            z = net.node("Add", f"{name}/{part}/bias", z, net.normal(f"{name}.{part}b", width, scale=0.1))
            shape = net.node("Constant", f"{name}/{part}/shape", value_ints=[0, 0, heads, width // heads])
            z = net.node("Reshape", f"{name}/{part}/heads", z, shape)
            perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            parts.append(net.node("Transpose", f"{name}/{part}/turn", z, perm=perm))
        logits = net.node("MatMul", f"{name}/logits", parts[0], parts[1])
        logits = net.node("Mul", f"{name}/scale", logits, net.constant(f"{name}.scale", (width // heads) ** -0.5))
        y = net.node("MatMul", f"{name}/mix", net.node("Softmax", f"{name}/softmax", logits, axis=-1), parts[2])
        y = net.node("Transpose", f"{name}/back", y, perm=[0, 2, 1, 3])
        y = net.node("Reshape", f"{name}/joined", y, net.node("Constant", f"{name}/shape", value_ints=[0, 0, width]))
        y = net.node("MatMul", f"{name}/out", y, net.normal(f"{name}.out", width, width, scale=width**-0.5))
        x = net.node("Add", f"{name}/add1", y, x)
        y = _normalized(net, f"{name}/norm2", x, width)
        y = net.node("MatMul", f"{name}/up", y, net.normal(f"{name}.up", width, 2 * width, scale=width**-0.5))
        y = _gelu(net, f"{name}/gelu", net.node("Add", f"{name}/up/bias", y, net.normal(f"{name}.upb", 2 * width)))
        y = net.node(
            "MatMul", f"{name}/down", y, net.normal(f"{name}.down", 2 * width, width, scale=(2 * width) ** -0.5)
        )
        x = net.node("Add", f"{name}/add2", y, x)
    return net.model("attention", ["N", 24, width], x, ["N", 24, width])


def long_attention() -> onnx.ModelProto:
    """Nearly uniform attention over many rows that have much in common, which a bias takes away again: what weights'
    rounding does to it is the same in all rows, so the mean over them does not level it out."""
    net, random = _Net(5), np.random.RandomState(5)
    width, heads, rows = 32, 2, 700
    common = 4.0 * random.standard_normal(width)
    x = net.node("Add", "shift", "input", net.constant("common", common))
    parts = []
    for part in ("q", "k", "v"):
        weight = random.standard_normal((width, width)) * width**-0.5
        z = net.node("MatMul", part, x, net.constant(f"{part}.w", weight))
        z = net.node("Add", f"{part}/bias", z, net.constant(f"{part}.b", 0.1 - common @ weight))
        shape = net.node("Constant", f"{part}/shape", value_ints=[0, 0, heads, width // heads])
        z = net.node("Reshape", f"{part}/heads", z, shape)
        parts.append(net.node("Transpose", f"{part}/turn", z, perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]))
    logits = net.node("Mul", "scale", net.node("MatMul", "logits", parts[0], parts[1]), net.constant("small", 0.01))
    y = net.node("MatMul", "mix", net.node("Softmax", "softmax", logits, axis=-1), parts[2])
    y = net.node("Transpose", "back", y, perm=[0, 2, 1, 3])
    y = net.node("Reshape", "joined", y, net.node("Constant", "shape", value_ints=[0, 0, width]))
    return net.model("long", ["N", rows, width], y, ["N", rows, width])


def _normalized(net: _Net, name: str, x: str, width: int) -> str:
    below = net.node("Sub", f"{name}/sub", x, net.node("ReduceMean", f"{name}/mean", x, axes=[-1]))
    square = net.node("Pow", f"{name}/square", below, net.constant(f"{name}.two", 2))
    variance = net.node("ReduceMean", f"{name}/variance", square, axes=[-1])
    root = net.node(
        "Sqrt", f"{name}/root", net.node("Add", f"{name}/shift", variance, net.constant(f"{name}.eps", 1e-5))
    )
    scaled = net.node(
        "Mul", f"{name}/scaled", net.node("Div", f"{name}/div", below, root), net.normal(f"{name}.g", width)
    )
    return net.node("Add", f"{name}/out", scaled, net.normal(f"{name}.b", width))


def _gelu(net: _Net, name: str, x: str) -> str:
    inner = net.node("Erf", f"{name}/erf", net.node("Div", f"{name}/div", x, net.constant(f"{name}.root", 2**0.5)))
    shifted = net.node("Add", f"{name}/shift", inner, net.constant(f"{name}.one", 1))
    half = net.node("Mul", f"{name}/mul", x, shifted)
    return net.node("Mul", f"{name}/half", half, net.constant(f"{name}.half", 0.5))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "depthwise": depthwise, "squeezed": squeezed, "dense": dense, "attention": attention,
}  # fmt: skip
