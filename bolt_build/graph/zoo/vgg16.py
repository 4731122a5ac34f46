"""VGG-16 and VGG-19: torchvision's without BatchNorm, and without what inference drops (Dropout, a pooling from 7x7 to
7x7)."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from bolt_build.graph.zoo.builder import CLASSES, Builder

WIDTHS = (64, 128, 256, 512, 512)
"""Of each stage's 3x3 convolutions; a max-pooling halves each axis behind every stage."""
LAST_EXTENT = 7
HIDDEN = 4096


def build() -> onnx.ModelProto:
    """The graph with zero weights: input "input" f32 [N,3,224,224], output "logits" f32 [N,1000]."""
    return _build("vgg16", (2, 2, 3, 3, 3))


def build_19() -> onnx.ModelProto:
    """As `build`, with another convolution in each of the last three stages."""
    return _build("vgg19", (2, 2, 4, 4, 4))


def _build(name: str, depths: Sequence[int]) -> onnx.ModelProto:
    b = Builder()
    x, channels, index = "input", 3, 0
    for width, count in zip(WIDTHS, depths, strict=True):
        for _ in range(count):
            x = b.conv(x, f"/features/{index}", (channels, width), 3, bias=True)
            x = b.relu(x, f"/features/{index + 1}")
            channels, index = width, index + 2
        x = b.node("MaxPool", f"/features/{index}", [x], kernel_shape=[2, 2], strides=[2, 2])
        index += 1
    x = b.node("Flatten", "", [x], axis=1)
    x = b.relu(b.linear(x, "/classifier/0", (channels * LAST_EXTENT**2, HIDDEN)), "/classifier/1")
    x = b.relu(b.linear(x, "/classifier/3", (HIDDEN, HIDDEN)), "/classifier/4")
    b.linear(x, "/classifier/6", (HIDDEN, CLASSES), "logits")
    return b.model(name)
