"""Small graphs of many kinds of convolutional networks, a block or two of each at its usual extents: what `cliffs.py`
plans. Weights are zeros, since planning never looks at them.

Each is a function. Add a kind of network here, and the hunt has it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import onnx

from benchmarks.planning.cliff_net import Net


def shufflenet_v2() -> onnx.ModelProto:
    n, c, e = Net(3, 224, 224), 116, 28
    x = n.pool(n.conv("x", 24, stride=2))
    y = n.conv(n.depthwise(x, stride=2, act=""), c // 2, 1)
    z = n.conv(n.depthwise(n.conv(x, c // 2, 1), stride=2, act=""), c // 2, 1)
    x = n.shuffled(n.concat(y, z), 2, e, e)
    for _ in range(3):
        kept, y = n.split(x, 2)
        y = n.conv(n.depthwise(n.conv(y, c // 2, 1), act=""), c // 2, 1)
        x = n.shuffled(n.concat(kept, y), 2, e, e)
    return n.classified(x)


def shufflenet_v1() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.conv(n.pool(n.conv("x", 24, stride=2)), 240, 1)
    for _ in range(2):
        y = n.shuffled(n.conv(x, 60, 1, groups=3), 3, 56, 56)
        x = n.add_to(x, n.conv(n.depthwise(y, act=""), 240, 1, groups=3, act=""))
    return n.classified(x)


def squeezenet() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.pool(n.conv("x", 64, stride=2, pads=(0, 0, 0, 0)), pad=0)
    for few in (16, 32, 48):
        x = n.conv(x, few, 1)
        x = n.concat(n.conv(x, 4 * few, 1), n.conv(x, 4 * few, 3))
    return n.model(n.one("GlobalAveragePool", n.conv(x, 100, 1)))


def inception() -> onnx.ModelProto:
    n = Net(192, 35, 35)
    a = n.conv(n.conv("x", 48, 1), 64, 5)
    b = n.conv(n.conv(n.conv("x", 64, 1), 96, 3), 96, 3)
    x = n.concat(n.conv("x", 64, 1), a, b, n.conv(n.pool("x", "Average", 3, 1), 32, 1))
    x = n.concat(n.conv(x, 384, 3, 2, pads=(0,) * 4), n.pool(x, "Max", 3, 2, 0))
    seven = n.conv(n.conv(n.conv(x, 128, 1), 128, (1, 7)), 192, (7, 1))
    x = n.concat(n.conv(x, 192, 1), seven, n.conv(n.pool(x, "Average", 3, 1), 192, 1))
    y = n.conv(x, 384, 1)
    return n.classified(n.concat(n.conv(y, 384, (1, 3)), n.conv(y, 384, (3, 1))))


def regnet() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.conv("x", 32, stride=2)
    for width, groups in ((48, 6), (104, 13), (208, 26)):
        y = n.gated(n.conv(n.conv(x, width, 1), width, 3, 2, groups), 12)
        x = n.add_to(n.conv(x, width, 1, 2, act=""), n.conv(y, width, 1, act=""))
    return n.classified(x)


def deeplab() -> onnx.ModelProto:
    n = Net(512, 28, 28)
    x = n.conv("x", 256, 3, dilation=2)
    parts = [n.conv(x, 64, 1), *(n.conv(x, 64, 3, dilation=d) for d in (12, 24, 36))]
    y = n.conv(n.one("GlobalAveragePool", x), 64, 1)
    parts.append(n.resized(y, 28, "linear"))
    x = n.conv(n.concat(*parts), 64, 1)
    return n.model(n.resized(n.conv(n.depthwise(x, dilation=6), 21, 1, act=""), 8, "linear"))


def unet() -> onnx.ModelProto:
    n = Net(1, 256, 256)
    kept, x = [], "x"
    for width in (32, 64, 128):
        x = n.conv(n.conv(x, width), width)
        kept.append(x)
        x = n.pool(x, "Max", 2, 2, 0)
    x = n.conv(x, 256)
    for width in (128, 64, 32):
        x = n.conv(n.concat(kept.pop(), n.transposed(x, width, 2, 2, 0)), width)
    return n.model(n.conv(x, 2, 1, act=""))


def fcn() -> onnx.ModelProto:
    n = Net(256, 28, 28)
    x = n.transposed(n.conv("x", 21, 1, act=""), 21, 4, 2, 1)
    return n.model(n.transposed(x, 21, 16, 8, 4))


def dcgan() -> onnx.ModelProto:
    n = Net(100, 1, 1)
    x = n.transposed("x", 512, 4, 1, 0)
    for width in (256, 128, 64):
        x = n.transposed(x, width, 4, 2, 1)
    return n.model(n.one("Tanh", n.transposed(x, 3, 4, 2, 1)))


def res2net() -> onnx.ModelProto:
    n = Net(256, 56, 56)
    x = "x"
    for _ in range(2):
        first, *parts = n.split(n.conv(x, 112, 1), 4)
        done, y = [first], ""
        for part in parts:
            y = n.conv(n.one("Add", y, part) if y else part, 28)
            done.append(y)
        x = n.add_to(x, n.conv(n.concat(*done), 256, 1, act=""))
    return n.classified(x)


def yolo() -> onnx.ModelProto:
    n = Net(3, 320, 320)
    x, kept = n.conv(n.conv("x", 16, stride=2, act="Silu"), 32, stride=2, act="Silu"), list[str]()
    for width in (32, 64, 128):
        parts = n.split(n.conv(x, width, 1, act="Silu"), 2)
        for _ in range(2):
            y = n.conv(n.conv(parts[-1], width // 2, act="Silu"), width // 2, act="Silu")
            parts.append(n.one("Add", parts[-1], y))
        kept.append(n.conv(n.concat(*parts), width, 1, act="Silu"))
        x = n.conv(kept[-1], 2 * width, stride=2, act="Silu")
    pools = [n.conv(x, 128, 1, act="Silu")]
    for _ in range(3):
        pools.append(n.pool(pools[-1], "Max", 5, 1, 2))
    x = n.conv(n.concat(*pools), 256, 1, act="Silu")
    x = n.conv(n.concat(n.resized(x, 2), kept[-1]), 64, 1, act="Silu")
    return n.model(n.conv(x, 85, 1, act="Sigmoid"))


def ghostnet() -> onnx.ModelProto:
    n = Net(40, 28, 28)
    x = "x"
    for _ in range(2):
        y = n.conv(x, 60, 1)
        y = n.gated(n.concat(y, n.depthwise(y)), 32)
        y = n.conv(y, 20, 1, act="")
        x = n.one("Add", x, n.concat(y, n.depthwise(y, act="")))
    return n.classified(x)


def efficientnet_v2() -> onnx.ModelProto:
    n = Net(3, 192, 192)
    x = n.conv("x", 24, stride=2, act="Silu")
    x = n.one("Add", x, n.conv(x, 24, act="Silu"))
    x = n.conv(n.conv(x, 96, stride=2, act="Silu"), 48, 1, act="")
    y = n.gated(n.depthwise(n.conv(x, 192, 1, act="Silu"), stride=2, act="Silu"), 12)
    return n.classified(n.conv(y, 64, 1, act=""))


def mobilenet_v1() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.conv("x", 32, stride=2)
    for width, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (512, 2), (1024, 2)):
        x = n.conv(n.depthwise(x, stride=stride), width, 1)
    return n.classified(x)


def mobilenet_v3() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.conv("x", 16, stride=2, act="HardSwish")
    for kernel, wide, to, stride, gate in (
        (3, 64, 24, 2, 0),
        (5, 72, 40, 2, 24),
        (3, 240, 80, 2, 0),
        (5, 480, 112, 1, 120),
    ):
        y = n.depthwise(n.conv(x, wide, 1, act="HardSwish"), kernel, stride, "HardSwish")
        x = n.conv(n.gated(y, gate) if gate else y, to, 1, act="")
    return n.classified(n.conv(x, 960, 1, act="HardSwish"))


def xception() -> onnx.ModelProto:
    n = Net(3, 299, 299)
    x = n.conv(n.conv("x", 32, 3, 2, pads=(0,) * 4), 64, pads=(0,) * 4)
    for width in (128, 256, 728):
        y = n.conv(n.depthwise(x, act=""), width, 1)
        y = n.pool(n.conv(n.depthwise(y, act=""), width, 1, act=""))
        x = n.one("Add", n.conv(x, width, 1, 2, act=""), y)
    return n.classified(x)


def resnest() -> onnx.ModelProto:
    n, width = Net(256, 56, 56), 64
    x = "x"
    y = n.conv(n.conv(x, width, 1), 2 * width, 3, groups=2)
    y = n.one("Reshape", y, n.integers(0, 2, width, 56, 56))
    mean = n.one("ReduceMean", n.one("ReduceSum", y, n.integers(1), keepdims=0), axes=[2, 3])
    n.channels[mean] = width
    gates = n.conv(n.conv(mean, 32, 1), 2 * width, 1, act="")
    gates = n.one("Softmax", n.one("Reshape", gates, n.integers(0, 2, width, 1, 1)), axis=1)
    y = n.one("ReduceSum", n.one("Mul", y, gates), n.integers(1), keepdims=0)
    n.channels[y] = width
    return n.classified(n.add_to(x, n.conv(y, 256, 1, act="")))


def hrnet() -> onnx.ModelProto:
    n = Net(64, 56, 56)
    high, low = n.conv("x", 18), n.conv("x", 36, stride=2)
    for _ in range(2):
        a, b = n.conv(high, 18), n.conv(low, 36)
        high = n.add_to(a, n.resized(n.conv(b, 18, 1, act=""), 2))
        low = n.add_to(b, n.conv(a, 36, stride=2, act=""))
    return n.classified(n.concat(high, n.resized(low, 2, "linear")))


def mobileone() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.conv("x", 48, stride=2)
    for width, stride in ((48, 2), (128, 2), (256, 2), (1024, 2)):
        x = n.conv(n.depthwise(x, stride=stride), width, 1)
    return n.classified(x)


def espcn() -> onnx.ModelProto:
    n = Net(1, 180, 320)
    x = n.conv(n.conv("x", 64, 5, act="Tanh"), 32, act="Tanh")
    x = n.conv(x, 9, act="")
    return n.model(n.one("DepthToSpace", x, blocksize=3, mode="CRD"))


def edsr() -> onnx.ModelProto:
    n = Net(3, 96, 96)
    x = n.conv("x", 64, act="")
    y = n.one("Add", x, n.conv(n.conv(x, 64), 64, act=""))
    y = n.conv(y, 256, act="")
    y = n.moved(y, (64, 2, 2, 96, 96), (0, 1, 4, 2, 5, 3), (64, 192, 192))
    return n.model(n.conv(y, 3, act=""))


def audio() -> onnx.ModelProto:
    n = Net(1, 16000)
    x = n.conv("x", 64, 80, 4, pads=(38, 38))
    for width in (64, 128, 256):
        x = n.pool(n.conv(n.conv(x, width), width), "Max", 4, 4, 0)
    return n.classified(x)


def wavenet() -> onnx.ModelProto:
    n = Net(64, 4096)
    x, skips = "x", []
    for dilation in (1, 2, 64, 512):
        y = n.one("Pad", x, n.integers(0, 0, dilation, 0, 0, 0))
        a = n.conv(y, 64, 2, dilation=dilation, pads=(0, 0), act="Tanh")
        b = n.conv(y, 64, 2, dilation=dilation, pads=(0, 0), act="Sigmoid")
        y = n.one("Mul", a, b)
        skips.append(n.conv(y, 128, 1, act=""))
        x = n.one("Add", x, n.conv(y, 64, 1, act=""))
    total = skips[0]
    for skip in skips[1:]:
        total = n.one("Add", total, skip)
    return n.model(n.conv(n.one("Relu", total), 256, 1, act=""))


def separable_audio() -> onnx.ModelProto:
    n = Net(64, 1024)
    x = n.conv("x", 256, 33, 2)
    x = n.add_to(n.conv(x, 256, 1, act=""), n.conv(n.depthwise(x, 33, act=""), 256, 1, act=""))
    return n.classified(n.conv(n.depthwise(x, 87, dilation=2, act=""), 512, 1))


def r3d() -> onnx.ModelProto:
    n = Net(3, 16, 112, 112)
    x = n.conv("x", 64, (3, 7, 7), (1, 2, 2))
    x = n.add_to(x, n.conv(n.conv(x, 64), 64, act=""))
    x = n.add_to(n.conv(x, 128, 1, 2, act=""), n.conv(n.conv(x, 128, 3, 2), 128, act=""))
    return n.classified(x)


def r2plus1d() -> onnx.ModelProto:
    n = Net(3, 16, 112, 112)
    x = n.conv(n.conv("x", 45, (1, 7, 7), (1, 2, 2)), 64, (3, 1, 1))
    x = n.conv(n.conv(x, 144, (1, 3, 3)), 64, (3, 1, 1))
    x = n.conv(n.conv(x, 230, (1, 3, 3), (1, 2, 2)), 128, (3, 1, 1), (2, 1, 1))
    return n.classified(n.pool(x, "Max", 2, 2, 0))


def x3d() -> onnx.ModelProto:
    n = Net(3, 13, 160, 160)
    x = n.conv(n.conv("x", 24, (1, 3, 3), (1, 2, 2), act=""), 24, (5, 1, 1), groups=24)
    y = n.depthwise(n.conv(x, 54, 1), 3, (1, 2, 2), "Silu")
    y = n.depthwise(n.conv(n.conv(y, 24, 1, act=""), 54, 1), 3, 1, "Silu")
    return n.classified(n.conv(n.gated(y, 8), 24, 1, act=""))


def unet3d() -> onnx.ModelProto:
    n = Net(1, 32, 64, 64)
    x = n.conv("x", 16)
    y = n.conv(n.pool(x, "Max", 2, 2, 0), 32)
    y = n.concat(x, n.transposed(y, 16, 2, 2, 0))
    return n.model(n.conv(n.conv(y, 16), 3, 1, act=""))


def odd_channels() -> onnx.ModelProto:
    n = Net(3, 112, 112)
    x = n.conv(n.conv("x", 17), 35, stride=2)
    x = n.conv(x, 45, 3, groups=5)
    x = n.conv(n.depthwise(x, 5, 3), 63, 1)
    return n.classified(n.concat(x, n.conv(x, 11, 3)))


def large_kernels() -> onnx.ModelProto:
    n = Net(128, 56, 56)
    x = n.add_to("x", n.conv(n.depthwise("x", 31), 128, 1, act=""))
    x = n.depthwise(n.depthwise(x, 9, 2), 13)
    return n.classified(n.conv(n.depthwise(x, 21, dilation=3), 64, 1))


def wide_kernels() -> onnx.ModelProto:
    n = Net(64, 48, 48)
    x = n.conv(n.conv("x", 64, 11), 64, (1, 15))
    return n.classified(n.conv(x, 128, 7, 4, dilation=2))


def odd_windows() -> onnx.ModelProto:
    n = Net(3, 96, 96)
    x = n.conv("x", 96, 4, 4, pads=(0,) * 4)
    x = n.conv(x, 96, 2, pads=(0, 0, 1, 1))
    x = n.depthwise(x, 4, 2, pads=(1, 2, 1, 2))
    x = n.conv(x, 192, 8, groups=12)
    return n.classified(n.conv(n.conv(x, 96, 3, 3), 96, (2, 3), (2, 1), pads=(0, 2, 1, 0)))


def multipliers() -> onnx.ModelProto:
    n = Net(32, 56, 56)
    x = n.conv("x", 64, 3, groups=32)
    x = n.conv(x, 192, 5, 2, groups=64)
    x = n.conv(n.conv(x, 96, 1, groups=2), 48, 3, groups=3, dilation=(1, 2))
    return n.classified(n.conv(x, 64, 3, groups=16))


def two_towers() -> onnx.ModelProto:
    """AlexNet as it was published: groups of 48 and 192 channels, and local response normalisation."""
    n = Net(3, 227, 227)
    x = n.pool(n.one("LRN", n.conv("x", 96, 11, 4, pads=(0,) * 4), size=5), pad=0)
    x = n.pool(n.one("LRN", n.conv(x, 256, 5, groups=2), size=5), pad=0)
    return n.classified(n.conv(n.conv(n.conv(x, 384), 384, groups=2), 256, groups=2))


def metaformer() -> onnx.ModelProto:
    """PoolFormer: normalisation over a whole image, and the difference to a mean of neighbours."""
    n = Net(64, 56, 56)
    x = n.group_norm("x")
    mixed = n.one("Sub", n.pool(x, "Average", 3, 1), x)
    x = n.one("Add", "x", mixed)
    return n.classified(n.one("Add", x, n.conv(n.conv(n.group_norm(x), 256, 1), 64, 1, act="")))


def generator() -> onnx.ModelProto:
    """CycleGAN's: reflected borders and instance normalisation."""
    n = Net(3, 128, 128)
    x = n.conv(n.one("Pad", "x", n.integers(0, 0, 3, 3, 0, 0, 3, 3), mode="reflect"), 64, 7, pads=(0,) * 4, act="")
    x = n.one("Relu", n.one("InstanceNormalization", x, n.zeros(64), n.zeros(64)))
    y = n.conv(n.one("Pad", x, n.integers(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"), 64, pads=(0,) * 4, act="")
    x = n.one("Add", x, n.one("InstanceNormalization", y, n.zeros(64), n.zeros(64)))
    return n.model(n.one("Tanh", n.conv(n.one("LeakyRelu", x, alpha=0.2), 3, 7, act="")))


def group_norm() -> onnx.ModelProto:
    """A diffusion model's block: GroupNorm, SiLU, convolution."""
    n = Net(128, 32, 32)
    y = n.activated(n.group_norm("x", 32), "Silu")
    x = n.one("Add", "x", n.conv(n.activated(n.group_norm(n.conv(y, 128, act=""), 32), "Silu"), 128, act=""))
    return n.model(n.conv(n.resized(x, 2), 4, act=""))


def focus() -> onnx.ModelProto:
    """YOLOv5's first layer: every second pixel, four times."""
    n = Net(3, 320, 320)
    parts = []
    for row in (0, 1):
        for column in (0, 1):
            begins, ends = n.integers(row, column), n.integers(1 << 30, 1 << 30)
            parts.append(n.one("Slice", "x", begins, ends, n.integers(2, 3), n.integers(2, 2)))
    return n.classified(n.conv(n.concat(*parts), 32, act="Silu"))


def space_to_depth() -> onnx.ModelProto:
    n = Net(3, 224, 224)
    x = n.moved("x", (3, 56, 4, 56, 4), (0, 3, 5, 1, 2, 4), (48, 56, 56))
    return n.classified(n.conv(x, 64))


def strided_average() -> onnx.ModelProto:
    n = Net(64, 56, 56)
    x = n.conv(n.pool("x", "Average", 2, 2, 0), 128, 1)
    return n.classified(n.concat(n.pool(x, "Average", 5, 1, 2), n.pool(x, "Max", 13, 1, 6), n.resized(x, 1, "cubic")))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    name: each for name, each in globals().items() if isinstance(each, FunctionType)
}
"""A kind of network each: the functions of this file."""
