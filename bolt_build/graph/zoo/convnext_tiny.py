"""ConvNeXt-Tiny, as torchvision has it: 7x7 depthwise convolutions, LayerNormalization over channels, and two products
with GELU between them.

Its stochastic depth is for training and leaves no node.
"""

from __future__ import annotations

from math import sqrt

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))
"""Channels and blocks."""
PATCH = 4
"""Window and stride of the first convolution."""
EXPANSION = 4
EPSILON = 1e-6


def _normed(b: Builder, x: str, scope: str, channels: int) -> str:
    """LayerNormalization over the channels of [N, C, H, W]."""
    y = b.node("Transpose", scope, [x], perm=[0, 2, 3, 1])
    y = b.layer_norm(y, scope, channels, EPSILON)
    return b.node("Transpose", f"{scope}/1", [y], perm=[0, 3, 1, 2])


def _gelu(b: Builder, x: str, scope: str) -> str:
    """x (1 + erf(x / sqrt(2))) / 2, spelled out as exporters do."""
    y = b.node("Div", scope, [x, b.scalar(scope, "Constant", sqrt(2.0))])
    y = b.node("Add", scope, [b.node("Erf", scope, [y]), b.scalar(scope, "Constant_1", 1.0)])
    return b.node("Mul", f"{scope}/1", [b.node("Mul", scope, [x, y]), b.scalar(scope, "Constant_2", 0.5)])


def _block(b: Builder, x: str, scope: str, channels: int) -> str:
    """7x7 depthwise, LayerNormalization, product up, GELU, product down, a factor a channel, and the sum with x."""
    y = b.conv(x, f"{scope}/block/0", (channels, channels), 7, groups=channels, bias=True)
    y = b.node("Transpose", f"{scope}/block/1", [y], perm=[0, 2, 3, 1])
    y = b.layer_norm(y, f"{scope}/block/2", channels, EPSILON)
    y = b.product(y, f"{scope}/block/3", (channels, EXPANSION * channels))
    y = b.product(_gelu(b, y, f"{scope}/block/4"), f"{scope}/block/5", (EXPANSION * channels, channels))
    y = b.node("Transpose", f"{scope}/block/6", [y], perm=[0, 3, 1, 2])
    y = b.node("Mul", scope, [b.parameter(scope, "layer_scale", channels, 1, 1), y])
    return b.node("Add", scope, [y, x])


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels = "input", 3
    for stage, (width, blocks) in enumerate(STAGES):
        scope, stride = f"/features/{2 * stage}", 2 if stage else PATCH
        if stage:
            x = _normed(b, x, f"{scope}/0", channels)
        x = b.conv(x, f"{scope}/{1 if stage else 0}", (channels, width), stride, stride, bias=True, pad=0)
        channels = width
        if not stage:
            x = _normed(b, x, f"{scope}/1", channels)
        for block in range(blocks):
            x = _block(b, x, f"/features/{2 * stage + 1}/{block}", channels)
    x = _normed(b, b.node("GlobalAveragePool", "/avgpool", [x]), "/classifier/0", channels)
    x = b.node("Flatten", "/classifier/1", [x], axis=1)
    b.linear(x, "/classifier/2", (channels, CLASSES), "logits")
    return b.model("convnext_tiny")
