"""DenseNet-121, as torchvision has it: every layer reads what all before it in its block have written, through
BatchNormalization and ReLU of its own."""

from __future__ import annotations

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

BLOCKS = (6, 12, 24, 16)
"""Layers of each block."""
STEM, GROWTH = 64, 32
BOTTLENECK = 4
"""The 1x1 convolution in front of a layer's 3x3 has so many times `GROWTH` channels."""


def _normed(b: Builder, x: str, scope: str, number: str, channels: int) -> str:
    return b.relu(b.batch_norm(x, f"{scope}/norm{number}", channels), f"{scope}/relu{number}")


def _layer(b: Builder, parts: list[str], scope: str, channels: int) -> str:
    """The channels that a layer adds to those of `parts`."""
    wide = BOTTLENECK * GROWTH
    y = _normed(b, b.node("Concat", scope, parts, axis=1), scope, "1", channels)
    y = _normed(b, b.conv(y, f"{scope}/conv1", (channels, wide), 1), scope, "2", wide)
    return b.conv(y, f"{scope}/conv2", (wide, GROWTH), 3)


def _transition(b: Builder, x: str, scope: str, channels: int) -> str:
    y = b.conv(_normed(b, x, scope, "", channels), f"{scope}/conv", (channels, channels // 2), 1)
    return b.node("AveragePool", f"{scope}/pool", [y], kernel_shape=[2, 2], strides=[2, 2])


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels = _normed(b, b.conv("input", "/features/conv0", (3, STEM), 7, 2), "/features", "0", STEM), STEM
    x = b.node("MaxPool", "/features/pool0", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for block, layers in enumerate(BLOCKS, start=1):
        scope, parts = f"/features/denseblock{block}", [x]
        for layer in range(1, layers + 1):
            parts.append(_layer(b, parts, f"{scope}/denselayer{layer}", channels))
            channels += GROWTH
        x = b.node("Concat", scope, parts, axis=1)
        if block < len(BLOCKS):
            x, channels = _transition(b, x, f"/features/transition{block}", channels), channels // 2
    x = b.relu(b.batch_norm(x, "/features/norm5", channels), "")
    b.linear(b.pooled(x), "/classifier", (channels, CLASSES), "logits")
    return b.model("densenet121")
