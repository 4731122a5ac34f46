"""What the zoo's models are written with: ONNX nodes named after a module tree, weights that are zeros.

"/layer1/0/conv1/Conv" is the convolution of module `layer1.0.conv1`, its weight "layer1.0.conv1.weight", so that a
layer in a log is found at once. `calibrate` gives the weights their values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
CLASSES = 1000
IMAGE = (3, 224, 224)


class Builder:
    """Collects nodes and initializers; every method that makes a tensor returns its name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[tuple[str, tuple[int, ...], bool]] = []

    def node(self, op: str, scope: str, inputs: list[str], **attributes: Any) -> str:
        return self._add(op, scope, inputs, f"{scope}/{op}_output_0", attributes)

    def conv(
        self, x: str, scope: str, fan: tuple[int, int], kernel: int, stride: int = 1, *, bias: bool = False,
        groups: int = 1, pad: int | None = None,
    ) -> str:  # fmt: skip
        """Convolution `fan` = (channels in, out) in `groups`, with "same" padding for odd kernels, or `pad`."""
        pad, inputs = (
            kernel // 2 if pad is None else pad,
            [x, self._zeros(scope, "weight", fan[1], fan[0] // groups, kernel, kernel)],
        )
        if bias:
            inputs.append(self._zeros(scope, "bias", fan[1]))
        return self.node(
            "Conv", scope, inputs,
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1], group=groups,
        )  # fmt: skip

    def batch_norm(self, x: str, scope: str, channels: int, epsilon: float = 1e-5) -> str:
        parts = [self._zeros(scope, part, channels) for part in ("weight", "bias", "running_mean", "running_var")]
        return self.node("BatchNormalization", scope, [x, *parts], epsilon=epsilon)

    def relu(self, x: str, scope: str) -> str:
        return self.node("Relu", scope, [x])

    def clip(self, x: str, scope: str, low: float, high: float) -> str:
        """x between `low` and `high`, which are constants of the node's own."""
        return self.node(
            "Clip", scope, [x, self.scalar(scope, "Constant", low), self.scalar(scope, "Constant_1", high)]
        )

    def scalar(self, scope: str, name: str, value: float) -> str:
        """A number that is a node of its own."""
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return self._add("Constant", f"{scope}/{name}", [], f"{scope}/{name}_output_0", {"value": tensor})

    def parameter(self, scope: str, name: str, *shape: int) -> str:
        """A weight that belongs to module `scope` itself."""
        return self._zeros(scope, name, *shape)

    def layer_norm(self, x: str, scope: str, channels: int, epsilon: float) -> str:
        """x [..., C] normalised over its last axis."""
        parts = [self._zeros(scope, part, channels) for part in ("weight", "bias")]
        return self.node("LayerNormalization", scope, [x, *parts], axis=-1, epsilon=epsilon)

    def product(self, x: str, scope: str, fan: tuple[int, int]) -> str:
        """x [..., in] times a weight [in, out] plus a bias, in two nodes."""
        y = self.node("MatMul", scope, [x, self._zeros(scope, "weight", *fan)])
        return self.node("Add", scope, [self._zeros(scope, "bias", fan[1]), y])

    def silu(self, x: str, scope: str) -> str:
        """x times its sigmoid."""
        return self.node("Mul", scope, [x, self.node("Sigmoid", scope, [x])])

    def linear(self, x: str, scope: str, fan: tuple[int, int], output: str | None = None) -> str:
        """x [N, in] times a weight [out, in] plus a bias; `output` names the result where it is the model's own."""
        inputs = [x, self._zeros(scope, "weight", fan[1], fan[0]), self._zeros(scope, "bias", fan[1])]
        return self._add("Gemm", scope, inputs, output or f"{scope}/Gemm_output_0", {"transB": 1})

    def pooled(self, x: str) -> str:
        """The mean of each channel, [N, C]."""
        return self.node("Flatten", "", [self.node("GlobalAveragePool", "/avgpool", [x])], axis=1)

    def model(self, name: str) -> onnx.ModelProto:
        """All of it: from "input", f32 [N,3,224,224], to "logits", f32 [N,1000]."""
        return self.finish(
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *IMAGE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        )

    def finish(
        self, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """All of it, with these inputs and outputs. Weights are made in their place: both of onnx's helpers copy
        what they are given, of some models half a gigabyte."""
        graph = helper.make_graph(self._nodes, name, inputs, outputs)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opset, producer_name="bolt-build")
        for weight, shape, filled in self._weights:
            tensor = model.graph.initializer.add(name=weight, data_type=TensorProto.FLOAT, dims=shape)
            if filled:
                tensor.raw_data = zeros_of(tensor)
        return model

    def _zeros(self, scope: str, part: str, *shape: int) -> str:
        return self._weight(scope, part, shape, True)

    def _empty(self, scope: str, part: str, *shape: int) -> str:
        """A weight without data."""
        return self._weight(scope, part, shape, False)

    def _weight(self, scope: str, part: str, shape: tuple[int, ...], filled: bool) -> str:
        name = f"{scope[1:].replace('/', '.')}.{part}"
        self._weights.append((name, shape, filled))
        return name

    def _add(self, op: str, scope: str, inputs: list[str], output: str, attributes: dict[str, Any]) -> str:
        self._nodes.append(helper.make_node(op, inputs, [output], name=f"{scope}/{op}", **attributes))
        return output


def zeros_of(tensor: TensorProto) -> bytes:
    """The data of an f32 `tensor` that is zero everywhere."""
    return bytes(4 * math.prod(tensor.dims))
