"""Steps that only move bytes, at sizes of real models, a set an engine."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.kernels.bandwidth_asked_cases import ASKED_SETS
from benchmarks.kernels.bandwidth_further_cases import FURTHER_SETS
from benchmarks.kernels.bandwidth_graphs import (
    Case,
    Engines,
    channel_groups,
    channel_norm,
    group_norm,
    layer_norm,
    padded,
    part,
    swish,
    tokens,
)
from benchmarks.kernels.bandwidth_line_cases import LINE_SETS
from benchmarks.kernels.bandwidth_odd_cases import ODD_SETS
from benchmarks.kernels.bandwidth_wide_cases import WIDE_SETS

ROWS = (
    Case("normalisation", "layer_norm_768", (128, 768), lambda n, c, x: layer_norm(n, c, x, 768)),
    Case("normalisation", "layer_norm_1024", (384, 1024), lambda n, c, x: layer_norm(n, c, x, 1024)),
    Case("normalisation", "layer_norm_vit", (197, 768), lambda n, c, x: layer_norm(n, c, x, 768)),
    Case("normalisation", "layer_norm_384", (1500, 384), lambda n, c, x: layer_norm(n, c, x, 384)),
    Case("normalisation", "softmax_128", (12, 128, 128), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("normalisation", "softmax_1000", (1000,), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("movement", "turn_rows", (128, 768), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1])),
    Case("movement", "heads", (128, 12, 64), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1, 3])),
    Case("movement", "token_in_front", (196, 768), lambda n, c, x: n.node(c, "Concat", n.input(c, 1, 768), x, axis=1)),
    Case("movement", "embedding", (128,), lambda n, c, x: tokens(n, c, x, 30522, 768),
         TensorProto.INT64, 30522),
    Case("reduction", "mean_of_tokens", (128, 768), lambda n, c, x: n.node(c, "ReduceMean", x, axes=[1], keepdims=0)),
    Case("reduction", "mean_of_rows", (128, 768), lambda n, c, x: n.node(c, "ReduceMean", x, axes=[2], keepdims=0)),
    Case("chain", "residual", (128, 768), lambda n, c, x: n.node(c, "Add", x, n.input(c, 128, 768))),
    Case("chain", "positions", (128, 768), lambda n, c, x: n.node(c, "Add", x, n.vector(c, 1, 128, 768))),
    Case("chain", "tanh", (128, 3072), lambda n, c, x: n.node(c, "Tanh", x)),
    Case("chain", "gate", (128, 3072),
         lambda n, c, x: n.node(c, "Mul", n.node(c, "Sigmoid", x), n.input(c, 128, 3072))),
)  # fmt: skip
"""Cases whose tensors are rows."""
IMAGES = (
    Case("normalisation", "instance_norm", (64, 56, 56), lambda n, c, x: group_norm(n, c, x, 64)),
    Case("movement", "concat_channels", (128, 28, 28),
         lambda n, c, x: n.node(c, "Concat", x, n.input(c, 128, 28, 28), axis=1)),
    Case("movement", "upsample", (64, 28, 28),
         lambda n, c, x: n.node(c, "Resize", x, "", n.constant(c, np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                                coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("reduction", "mean_7", (2048, 7, 7), lambda n, c, x: n.node(c, "GlobalAveragePool", x)),
    Case("reduction", "mean_56", (96, 56, 56), lambda n, c, x: n.node(c, "GlobalAveragePool", x)),
    Case("reduction", "max_pool", (64, 112, 112),
         lambda n, c, x: n.node(c, "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    Case("chain", "residual_relu", (256, 56, 56),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Add", x, n.input(c, 256, 56, 56)))),
    Case("chain", "batch_norm_relu", (128, 28, 28),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Mul", x, n.vector(c, 128, 1, 1)))),
    Case("chain", "squeezed", (96, 56, 56),
         lambda n, c, x: n.node(c, "Mul", x, n.input(c, 96, 1, 1))),
)  # fmt: skip
"""Cases whose tensors are images, channels last."""
NORMS = (
    Case("normalisation", "instance_norm_128", (128, 128, 128), lambda n, c, x: group_norm(n, c, x, 128)),
    Case("normalisation", "instance_norm_64", (256, 64, 64), lambda n, c, x: group_norm(n, c, x, 256)),
    Case("normalisation", "group_norm_64", (320, 64, 64), lambda n, c, x: channel_groups(n, c, x, 320)),
    Case("normalisation", "group_norm_32", (640, 32, 32), lambda n, c, x: channel_groups(n, c, x, 640)),
    Case("normalisation", "group_norm_16", (1280, 16, 16), lambda n, c, x: channel_groups(n, c, x, 1280)),
    Case("normalisation", "mean_variance_56", (64, 56, 56),
         lambda n, c, x: n.node(c, "MeanVarianceNormalization", x, axes=[2, 3])),
    Case("normalisation", "lp_norm_56", (256, 56, 56), lambda n, c, x: n.node(c, "LpNormalization", x, axis=1, p=2)),
)  # fmt: skip
"""Normalisations of style transfer and diffusion models: images channels last."""
LONG = (
    Case("normalisation", "rms_norm_4096", (512, 4096),
         lambda n, c, x: n.node(c, "RMSNormalization", x, n.vector(c, 4096), axis=-1)),
    Case("normalisation", "layer_norm_16384", (64, 16384), lambda n, c, x: layer_norm(n, c, x, 16384)),
)  # fmt: skip
"""Normalisations of language models: long rows."""
PLANES = (
    Case("normalisation", "layer_norm_180", (4096, 180), lambda n, c, x: layer_norm(n, c, x, 180)),
    Case("normalisation", "layer_norm_2d", (96, 56, 56), lambda n, c, x: channel_norm(n, c, x, 96)),
    Case("normalisation", "softmax_4096", (256, 4096), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("normalisation", "softmax_197", (12, 197, 197), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("movement", "turn_odd", (197, 768), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1])),
    Case("movement", "channels_last", (96, 56, 56), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 3, 1])),
    Case("movement", "windows", (8, 7, 8, 7, 96),
         lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 1, 3, 2, 4, 5])),
    Case("movement", "values", (197, 2304), lambda n, c, x: part(n, c, x, 2, 1536, 2304)),
    Case("reduction", "mean_of_planes", (96, 56, 56),
         lambda n, c, x: n.node(c, "ReduceMean", x, n.constant(c, np.array([2, 3])), keepdims=0)),
    Case("reduction", "max_of_channels", (256, 56, 56),
         lambda n, c, x: n.node(c, "ReduceMax", x, n.constant(c, np.array([1])), keepdims=1)),
    Case("chain", "masked_scores", (12, 197, 197), lambda n, c, x: n.node(c, "Add", x, n.input(c, 1, 1, 197))),
)  # fmt: skip
"""Images in planes, odd extents and rows of no whole accesses."""
NETS = (
    Case("normalisation", "group_norm_512", (512, 64, 64), lambda n, c, x: channel_groups(n, c, x, 512)),
    Case("normalisation", "group_norm_one", (64, 56, 56), lambda n, c, x: channel_groups(n, c, x, 64, 1)),
    Case("normalisation", "group_norm_swish", (640, 32, 32),
         lambda n, c, x: swish(n, c, channel_groups(n, c, x, 640))),
    Case("normalisation", "softmax_of_classes", (24, 128, 128), lambda n, c, x: n.node(c, "Softmax", x, axis=1)),
    Case("movement", "pixel_shuffle", (256, 28, 28), lambda n, c, x: n.node(c, "DepthToSpace", x, blocksize=2)),
    Case("movement", "grown_channels", (224, 28, 28),
         lambda n, c, x: n.node(c, "Concat", x, n.input(c, 32, 28, 28), axis=1)),
    Case("movement", "pad_images", (64, 56, 56), lambda n, c, x: padded(n, c, x, 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("reduction", "average_3x3", (192, 35, 35),
         lambda n, c, x: n.node(c, "AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    Case("chain", "spatial_gate", (256, 56, 56),
         lambda n, c, x: n.node(c, "Mul", x, n.node(c, "Sigmoid", n.input(c, 1, 56, 56)))),
)  # fmt: skip
"""Images channels last: normalisations of groups, and what networks do between convolutions."""

SETS = {
    "rows": Engines(ROWS, layout=""),
    "images": Engines(IMAGES),
    "norms": Engines(NORMS, batches=(2, 32), opset=23),
    "long": Engines(LONG, batches=(2, 32), opset=23, layout=""),
    "planes": Engines(PLANES, batches=(32,), opset=23, layout=""),
    "nets": Engines(NETS, batches=(32,), opset=23),
    **ODD_SETS,
    **FURTHER_SETS,
    **WIDE_SETS,
    **LINE_SETS,
    **ASKED_SETS,
}
