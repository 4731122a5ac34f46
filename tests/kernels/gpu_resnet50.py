"""ResNet-50's layers."""

from __future__ import annotations

from families_harness import Input, Layer
from families_layers import RELU
from gpu_products import RESIDUAL, TOLERANCE, conv

from bolt_build.dtypes import DType
from bolt_build.graph.ops.products.matmul import MatMul

# ResNet-50's convolutions: extent of the input, kernel, stride, channels, filters, how many there are.
RESNET50 = (
    (224, 7, 2, 3, 64, 1), (56, 1, 1, 64, 64, 1), (56, 3, 1, 64, 64, 3), (56, 1, 1, 64, 256, 4), (56, 1, 1, 256, 64, 2),
    (56, 1, 1, 256, 128, 1), (56, 3, 2, 128, 128, 1), (28, 1, 1, 128, 512, 4), (56, 1, 2, 256, 512, 1),
    (28, 1, 1, 512, 128, 3), (28, 3, 1, 128, 128, 3), (28, 1, 1, 512, 256, 1), (28, 3, 2, 256, 256, 1),
    (14, 1, 1, 256, 1024, 6), (28, 1, 2, 512, 1024, 1), (14, 1, 1, 1024, 256, 5), (14, 3, 1, 256, 256, 5),
    (14, 1, 1, 1024, 512, 1), (14, 3, 2, 512, 512, 1), (7, 1, 1, 512, 2048, 3), (14, 1, 2, 1024, 2048, 1),
    (7, 1, 1, 2048, 512, 2), (7, 3, 1, 512, 512, 2),
)  # fmt: skip


def resnet50(batch: int) -> list[Layer]:
    """Each distinct convolution of ResNet-50, with the epilogue that it has there, and the classifier."""
    layers = []
    for extent, kernel, stride, channels, filters, count in RESNET50:
        expands = kernel == 1 and filters == 4 * channels
        epilogue = RESIDUAL if expands else () if stride == 2 and kernel == 1 else (RELU,)
        label = f"b{batch}-{extent}_{kernel}x{kernel}s{stride}_{channels}_{filters}_x{count}"
        layers.append(conv(label, (batch, channels, extent, extent), filters, (kernel,) * 2, stride, epilogue=epilogue))
    weights = Input((1000, 2048), True, -0.04, 0.04)
    inputs = (Input((batch, 2048)), weights, Input((1000,), True))
    layers.append(Layer(f"b{batch}-classifier_x1", MatMul(False, True), inputs, (), DType.F16, TOLERANCE))
    return layers
