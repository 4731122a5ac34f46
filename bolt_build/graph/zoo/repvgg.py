"""RepVGG (2021) as it is trained: every block a 3x3, a 1x1 and, where shapes allow, the tensor itself, each with its
BatchNormalization, summed. The planner merges a block into one 3x3."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder


def _block(b: Builder, x: str, scope: str, fan: tuple[int, int], stride: int) -> str:
    """`fan`: channels in, out."""
    parts = [
        b.batch_norm(b.conv(x, f"{scope}/{name}/conv", fan, kernel, stride), f"{scope}/{name}/bn", fan[1])
        for name, kernel in (("rbr_dense", 3), ("rbr_1x1", 1))
    ]
    y = b.node("Add", scope, parts)
    if fan[0] == fan[1] and stride == 1:
        y = b.node("Add", f"{scope}/sum", [y, b.batch_norm(x, f"{scope}/rbr_identity", fan[1])])
    return b.relu(y, f"{scope}/nonlinearity")


def _build(name: str, widths: Sequence[int], depths: Sequence[int]) -> onnx.ModelProto:
    """Five stages of `depths` blocks, the first of each strided."""
    b = Builder()
    x, channels = "input", 3
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for block in range(depth):
            scope = f"/stage{stage}/{block}" if stage else "/stage0"
            x = _block(b, x, scope, (channels, width), 2 if block == 0 else 1)
            channels = width
    b.linear(b.pooled(x), "/linear", (channels, CLASSES), "logits")
    return b.model(name)


def build_a0() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    return _build("repvgg_a0", (48, 48, 96, 192, 1280), (1, 2, 4, 14, 1))


def build_a1() -> onnx.ModelProto:
    """As `build_a0`, wider."""
    return _build("repvgg_a1", (64, 64, 128, 256, 1280), (1, 2, 4, 14, 1))


def build_b0() -> onnx.ModelProto:
    """As `build_a1`, deeper."""
    return _build("repvgg_b0", (64, 64, 128, 256, 1280), (1, 4, 6, 16, 1))
