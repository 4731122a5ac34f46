"""EfficientNet-B0, as torchvision has it: inverted residuals with squeeze and excitation, BatchNormalization left in
place."""

from __future__ import annotations

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
"""Expansion, window, stride of the first block, channels out, and number of blocks."""
STEM, LAST = 32, 1280
SQUEEZE = 4
"""A block's gate has so many times fewer channels between its two products than the block has inputs."""


def _layer(b: Builder, x: str, scope: str, fan: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1) -> str:
    y = b.conv(x, f"{scope}/0", fan, kernel, stride, groups=groups)
    return b.silu(b.batch_norm(y, f"{scope}/1", fan[1]), f"{scope}/2")


def _gated(b: Builder, x: str, scope: str, channels: int, squeezed: int) -> str:
    """Each channel scaled by a gate that depends on the means of all of them."""
    y = b.node("GlobalAveragePool", f"{scope}/avgpool", [x])
    y = b.silu(b.conv(y, f"{scope}/fc1", (channels, squeezed), 1, bias=True), f"{scope}/activation")
    y = b.conv(y, f"{scope}/fc2", (squeezed, channels), 1, bias=True)
    return b.node("Mul", scope, [b.node("Sigmoid", f"{scope}/scale_activation", [y]), x])


def _block(b: Builder, x: str, scope: str, fan: tuple[int, int], expansion: int, kernel: int, stride: int) -> str:
    """1x1 up, depthwise, gate, 1x1 down, and the sum with what came in where that has the same shape."""
    channels, out = fan
    wide, y, at = channels * expansion, x, 0
    if expansion != 1:
        y, at = _layer(b, x, f"{scope}/block/0", (channels, wide), 1), 1
    y = _layer(b, y, f"{scope}/block/{at}", (wide, wide), kernel, stride, wide)
    y = _gated(b, y, f"{scope}/block/{at + 1}", wide, channels // SQUEEZE)
    y = b.conv(y, f"{scope}/block/{at + 2}/0", (wide, out), 1)
    y = b.batch_norm(y, f"{scope}/block/{at + 2}/1", out)
    return b.node("Add", scope, [y, x]) if stride == 1 and channels == out else y


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels = _layer(b, "input", "/features/0", (3, STEM), 3, 2), STEM
    for stage, (expansion, kernel, stride, out, blocks) in enumerate(STAGES, start=1):
        for block in range(blocks):
            scope = f"/features/{stage}/{block}"
            x = _block(b, x, scope, (channels, out), expansion, kernel, stride if block == 0 else 1)
            channels = out
    x = _layer(b, x, f"/features/{len(STAGES) + 1}", (channels, LAST), 1)
    b.linear(b.pooled(x), "/classifier/1", (LAST, CLASSES), "logits")
    return b.model("efficientnet_b0")
