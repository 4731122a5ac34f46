"""MobileNetV3-Small, as torchvision has it: inverted residuals, most with squeeze and excitation, BatchNormalization
left in place."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder


class Block(NamedTuple):
    """One inverted residual."""

    kernel: int
    wide: int
    out: int
    gated: bool
    act: str
    stride: int


BLOCKS = (
    Block(3, 16, 16, True, "Relu", 2), Block(3, 72, 24, False, "Relu", 2), Block(3, 88, 24, False, "Relu", 1),
    Block(5, 96, 40, True, "HardSwish", 2), Block(5, 240, 40, True, "HardSwish", 1),
    Block(5, 240, 40, True, "HardSwish", 1), Block(5, 120, 48, True, "HardSwish", 1),
    Block(5, 144, 48, True, "HardSwish", 1), Block(5, 288, 96, True, "HardSwish", 2),
    Block(5, 576, 96, True, "HardSwish", 1), Block(5, 576, 96, True, "HardSwish", 1),
)  # fmt: skip
STEM, LAST, HIDDEN = 16, 576, 1024
EPSILON = 1e-3


def _layer(
    b: Builder, x: str, scope: str, fan: tuple[int, int], kernel: int, act: str, stride: int = 1, groups: int = 1
) -> str:
    y = b.conv(x, f"{scope}/0", fan, kernel, stride, groups=groups)
    return b.node(act, f"{scope}/2", [b.batch_norm(y, f"{scope}/1", fan[1], EPSILON)])


def _squeezed(channels: int) -> int:
    """A quarter of the channels as a multiple of 8, rounded up where it would lose more than a tenth."""
    nearest = max(8, (channels // 4 + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * (channels // 4) else nearest


def _gated(b: Builder, x: str, scope: str, channels: int) -> str:
    """Each channel scaled by a gate that depends on the means of all of them."""
    squeezed = _squeezed(channels)
    y = b.node("GlobalAveragePool", f"{scope}/avgpool", [x])
    y = b.relu(b.conv(y, f"{scope}/fc1", (channels, squeezed), 1, bias=True), f"{scope}/activation")
    y = b.conv(y, f"{scope}/fc2", (squeezed, channels), 1, bias=True)
    y = b.node("HardSigmoid", f"{scope}/scale_activation", [y], alpha=1 / 6, beta=0.5)
    return b.node("Mul", scope, [y, x])


def _block(b: Builder, x: str, scope: str, channels: int, block: Block) -> str:
    """1x1 up, depthwise, gate, 1x1 down, and the sum with what came in where that has the same shape."""
    wide, y, at = block.wide, x, 0
    if wide != channels:
        y, at = _layer(b, x, f"{scope}/block/0", (channels, wide), 1, block.act), 1
    y = _layer(b, y, f"{scope}/block/{at}", (wide, wide), block.kernel, block.act, block.stride, wide)
    if block.gated:
        y, at = _gated(b, y, f"{scope}/block/{at + 1}", wide), at + 1
    y = b.conv(y, f"{scope}/block/{at + 1}/0", (wide, block.out), 1)
    y = b.batch_norm(y, f"{scope}/block/{at + 1}/1", block.out, EPSILON)
    return b.node("Add", scope, [y, x]) if block.stride == 1 and channels == block.out else y


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    b = Builder()
    x, channels = _layer(b, "input", "/features/0", (3, STEM), 3, "HardSwish", 2), STEM
    for index, block in enumerate(BLOCKS, start=1):
        x, channels = _block(b, x, f"/features/{index}", channels, block), block.out
    x = b.pooled(_layer(b, x, f"/features/{len(BLOCKS) + 1}", (channels, LAST), 1, "HardSwish"))
    x = b.node("HardSwish", "/classifier/1", [b.linear(x, "/classifier/0", (LAST, HIDDEN))])
    b.linear(x, "/classifier/3", (HIDDEN, CLASSES), "logits")
    return b.model("mobilenet_v3_small")
