"""ResNet-50, Wide ResNet-50-2 and ResNeXt-50 32x4d: torchvision's v1.5 (stride in the 3x3), BatchNormalization nodes
left in place."""

from __future__ import annotations

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder
from bolt_build.graph.zoo.resnet18 import stem

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, number of blocks, and stride of the first block; a block's output has four times its width."""
EXPANSION = 4


def _bottleneck(b: Builder, x: str, scope: str, fan: tuple[int, int, int], stride: int, groups: int) -> str:
    """1x1, 3x3 (strided, in groups) and 1x1 with a residual, which the first of a stage projects. `fan`: channels in,
    between, and out."""
    channels, width, out = fan
    y = b.conv(x, f"{scope}/conv1", (channels, width), 1)
    y = b.relu(b.batch_norm(y, f"{scope}/bn1", width), f"{scope}/relu")
    y = b.conv(y, f"{scope}/conv2", (width, width), 3, stride, groups=groups)
    y = b.relu(b.batch_norm(y, f"{scope}/bn2", width), f"{scope}/relu_1")
    y = b.conv(y, f"{scope}/conv3", (width, out), 1)
    y = b.batch_norm(y, f"{scope}/bn3", out)
    if channels != out:
        x = b.conv(x, f"{scope}/downsample/0", (channels, out), 1, stride)
        x = b.batch_norm(x, f"{scope}/downsample/1", out)
    return b.relu(b.node("Add", scope, [y, x]), f"{scope}/relu_2")


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    return _build("resnet50", 1)


def build_wide() -> onnx.ModelProto:
    """The same with twice the channels between a block's 1x1 convolutions."""
    return _build("wide_resnet50_2", 2)


def build_resnext() -> onnx.ModelProto:
    """The same with twice the channels there, in 32 groups: 4 each in the first stage."""
    return _build("resnext50_32x4d", 2, 32)


def _build(name: str, wider: int, groups: int = 1) -> onnx.ModelProto:
    b = Builder()
    x, channels = stem(b)
    for stage, (width, blocks, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            fan = (channels, width * wider, width * EXPANSION)
            x = _bottleneck(b, x, f"/layer{stage}/{block}", fan, stride if block == 0 else 1, groups)
            channels = width * EXPANSION
    b.linear(b.pooled(x), "/fc", (channels, CLASSES), "logits")
    return b.model(name)
