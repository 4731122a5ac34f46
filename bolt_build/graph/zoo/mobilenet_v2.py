"""MobileNetV2, as torchvision has it: inverted residuals around depthwise convolutions, BatchNormalization left in
place."""

from __future__ import annotations

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels out, number of blocks, and stride of the first one."""
STEM, LAST = 32, 1280


def _layer(b: Builder, x: str, scope: str, fan: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1) -> str:
    """A convolution with what follows it but in a block's last one."""
    y = b.conv(x, f"{scope}/0", fan, kernel, stride, groups=groups)
    return b.clip(b.batch_norm(y, f"{scope}/1", fan[1]), f"{scope}/2", 0.0, 6.0)


def _block(b: Builder, x: str, scope: str, fan: tuple[int, int], expansion: int, stride: int) -> str:
    """1x1 up, 3x3 depthwise, 1x1 down, and the sum with what came in where that has the same shape."""
    channels, out = fan
    wide, y, at = channels * expansion, x, 0
    if expansion != 1:
        y, at = _layer(b, x, f"{scope}/conv/0", (channels, wide), 1), 1
    y = _layer(b, y, f"{scope}/conv/{at}", (wide, wide), 3, stride, wide)
    y = b.conv(y, f"{scope}/conv/{at + 1}", (wide, out), 1)
    y = b.batch_norm(y, f"{scope}/conv/{at + 2}", out)
    return b.node("Add", scope, [x, y]) if stride == 1 and channels == out else y


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels, index = _layer(b, "input", "/features/0", (3, STEM), 3, 2), STEM, 1
    for expansion, out, blocks, stride in STAGES:
        for block in range(blocks):
            x = _block(b, x, f"/features/{index}", (channels, out), expansion, stride if block == 0 else 1)
            channels, index = out, index + 1
    x = _layer(b, x, f"/features/{index}", (channels, LAST), 1)
    b.linear(b.pooled(x), "/classifier/1", (LAST, CLASSES), "logits")
    return b.model("mobilenet_v2")
