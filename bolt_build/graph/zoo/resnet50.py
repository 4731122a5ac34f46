"""ResNet-50 as an ONNX graph: torchvision's v1.5 (the stride in the 3x3), BatchNormalization nodes left in place.

Names follow the module tree ("/layer1/0/conv1/Conv"), so that a layer in a log is found at once. The weights written
here are zeros of the right shapes: `calibrate` gives them their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
CLASSES = 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, number of blocks, and stride of the first block; a block's output has four times its width."""
EXPANSION = 4


class _Builder:
    """Collects nodes and initializers; every method returns the name of the tensor it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def zeros(self, name: str, *shape: int) -> str:
        self.initializers.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def node(self, op: str, scope: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{scope}/{op}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{scope}/{op}", **attributes))
        return output

    def conv(self, x: str, scope: str, fan: tuple[int, int], kernel: int, stride: int) -> str:
        """Convolution `fan` = (channels in, out) with "same" padding for odd kernels, and no bias."""
        pad = kernel // 2
        weight = self.zeros(f"{scope[1:].replace('/', '.')}.weight", fan[1], fan[0], kernel, kernel)
        return self.node(
            "Conv", scope, [x, weight],
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1], group=1,
        )  # fmt: skip

    def batch_norm(self, x: str, scope: str, channels: int) -> str:
        prefix = scope[1:].replace("/", ".")
        parts = [self.zeros(f"{prefix}.{p}", channels) for p in ("weight", "bias", "running_mean", "running_var")]
        return self.node("BatchNormalization", scope, [x, *parts], epsilon=1e-5)

    def relu(self, x: str, scope: str) -> str:
        return self.node("Relu", scope, [x])


def _bottleneck(b: _Builder, x: str, scope: str, fan: tuple[int, int], stride: int) -> str:
    """1x1, 3x3 (strided) and 1x1 with a residual, which the first of a stage projects. `fan`: channels in, width."""
    channels, width = fan
    out = width * EXPANSION
    y = b.conv(x, f"{scope}/conv1", (channels, width), 1, 1)
    y = b.relu(b.batch_norm(y, f"{scope}/bn1", width), f"{scope}/relu")
    y = b.conv(y, f"{scope}/conv2", (width, width), 3, stride)
    y = b.relu(b.batch_norm(y, f"{scope}/bn2", width), f"{scope}/relu_1")
    y = b.conv(y, f"{scope}/conv3", (width, out), 1, 1)
    y = b.batch_norm(y, f"{scope}/bn3", out)
    if channels != out:
        x = b.conv(x, f"{scope}/downsample/0", (channels, out), 1, stride)
        x = b.batch_norm(x, f"{scope}/downsample/1", out)
    return b.relu(b.node("Add", scope, [y, x]), f"{scope}/relu_2")


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = _Builder()
    x = b.conv("input", "/conv1", (3, 64), 7, 2)
    x = b.relu(b.batch_norm(x, "/bn1", 64), "/relu")
    x = b.node("MaxPool", "/maxpool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (width, blocks, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            x = _bottleneck(b, x, f"/layer{stage}/{block}", (channels, width), stride if block == 0 else 1)
            channels = width * EXPANSION
    x = b.node("GlobalAveragePool", "/avgpool", [x])
    x = b.node("Flatten", "", [x], axis=1)
    fc = [x, b.zeros("fc.weight", CLASSES, channels), b.zeros("fc.bias", CLASSES)]
    b.nodes.append(helper.make_node("Gemm", fc, ["logits"], name="/fc/Gemm", transB=1))
    graph = helper.make_graph(
        b.nodes,
        "resnet50",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        b.initializers,
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opset, producer_name="bolt-build")
