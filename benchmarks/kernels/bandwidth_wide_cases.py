"""Normalisations, reductions, chains and resizings of further forms, and all of them in other types, at sizes of real
models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.kernels.bandwidth_graphs import (
    Case,
    Engines,
    Make,
    Net,
    channel_groups,
    channel_norm,
    group_norm,
    layer_norm,
    part,
    swish,
)
from benchmarks.kernels.bandwidth_odd_cases import (
    BOOL,
    INT8,
    INT64,
    UINT8,
    beside,
    joined,
    pads,
    plain,
    reduced,
    resized,
    sliced,
    turned,
)

INT32 = TensorProto.INT32


def to(dtype: int) -> Make:
    return plain("Cast", to=dtype)


def sized(mode: str, *sizes: int, **attributes: Any) -> Make:
    return lambda n, c, x: n.node(c, "Resize", x, "", "", n.integers(c, 32, *sizes), mode=mode, **attributes)


def root_norm(n: Net, case: str, x: str, channels: int) -> str:
    """As exporters write what is not one operator of theirs yet."""
    mean = n.node(case, "ReduceMean", n.node(case, "Mul", x, x), n.integers(case, -1))
    root = n.node(case, "Sqrt", n.node(case, "Add", mean, n.constant(case, np.float32(1e-6))))
    return n.node(case, "Mul", n.node(case, "Div", x, root), n.vector(case, channels))


def response_norm(n: Net, case: str, x: str, channels: int) -> str:
    """Of ConvNeXt V2: channels last, each by its length over the image."""
    length = n.node(case, "ReduceL2", x, n.integers(case, 1, 2))
    mean = n.node(case, "Add", n.node(case, "ReduceMean", length, n.integers(case, -1)),
                  n.constant(case, np.float32(1e-6)))  # fmt: skip
    scaled = n.node(case, "Mul", n.node(case, "Mul", x, n.node(case, "Div", length, mean)), n.vector(case, channels))
    return n.node(case, "Add", n.node(case, "Add", scaled, n.vector(case, channels)), x)


def unit_rows(n: Net, case: str, x: str) -> str:
    length = n.node(case, "Clip", n.node(case, "ReduceL2", x, n.integers(case, -1)), n.constant(case, np.float32(1e-6)))
    return n.node(case, "Div", x, n.node(case, "Expand", length, n.node(case, "Shape", x)))


def modulated(n: Net, case: str, x: str, channels: int) -> str:
    """Of diffusion transformers: a scale and a shift an image."""
    one = n.constant(case, np.float32(1))
    scale = n.node(case, "Add", n.input(case, 1, channels), one)
    return n.node(case, "Add", n.node(case, "Mul", x, scale), n.input(case, 1, channels))


def gated_half(n: Net, case: str, x: str, half: int) -> str:
    """SwiGLU: both halves come from one product."""
    return n.node(case, "Mul", swish(n, case, part(n, case, x, 2, 0, half)), part(n, case, x, 2, half, 2 * half))


def error_gelu(n: Net, case: str, x: str, channels: int) -> str:
    moved = n.node(case, "Add", x, n.vector(case, channels))
    inner = n.node(case, "Erf", n.node(case, "Div", moved, n.constant(case, np.float32(1.41421356))))
    half = n.node(case, "Mul", moved, n.constant(case, np.float32(0.5)))
    return n.node(case, "Mul", half, n.node(case, "Add", inner, n.constant(case, np.float32(1))))


def mask_bias(n: Net, case: str, x: str) -> str:
    """(1 - mask) * -10000, as BERT's exporters have it."""
    real = n.node(case, "Cast", x, to=TensorProto.FLOAT)
    hidden = n.node(case, "Sub", n.constant(case, np.float32(1)), real)
    return n.node(case, "Mul", hidden, n.constant(case, np.float32(-1e4)))


def causal(n: Net, case: str, x: str, length: int) -> str:
    """A mask of rows and one of all pairs."""
    pairs = n.constant(case, np.tri(length, dtype=bool)[None, None])
    return n.node(case, "And", x, pairs)


