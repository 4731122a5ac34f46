"""ResNet-18: torchvision's, BatchNormalization nodes left in place."""

from __future__ import annotations

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

STAGES = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))
"""Width, number of blocks, and stride of the first block."""
STEM = 64


def stem(b: Builder) -> tuple[str, int]:
    """What every ResNet begins with: a 7x7 and a max-pooling, both strided. The tensor and its channels."""
    x = b.conv("input", "/conv1", (3, STEM), 7, 2)
    x = b.relu(b.batch_norm(x, "/bn1", STEM), "/relu")
    return b.node("MaxPool", "/maxpool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), STEM


def _block(b: Builder, x: str, scope: str, fan: tuple[int, int], stride: int) -> str:
    """Two 3x3 (the first strided) with a residual, which the first of a strided stage projects. `fan`: channels."""
    channels, width = fan
    y = b.conv(x, f"{scope}/conv1", fan, 3, stride)
    y = b.relu(b.batch_norm(y, f"{scope}/bn1", width), f"{scope}/relu")
    y = b.conv(y, f"{scope}/conv2", (width, width), 3)
    y = b.batch_norm(y, f"{scope}/bn2", width)
    if channels != width or stride != 1:
        x = b.conv(x, f"{scope}/downsample/0", fan, 1, stride)
        x = b.batch_norm(x, f"{scope}/downsample/1", width)
    return b.relu(b.node("Add", scope, [y, x]), f"{scope}/relu_1")


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels = stem(b)
    for stage, (width, blocks, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            x = _block(b, x, f"/layer{stage}/{block}", (channels, width), stride if block == 0 else 1)
            channels = width
    b.linear(b.pooled(x), "/fc", (channels, CLASSES), "logits")
    return b.model("resnet18")
