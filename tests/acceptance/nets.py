"""Small networks for engines that are broken on purpose, weights calibrated so that outputs depend on inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.zoo.calibrate import calibrate

OPSET = 17


@dataclass
class Growing:
    """Nodes and placeholders for weights of a network under construction; a node has its output's name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, name: str, *shape: int, value: float = 0.0) -> str:
        self.initializers.append(numpy_helper.from_array(np.full(shape, value, np.float32), name))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: int | float | list[int]) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, name: str, x: str, channels: int, out: int) -> str:
        """A 3x3 convolution of `channels` to `out`, normalised: nodes `name` and `name/bn`."""
        y = self.node("Conv", name, x, self.weight(f"{name}.w", out, channels, 3, 3), pads=[1, 1, 1, 1])
        parts = [self.weight(f"{name}.{what}", out, value=1.0) for what in ("scale", "bias", "mean", "var")]
        return self.node("BatchNormalization", f"{name}/bn", y, *parts, epsilon=1e-5)

    def model(self, shape: list[int | str], output: str, out: list[int | str], seed: int) -> onnx.ModelProto:
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "net", [info("image", TensorProto.FLOAT, shape)], [info(output, TensorProto.FLOAT, out)],
            self.initializers,
        )  # fmt: skip
        opset = helper.make_opsetid("", OPSET)
        return calibrate(helper.make_model(graph, ir_version=8, opset_imports=[opset]), seed)


def residual_net(seed: int = 1) -> onnx.ModelProto:
    """Two residual joins whose skipped tensors, "a" and "b", are of one shape and alive at once; then a classifier."""
    g = Growing()
    a = g.node("Relu", "a", g.conv("conv1", "image", 3, 8))
    b = g.node("Relu", "b", g.conv("conv2", a, 8, 8))
    c = g.node("Relu", "c", g.node("Add", "join1", g.conv("conv3", b, 8, 8), a))
    d = g.node("Relu", "d", g.node("Add", "join2", g.conv("conv4", c, 8, 8), b))
    flat = g.node("Flatten", "flat", g.node("GlobalAveragePool", "mean", d))
    scores = g.node("Gemm", "scores", flat, g.weight("fc.w", 5, 8), g.weight("fc.b", 5), transB=1)
    return g.model(["N", 3, 13, 11], scores, ["N", 5], seed)


def pooling_net(seed: int = 1) -> onnx.ModelProto:
    """Two convolutions, the second ("conv2") of twelve channels, and average pooling ("pool") with padding."""
    g = Growing()
    x = g.node("Relu", "relu1", g.conv("conv1", "image", 3, 8))
    x = g.node("AveragePool", "pool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=0)
    x = g.node("Relu", "relu2", g.conv("conv2", x, 8, 12))
    x = g.node("Tanh", "tanh", g.node("ReduceMean", "mean", x, axes=[2, 3], keepdims=0))
    scores = g.node("Gemm", "scores", x, g.weight("fc.w", 7, 12), g.weight("fc.b", 7), transB=1)
    return g.model(["N", 3, 15, 12], scores, ["N", 7], seed)
