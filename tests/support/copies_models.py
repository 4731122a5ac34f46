"""Models whose engines copy nothing inside: branches that meet, channels that miss the alignment, a classifier."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper


@dataclass
class Net:
    """Collects nodes; weights are drawn from one generator."""

    random: np.random.RandomState = field(default_factory=lambda: np.random.RandomState(7))
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, *shape: int, scale: float) -> str:
        name = f"k{len(self.constants)}"
        values = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, name: str, channels: int, filters: int, kernel: int, stride: int = 1) -> str:
        """A convolution with bias and ReLU; its output is called `name`."""
        weights = self.constant(filters, channels, kernel, kernel, scale=(2 / (channels * kernel**2)) ** 0.5)
        bias = self.constant(filters, scale=0.1)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        self.nodes.append(
            helper.make_node("Conv", [x, weights, bias], [f"{name}.c"], name=f"{name}.c", pads=pads, strides=strides)
        )
        self.nodes.append(helper.make_node("Relu", [f"{name}.c"], [name], name=name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name


def branches() -> onnx.ModelProto:
    """Images of 64 channels: wide branches that meet, deep ones that do, channels that miss the alignment, and a
    classifier of the flattened rest."""
    net = Net()
    pooled = net.add("MaxPool", "pooled", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    wide = [net.conv("x", "wide1", 64, 64, 1), net.conv("x", "wide3", 64, 96, 3)]
    met = net.add("Concat", "met", wide[0], pooled, wide[1], axis=1)
    down = net.conv(met, "down", 224, 512, 3, 4)
    deep = [net.conv(down, "deep3", 512, 64, 3), net.conv(down, "deep1", 512, 40, 1), net.conv(down, "odd", 512, 24, 1)]
    together = net.add("Concat", "together", *deep, axis=1)
    narrow = net.conv(together, "narrow", 128, 46, 3)
    wider = net.conv(narrow, "wider", 46, 64, 3, 2)
    flat = net.add("Flatten", "flat", wider)
    weights, bias = net.constant(24, 64 * 4 * 4, scale=0.05), net.constant(24, scale=0.1)
    net.add("Gemm", "y", flat, weights, bias, transB=1)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        net.nodes, "branches", [value("x", TensorProto.FLOAT, ["N", 64, 28, 28])],
        [value("y", TensorProto.FLOAT, ["N", 24])], net.constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def parts() -> onnx.ModelProto:
    """Concatenations in outputs, of outputs, and with an input; slices of an input, and of what is computed."""
    net = Net()
    net.add("Relu", "a", "x")
    net.add("Tanh", "b", "x")
    net.add("Concat", "y", "a", "b", axis=1)
    for name, value in (("begin", 2), ("end", 6), ("axis", 1)):
        net.constants.append(numpy_helper.from_array(np.array([value], np.int64), name))
    net.add("Slice", "h", "x", "begin", "end", "axis")
    net.add("Softmax", "z", "h", axis=1)
    net.add("Neg", "m", "y")
    net.nodes.append(helper.make_node("Split", ["m"], ["p", "q"], name="p", axis=1, num_outputs=2))
    net.add("Mul", "w", "p", "q")
    net.add("Concat", "u", "w", "x", "w", axis=1)
    value = helper.make_tensor_value_info
    outputs = [value(name, TensorProto.FLOAT, ["N", count, 6]) for name, count in (("y", 16), ("z", 4), ("u", 24))]
    graph = helper.make_graph(net.nodes, "parts", [value("x", TensorProto.FLOAT, ["N", 8, 6])], outputs, net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