LINES = (
    Case("normalisation", "norm_of_images", (192, 28, 28),
         lambda n, c, x: n.node(c, "LayerNormalization", x, n.vector(c, 192, 28, 28), n.vector(c, 192, 28, 28),
                             axis=1)),
    Case("normalisation", "norm_of_planes", (256, 57, 57),
         lambda n, c, x: n.node(c, "LayerNormalization", x, n.vector(c, 57, 57), axis=2)),
    Case("normalisation", "layer_norm_77", (77, 57, 57), lambda n, c, x: channel_norm(n, c, x, 77)),
    Case("normalisation", "layer_norm_96", (3136, 96), lambda n, c, x: layer_norm(n, c, x, 96)),
    Case("normalisation", "layer_norm_1152", (729, 1152), lambda n, c, x: layer_norm(n, c, x, 1152)),
    Case("normalisation", "root_norm_1152", (512, 1152), lambda n, c, x: root_norm(n, c, x, 1152)),
    Case("normalisation", "root_norm_of_heads", (512, 16, 128), lambda n, c, x: root_norm(n, c, x, 128)),
    Case("normalisation", "root_norm_5121", (128, 5121), lambda n, c, x: root_norm(n, c, x, 5121)),
    Case("normalisation", "signals_norm", (256, 3000), lambda n, c, x: group_norm(n, c, x, 256)),
    Case("normalisation", "volumes_norm", (64, 16, 28, 28), lambda n, c, x: group_norm(n, c, x, 64)),
    Case("normalisation", "group_norm_of_signals", (512, 1500), lambda n, c, x: channel_groups(n, c, x, 512, 8)),
    Case("normalisation", "mean_variance_of_all", (64, 57, 57), plain("MeanVarianceNormalization", axes=[1, 2, 3])),
    Case("normalisation", "mean_variance_of_channels", (64, 57, 57), plain("MeanVarianceNormalization", axes=[1])),
    Case("normalisation", "mean_variance", (64, 56, 56), plain("MeanVarianceNormalization")),
    Case("normalisation", "lengths_of_1", (512, 1024), plain("LpNormalization", axis=-1, p=1)),
    Case("normalisation", "unit_rows", (1024, 384), unit_rows),
    Case("normalisation", "softmax_of_150", (150, 128, 128), plain("Softmax", axis=1)),
    Case("normalisation", "softmax_32000", (32, 32000), plain("Softmax", axis=-1)),
    Case("normalisation", "softmax_of_tokens", (576, 16, 65), plain("Softmax", axis=1)),
    Case("normalisation", "softmax_9", (16384, 9), plain("Softmax", axis=-1)),
    Case("normalisation", "log_softmax_50257", (16, 50257), plain("LogSoftmax", axis=-1)),
    Case("normalisation", "log_softmax_80", (3000, 80), plain("LogSoftmax", axis=-1)),
    Case("normalisation", "log_softmax_29", (6000, 29), plain("LogSoftmax", axis=-1)),
    Case("reduction", "lengths", (1024, 768), reduced("ReduceL2", 2)),
    Case("reduction", "sizes_of_planes", (256, 57, 57), reduced("ReduceL1", 2, 3)),
    Case("reduction", "squares_of_channels", (256, 57, 57), reduced("ReduceSumSquare", 1)),
    Case("reduction", "products_of_rows", (1024, 513), reduced("ReduceProd", 2)),
    Case("reduction", "least_of_integers", (512, 513), reduced("ReduceMin", 2), INT64, 1000),
    Case("reduction", "log_of_sums_of_planes", (33, 129, 129), reduced("ReduceLogSumExp", 1)),
    Case("reduction", "mean_of_frames", (1500, 512), reduced("ReduceMean", 1)),
    Case("reduction", "mean_of_batches", (64, 57, 57), reduced("ReduceMean", 0, 2, 3)),
    Case("reduction", "greatest_of_signals", (512, 3001), plain("GlobalMaxPool")),
    Case("reduction", "greatest_of_volumes", (64, 16, 57, 57),
         plain("MaxPool", kernel_shape=[2, 2, 2], strides=[2, 2, 2])),
    Case("reduction", "mean_of_signals", (257, 3000), plain("AveragePool", kernel_shape=[4], strides=[4])),
    Case("reduction", "means_of_8", (64, 64, 64), plain("AveragePool", kernel_shape=[8, 8], strides=[8, 8])),
    Case("reduction", "lengths_of_windows", (64, 57, 57), plain("LpPool", kernel_shape=[3, 3], strides=[2, 2])),
)  # fmt: skip
"""Normalisations and reductions along other axes, and of other lengths."""
STEPS = (
    Case("chain", "row_and_column", (512, 1024),
         lambda n, c, x: n.node(c, "Add", n.node(c, "Mul", x, n.vector(c, 1024)), n.input(c, 512, 1))),
    Case("chain", "outer_products", (512, 1), beside("Mul", 1, 1025)),
    Case("chain", "einsum_outer", (1024,),
         lambda n, c, x: n.node(c, "Einsum", x, n.input(c, 513), equation="ni,nj->nij") ),
    Case("chain", "gated_channels", (196, 768),
         lambda n, c, x: n.node(c, "Mul", x, n.node(c, "Sigmoid", n.input(c, 1, 768)))),
    Case("chain", "modulated", (256, 1152), lambda n, c, x: modulated(n, c, x, 1152)),
    Case("chain", "layer_scale", (197, 769),
         lambda n, c, x: n.node(c, "Add", n.input(c, 197, 769), n.node(c, "Mul", x, n.vector(c, 769)))),
    Case("chain", "gated_half", (512, 5632), lambda n, c, x: gated_half(n, c, x, 2816)),
    Case("chain", "gated_odd_half", (512, 2730), lambda n, c, x: gated_half(n, c, x, 1365)),
    Case("chain", "error_gelu", (512, 3072), lambda n, c, x: error_gelu(n, c, x, 3072)),
    Case("chain", "mish_of_planes", (64, 57, 57), plain("Mish")),
    Case("chain", "hard_swish_of_planes", (120, 57, 57), plain("HardSwish")),
    Case("chain", "elu_and_scale", (128, 3001),
         lambda n, c, x: n.node(c, "Mul", n.node(c, "Elu", x), n.vector(c, 128, 1))),
    Case("chain", "sines", (512, 1025), lambda n, c, x: n.node(c, "Add", x, n.node(c, "Sin", x))),
    Case("chain", "log_of_powers", (80, 3001),
         lambda n, c, x: n.node(c, "Log", n.node(c, "Max", n.node(c, "Abs", x), n.constant(c, np.float32(1e-5))))),
    Case("chain", "sum_of_three", (256, 57, 57),
         lambda n, c, x: n.node(c, "Sum", x, n.input(c, 256, 57, 57), n.input(c, 256, 57, 57))),
    Case("chain", "odd_remainders", (512, 513),
         lambda n, c, x: n.node(c, "Mod", x, n.constant(c, np.array(7))), INT64, 1000),
    Case("chain", "integers_divided", (512, 513),
         lambda n, c, x: n.node(c, "Div", x, n.constant(c, np.array(12))), INT64, 1000),
    Case("chain", "integers_multiplied", (512, 512),
         lambda n, c, x: n.node(c, "Add", n.node(c, "Mul", x, n.integers(c, 128)), n.indices(c, 128, 512, 1)), INT64,
             1000),
    Case("chain", "positions_apart", (1, 1024),
         lambda n, c, x: n.node(c, "Clip", n.node(c, "Sub", x, n.indices(c, 1024, 513, 1)), n.constant(c,
             np.array(-128)), n.constant(c, np.array(128))), INT64, 1024),
    Case("chain", "bits", (1024, 1023),
         lambda n, c, x: n.node(c, "BitwiseAnd", x, n.constant(c, np.array(15, np.uint8))), UINT8, 255),
    Case("chain", "pairs_of_masks", (1, 1, 1024),
         lambda n, c, x: n.node(c, "And", x, n.input(c, 1, 1024, 1, dtype=BOOL)), BOOL),
    Case("chain", "causal_masks", (1, 1024, 1025),
         lambda n, c, x: n.node(c, "And", x, n.constant(c, np.tri(1024, 1025, dtype=bool)[None, None])), BOOL),
    Case("chain", "either", (1024, 1023),
         lambda n, c, x: n.node(c, "Xor", x, n.input(c, 1024, 1023, dtype=BOOL)), BOOL ),
    Case("chain", "same_number", (512, 1024), lambda n, c, x: n.node(c, "Equal", x, n.integers(c, 3)), INT64, 9),
    Case("chain", "up_to", (1, 1023), lambda n, c, x: n.node(c, "LessOrEqual", x, n.indices(c, 9, 1024, 1)), INT64, 9),
    Case("chain", "mask_bias", (1, 1024, 1025), mask_bias, INT64),
    Case("chain", "fp16_from_int32", (512, 1024), to(TensorProto.FLOAT), INT32, 100),
    Case("chain", "fp16_from_bytes", (3, 384, 385),
         lambda n, c, x: n.node(c, "Div", n.node(c, "Cast", x, to=TensorProto.FLOAT), n.constant(c, np.float32(255))),
             UINT8, 255),
    Case("chain", "bytes_from_fp16", (3, 512, 513),
         lambda n, c, x: n.node(c, "Cast", n.node(c, "Clip", n.node(c, "Mul", x, n.constant(c, np.float32(255))),
             n.constant(c, np.float32(0)), n.constant(c, np.float32(255))), to=UINT8)),
    Case("chain", "bool_from_fp16", (1024, 1023), to(BOOL)),
    Case("chain", "bool_from_int64", (512, 513), to(BOOL), INT64),
    Case("chain", "int64_from_int32", (512, 513), to(INT64), INT32, 100),
    Case("chain", "int64_from_bool", (512, 1023), to(INT64), BOOL),
    Case("chain", "int32_from_int8", (512, 1023), to(INT32), INT8, 100),
    Case("chain", "int64_from_fp16", (512, 513), to(INT64)),
)  # fmt: skip
"""Chains with broadcasts, integers, booleans and conversions."""
GROWN = (
    Case("movement", "nearest_of_3", (33, 57, 57),
         resized("nearest", 3, 3, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "nearest_to_odd", (64, 40, 40), sized("nearest", 64, 57, 75)),
    Case("movement", "linear_to_image", (21, 65, 65), sized("linear", 21, 513, 513)),
    Case("movement", "linear_of_4", (150, 32, 32), sized("linear", 150, 128, 128)),
    Case("movement", "linear_down_to_224", (3, 512, 512), sized("linear", 3, 224, 224)),
    Case("movement", "smoothed_down", (3, 512, 512), sized("linear", 3, 224, 224, antialias=1)),
    Case("movement", "cubic_smoothed_down", (3, 448, 448), sized("cubic", 3, 224, 224, antialias=1)),
    Case("movement", "cubic_of_4", (33, 32, 32), resized("cubic", 4, 4, cubic_coeff_a=-0.75)),
    Case("movement", "cubic_positions", (768, 14, 14), sized("cubic", 768, 16, 16)),
    Case("movement", "linear_signals", (256, 1500), resized("linear", 2)),
    Case("movement", "nearest_signals", (128, 1501),
         resized("nearest", 4, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "linear_volumes", (16, 16, 28, 28), resized("linear", 2, 2, 2)),
    Case("movement", "nearest_volumes", (32, 8, 29, 29),
         resized("nearest", 2, 2, 2, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "linear_wide_planes", (32, 96, 320), resized("linear", 2, 2)),
)  # fmt: skip
"""Resizings of planes, signals and volumes."""
LAST = (
    Case("chain", "slopes_last", (64, 113, 113), lambda n, c, x: n.node(c, "PRelu", x, n.vector(c, 64, 1, 1))),
    Case("chain", "gated_last", (116, 57, 57),
         lambda n, c, x: n.node(c, "Add", n.node(c, "Mul", x, n.node(c, "HardSigmoid", n.input(c, 116, 1, 1))),
                             n.input(c, 116, 57, 57))),
    Case("chain", "spatial_odd_gate", (58, 57, 57),
         lambda n, c, x: n.node(c, "Mul", x, n.node(c, "Sigmoid", n.input(c, 1, 57, 57)))),
    Case("normalisation", "instance_norm_of_27", (27, 113, 113), lambda n, c, x: group_norm(n, c, x, 27)),
    Case("normalisation", "lengths_last", (58, 57, 57), plain("LpNormalization", axis=1, p=2)),
    Case("normalisation", "softmax_of_150_last", (150, 128, 128), plain("Softmax", axis=1)),
    Case("normalisation", "mean_variance_of_all_last", (64, 57, 57),
         plain("MeanVarianceNormalization", axes=[1, 2, 3]) ),
    Case("reduction", "mean_of_channels", (128, 57, 57), reduced("ReduceMean", 1)),
    Case("reduction", "max_of_116", (116, 57, 57), reduced("ReduceMax", 1)),
    Case("reduction", "best_class_last", (150, 128, 128), plain("ArgMax", axis=1)),
    Case("reduction", "mean_of_116", (116, 57, 57), plain("GlobalAveragePool")),
    Case("reduction", "greatest_of_1024", (1024, 14, 14), plain("GlobalMaxPool")),
    Case("movement", "last_halves_joined", (33, 57, 57), joined(1, (31, 57, 57))),
    Case("movement", "pad_odd_channels", (27, 113, 113), pads("constant", 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("movement", "pad_edge_last", (48, 57, 57), pads("edge", 0, 0, 2, 2, 0, 0, 2, 2)),
    Case("movement", "some_channels_last", (116, 57, 57), sliced(1, 58, 116)),
    Case("movement", "crop_last", (27, 113, 113), sliced(2, 3, 110)),
    Case("movement", "shuffled_last", (4, 29, 56, 56),
         lambda n, c, x: n.node(c, "Reshape", n.node(c, "Transpose", x, perm=[0, 2, 1, 3, 4]),
                             n.integers(c, 0, 116, 56, 56))),
    Case("movement", "nearest_of_3_last", (33, 57, 57),
         resized("nearest", 3, 3, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "linear_of_8_last", (21, 32, 32), sized("linear", 21, 256, 256)),
    Case("movement", "cubic_last", (64, 57, 57), resized("cubic", 2, 2)),
)  # fmt: skip
"""Images channels last."""
WIDE = (
    Case("normalisation", "layer_norm", (257, 769), lambda n, c, x: layer_norm(n, c, x, 769)),
    Case("normalisation", "softmax", (12, 197, 197), plain("Softmax", axis=-1)),
    Case("normalisation", "planes_norm", (64, 57, 57), lambda n, c, x: group_norm(n, c, x, 64)),
    Case("normalisation", "group_norm", (320, 32, 32), lambda n, c, x: channel_groups(n, c, x, 320)),
    Case("normalisation", "softmax_of_classes", (21, 129, 129), plain("Softmax", axis=1)),
    Case("reduction", "mean", (256, 57, 57), reduced("ReduceMean", 2, 3)),
    Case("reduction", "sum_of_rows", (197, 769), reduced("ReduceSum", 1)),
    Case("reduction", "best", (512, 1001), plain("ArgMax", axis=2, keepdims=0)),
    Case("reduction", "running", (512, 513), lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(2)))),
    Case("reduction", "pooled", (64, 113, 113),
         plain("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    Case("chain", "scores", (12, 197, 197), beside("Add", 1, 1, 197)),
    Case("chain", "gelu", (197, 1025), plain("Gelu")),
    Case("chain", "gated_planes", (128, 57, 57), beside("Mul", 128, 1, 1)),
    Case("chain", "above", (512, 1025), lambda n, c, x: n.node(c, "Greater", x, n.vector(c, 1))),
    Case("movement", "turn", (197, 769), turned(0, 2, 1)),
    Case("movement", "last", (33, 113, 113), turned(0, 2, 3, 1)),
    Case("movement", "crop", (64, 57, 57), lambda n, c, x: part(n, c, part(n, c, x, 2, 1, 57), 3, 1, 57)),
    Case("movement", "joined", (512, 197), joined(2, (512, 300))),
    Case("movement", "pad", (64, 56, 56), pads("reflect", 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("movement", "linear", (32, 57, 57), resized("linear", 2, 2)),
    Case("movement", "corners", (8400, 85), sliced(2, 0, 4)),
    Case("movement", "picked", (12, 197, 257),
         lambda n, c, x: n.node(c, "GatherElements", x, n.indices(c, 257, 12, 197, 197), axis=3)),
)  # fmt: skip
"""Of each kind some, in the types that models keep."""


def of_type(name: str) -> tuple[Case, ...]:
    """The same called by the type too."""
    return tuple(replace(case, name=f"{name}_{case.name}") for case in WIDE)


WIDE_SETS = {
    "lines": Engines(LINES, batches=(32,), opset=23, layout=""),
    "steps": Engines(STEPS, batches=(32,), opset=23, layout=""),
    "grown": Engines(GROWN, batches=(32,), opset=21, layout=""),
    "last": Engines(LAST, batches=(32,), opset=21),
    "fp32": Engines(of_type("fp32"), batches=(32,), opset=21, layout="", precision="fp32"),
    "bf16": Engines(of_type("bf16"), batches=(32,), opset=21, layout="", precision="bf16"),
}
