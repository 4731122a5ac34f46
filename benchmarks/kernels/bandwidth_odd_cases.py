"""Steps that only move bytes, in the extents that no whole access divides, along every axis, and in other types."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.kernels.bandwidth_graphs import Case, Engines, Make, Net, channel_groups, group_norm, layer_norm, part

BOOL, INT64, UINT8, INT8 = TensorProto.BOOL, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


def plain(op: str, **attributes: Any) -> Make:
    """One node of the input alone."""
    return lambda n, c, x: n.node(c, op, x, **attributes)


def turned(*perm: int) -> Make:
    return plain("Transpose", perm=list(perm))


def reduced(op: str, *axes: int) -> Make:
    return lambda n, c, x: n.node(c, op, x, n.integers(c, *axes), keepdims=0)


def beside(op: str, *shape: int, **attributes: Any) -> Make:
    """One node of the input and another one, batches of `shape`."""
    return lambda n, c, x: n.node(c, op, x, n.input(c, *shape), **attributes)


def joined(axis: int, *shapes: tuple[int, ...]) -> Make:
    return lambda n, c, x: n.node(c, "Concat", x, *(n.input(c, *shape) for shape in shapes), axis=axis)


def pads(mode: str, *amounts: int) -> Make:
    return lambda n, c, x: n.node(c, "Pad", x, n.integers(c, *amounts), mode=mode)


def resized(mode: str, *scales: float, **attributes: Any) -> Make:
    return lambda n, c, x: n.node(
        c, "Resize", x, "", n.constant(c, np.array([1, 1, *scales], np.float32)), mode=mode, **attributes
    )


def sliced(axis: int, begin: int, end: int, step: int = 1) -> Make:
    return lambda n, c, x: n.node(c, "Slice", x, *(n.integers(c, value) for value in (begin, end, axis, step)))


def rolled(n: Net, case: str, x: str, axis: int, by: int) -> str:
    return n.node(case, "Concat", part(n, case, x, axis, by, 1 << 30), part(n, case, x, axis, 0, by), axis=axis)


def quantised(n: Net, case: str, op: str, x: str, channels: int, dtype: type) -> str:
    return n.node(case, op, x, n.vector(case, channels), n.constant(case, np.zeros(channels, dtype)), axis=1)


TURNS = (
    Case("movement", "turn_to_rows_of_197", (197, 768), turned(0, 2, 1)),
    Case("movement", "turn_rows_of_197", (768, 197), turned(0, 2, 1)),
    Case("movement", "turn_scores_of_197", (12, 197, 197), turned(0, 1, 3, 2)),
    Case("movement", "turn_long_odd", (257, 1025), turned(0, 2, 1)),
    Case("movement", "turn_windows_of_49", (1536, 49), turned(0, 2, 1)),
    Case("movement", "turn_colours", (3, 299, 299), turned(0, 2, 3, 1)),
    Case("movement", "turn_pixels", (299, 299, 3), turned(0, 3, 1, 2)),
    Case("movement", "turn_boxes", (3, 85, 40, 40), turned(0, 1, 3, 4, 2)),
    Case("movement", "turn_spectrogram", (80, 3001), turned(0, 2, 1)),
    Case("movement", "heads_of_197", (197, 12, 64), turned(0, 2, 1, 3)),
    Case("movement", "heads_of_33", (256, 16, 33), turned(0, 2, 1, 3)),
    Case("movement", "keys", (197, 12, 64), turned(0, 2, 3, 1)),
    Case("movement", "patches", (3, 14, 16, 14, 16), turned(0, 2, 4, 3, 5, 1)),
    Case("movement", "patches_of_14", (3, 16, 14, 16, 14), turned(0, 2, 4, 1, 3, 5)),
    Case("movement", "positions_first", (196, 768), turned(1, 0, 2)),
    Case("movement", "volume_last", (33, 16, 56, 56), turned(0, 2, 3, 4, 1)),
    Case("movement", "mixed_axes", (7, 12, 9, 64), turned(0, 4, 2, 1, 3)),
    Case("movement", "integers_turned", (197, 512), turned(0, 2, 1), INT64, 1000),
)
"""Transposes: odd extents, every permutation."""
PARTS = (
    Case("movement", "box_scores", (8400, 85), sliced(2, 5, 85)),
    Case("movement", "box_corners", (8400, 85), sliced(2, 0, 4)),
    Case("movement", "crop", (64, 57, 57), lambda n, c, x: part(n, c, part(n, c, x, 2, 1, 57), 3, 1, 57)),
    Case("movement", "every_second_row", (64, 112, 112), sliced(2, 0, 112, 2)),
    Case("movement", "every_second_column", (64, 112, 112), sliced(3, 0, 112, 2)),
    Case("movement", "backwards", (512, 1001), sliced(2, -1, -(1 << 30), -1)),
    Case("movement", "odd_columns", (512, 1025), sliced(2, 1, 1025)),
    Case("movement", "boxes_joined", (8400, 4), joined(2, (8400, 1), (8400, 80))),
    Case("movement", "planes_joined", (27, 57, 57), joined(1, (64, 57, 57))),
    Case("movement", "columns_joined", (512, 197), joined(2, (512, 300))),
    Case("movement", "shifted_windows", (57, 57, 96), lambda n, c, x: rolled(n, c, rolled(n, c, x, 1, 3), 2, 3)),
    Case("movement", "pad_reflect", (64, 62, 62), pads("reflect", 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("movement", "pad_edge", (64, 57, 57), pads("edge", 0, 0, 2, 2, 0, 0, 2, 2)),
    Case("movement", "pad_planes", (64, 56, 56), pads("constant", 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("movement", "pad_columns", (512, 1001), pads("constant", 0, 0, 0, 0, 0, 23)),
    Case("movement", "causal_pad", (512, 1500), pads("constant", 0, 0, 2, 0, 0, 0)),
    Case("movement", "expanded_mask", (1, 197, 197),
         lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 12, 197, 197))),
    Case("movement", "repeated_heads", (4, 1, 257, 64),
         lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 4, 8, 257, 64))),
    Case("movement", "tiled", (128, 197), lambda n, c, x: n.node(c, "Tile", x, n.integers(c, 1, 1, 5))),
    Case("movement", "depth_to_space", (128, 57, 57), plain("DepthToSpace", blocksize=2)),
    Case("movement", "space_to_depth", (64, 114, 114), plain("SpaceToDepth", blocksize=2)),
)  # fmt: skip
"""Slices, concatenations, paddings, repetitions of rows that no whole access divides."""
PICKS = (
    Case("movement", "picked_rows", (1000, 768),
         lambda n, c, x: n.node(c, "Gather", x, n.constant(c, np.arange(0, 1000, 2)), axis=1)),
    Case("movement", "picked_columns", (768, 196),
         lambda n, c, x: n.node(c, "Gather", x, n.constant(c, np.arange(195, -1, -1)), axis=2)),
    Case("movement", "picked_odd_rows", (1000, 197),
         lambda n, c, x: n.node(c, "Gather", x, n.constant(c, np.arange(0, 1000, 2)), axis=1)),
    Case("movement", "picked_elements", (12, 197, 257),
         lambda n, c, x: n.node(c, "GatherElements", x, n.indices(c, 257, 12, 197, 197), axis=3)),
    Case("movement", "picked_tokens", (1000, 256),
         lambda n, c, x: n.node(c, "GatherND", x, n.indices(c, 1000, 900, 1), batch_dims=1)),
    Case("movement", "scattered", (197, 768),
         lambda n, c, x: n.node(c, "ScatterElements", x, n.indices(c, 197, 128, 768), n.input(c, 128, 768), axis=1)),
    Case("movement", "one_hot", (512,),
         lambda n, c, x: n.node(c, "OneHot", x, n.constant(c, np.array(1000)), n.vector(c, 2)), INT64, 1000),
    Case("movement", "upper", (12, 197, 197), plain("Trilu", upper=0)),
    Case("reduction", "top_300", (80, 1000),
         lambda n, c, x: n.node(c, "TopK", x, n.integers(c, 300), axis=2, more=1)),
    Case("reduction", "greatest_class", (21, 256, 256), plain("ArgMax", axis=1, keepdims=0)),
    Case("reduction", "greatest_of_1001", (512, 1001), plain("ArgMax", axis=2, keepdims=0)),
    Case("reduction", "running_rows", (512, 768), lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(1)))),
    Case("reduction", "running_columns", (512, 1001),
         lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(2)))),
)  # fmt: skip
"""Elements that indices name, and places and sums along lines."""
LOGIC = (
    Case("chain", "hidden_scores", (12, 197, 197),
         lambda n, c, x: n.node(c, "Where", n.input(c, 1, 197, 197, dtype=BOOL), x, n.vector(c, 1))),
    Case("chain", "chosen", (512, 1024),
         lambda n, c, x: n.node(c, "Where", n.input(c, 512, 1024, dtype=BOOL), x, n.input(c, 512, 1024))),
    Case("chain", "above", (512, 1025), lambda n, c, x: n.node(c, "Greater", x, n.vector(c, 1))),
    Case("chain", "less", (512, 1024), beside("Less", 512, 1024)),
    Case("chain", "both", (1024, 1024), lambda n, c, x: n.node(c, "And", x, n.input(c, 1024, 1024, dtype=BOOL)), BOOL),
    Case("chain", "neither", (1025, 1025),
         lambda n, c, x: n.node(c, "Not", n.node(c, "Or", x, n.input(c, 1025, 1025, dtype=BOOL))), BOOL),
    Case("chain", "same_segment", (1, 512),
         lambda n, c, x: n.node(c, "Equal", x, n.indices(c, 9, 512, 1)), INT64, 9),
    Case("chain", "no_number", (512, 1024), plain("IsNaN")),
    Case("chain", "to_fp16_from_int64", (512, 512), plain("Cast", to=TensorProto.FLOAT), INT64, 100),
    Case("chain", "to_int32", (512, 1024), plain("Cast", to=TensorProto.INT32)),
    Case("chain", "int32_from_int64", (512, 512), plain("Cast", to=TensorProto.INT32), INT64, 100),
    Case("chain", "to_fp16_from_bool", (1024, 1025), plain("Cast", to=TensorProto.FLOAT), BOOL),
    Case("chain", "to_fp32", (512, 1025), plain("Cast", to=TensorProto.DOUBLE)),
    Case("chain", "image_bytes", (224, 224, 3),
         lambda n, c, x: n.node(c, "Mul", n.node(c, "Transpose", n.node(c, "Cast", x, to=TensorProto.FLOAT),
                                                 perm=[0, 3, 1, 2]), n.vector(c, 3, 1, 1)), UINT8, 255),
    Case("chain", "integers_added", (512, 512),
         lambda n, c, x: n.node(c, "Add", x, n.indices(c, 9, 512, 512)), INT64, 9),
    Case("chain", "integers_shifted", (512, 512), lambda n, c, x: n.node(c, "Add", x, n.integers(c, 3)), INT64, 9),
    Case("chain", "quantised", (64, 112, 112),
         lambda n, c, x: n.node(c, "QuantizeLinear", x, n.constant(c, np.float32(0.1)), n.constant(c, np.int8(0)))),
    Case("chain", "quantised_channels", (64, 112, 112),
         lambda n, c, x: quantised(n, c, "QuantizeLinear", x, 64, np.int8)),
    Case("chain", "dequantised", (64, 112, 112),
         lambda n, c, x: quantised(n, c, "DequantizeLinear", x, 64, np.int8), INT8, 100),
)  # fmt: skip
"""Comparisons, booleans, integers and conversions."""
SUMS = (
    Case("reduction", "sum_of_rows", (197, 768), reduced("ReduceSum", 1)),
    Case("reduction", "sum_of_odd_rows", (197, 333), reduced("ReduceSum", 1)),
    Case("reduction", "sum_of_columns", (1024, 197), reduced("ReduceSum", 2)),
    Case("reduction", "sum_of_all", (512, 1025), reduced("ReduceSum", 1, 2)),
    Case("reduction", "sum_of_batches", (197, 768), reduced("ReduceSum", 0)),
    Case("reduction", "mean_of_heads", (12, 197, 197), reduced("ReduceMean", 1)),
    Case("reduction", "mean_of_outer", (12, 197, 197), reduced("ReduceMean", 1, 3)),
    Case("reduction", "mean_of_channels_and_rows", (64, 57, 57), reduced("ReduceMean", 1, 2)),
    Case("reduction", "squares_of_columns", (1024, 333), reduced("ReduceL2", 2)),
    Case("reduction", "log_of_sums", (512, 1001), reduced("ReduceLogSumExp", 2)),
    Case("reduction", "greatest_of_rows", (197, 768), reduced("ReduceMax", 1)),
    Case("reduction", "mean_of_7x7", (2048, 7, 7), reduced("ReduceMean", 2, 3)),
    Case("reduction", "mean_of_volumes", (256, 8, 15, 15), reduced("ReduceMean", 2, 3, 4)),
    Case("normalisation", "softmax_of_21", (21, 257, 257), plain("Softmax", axis=1)),
    Case("normalisation", "softmax_of_middle", (12, 197, 197), plain("Softmax", axis=2)),
    Case("normalisation", "softmax_1001", (512, 1001), plain("Softmax", axis=-1)),
    Case("normalisation", "softmax_49", (3072, 49), plain("Softmax", axis=-1)),
    Case("normalisation", "log_softmax_1001", (512, 1001), plain("LogSoftmax", axis=-1)),
    Case("normalisation", "log_softmax_of_21", (21, 257, 257), plain("LogSoftmax", axis=1)),
    Case("normalisation", "lp_norm_of_rows", (512, 513), plain("LpNormalization", axis=-1, p=2)),
    Case("normalisation", "lp_norm_of_channels", (256, 57, 57), plain("LpNormalization", axis=1, p=2)),
    Case("normalisation", "layer_norm_333", (1024, 333), lambda n, c, x: layer_norm(n, c, x, 333)),
    Case("normalisation", "layer_norm_of_1025", (512, 1025), lambda n, c, x: layer_norm(n, c, x, 1025)),
    Case("normalisation", "signal_norm", (512, 1501), lambda n, c, x: group_norm(n, c, x, 512)),
    Case("normalisation", "volume_norm", (32, 16, 57, 57), lambda n, c, x: group_norm(n, c, x, 32)),
    Case("normalisation", "group_norm_of_57", (96, 57, 57), lambda n, c, x: channel_groups(n, c, x, 96, 3)),
    Case("normalisation", "mean_variance_57", (64, 57, 57), plain("MeanVarianceNormalization", axes=[2, 3])),
    Case("normalisation", "local_response", (96, 55, 55), plain("LRN", size=5)),
)
"""Reductions along any axes and normalisations of odd extents."""
CHAINS = (
    Case("chain", "odd_relu", (197, 333), plain("Relu")),
    Case("chain", "odd_bias", (512, 1001), lambda n, c, x: n.node(c, "Add", x, n.vector(c, 1001))),
    Case("chain", "odd_positions", (197, 333), lambda n, c, x: n.node(c, "Add", x, n.vector(c, 1, 197, 333))),
    Case("chain", "scores_with_mask", (12, 197, 197), beside("Add", 1, 197, 197)),
    Case("chain", "scaled_scores_with_mask", (12, 197, 197),
         lambda n, c, x: n.node(c, "Add", n.node(c, "Mul", x, n.vector(c, 1)), n.input(c, 1, 1, 197))),
    Case("chain", "relative_bias", (12, 197, 197), lambda n, c, x: n.node(c, "Add", x, n.vector(c, 1, 12, 197, 197))),
    Case("chain", "gated_planes", (256, 57, 57), beside("Mul", 256, 1, 1)),
    Case("chain", "gated_pixels", (256, 57, 57), beside("Mul", 1, 57, 57)),
    Case("chain", "learned_slopes", (64, 57, 57), lambda n, c, x: n.node(c, "PRelu", x, n.vector(c, 64, 1, 1))),
    Case("chain", "planes_and_bias", (64, 57, 57),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Add", x, n.vector(c, 64, 1, 1)))),
    Case("chain", "colours", (224, 225, 3),
         lambda n, c, x: n.node(c, "Div", n.node(c, "Sub", x, n.vector(c, 3)), n.vector(c, 3))),
    Case("chain", "pairs_of_rows", (1, 512, 33), beside("Sub", 512, 1, 33)),
    Case("chain", "distances", (512, 1), beside("Sub", 1, 513)),
    Case("chain", "odd_gelu", (197, 1025),
         lambda n, c, x: n.node(c, "Gelu", x)),
    Case("chain", "odd_powers", (512, 1025), lambda n, c, x: n.node(c, "Pow", x, n.vector(c, 1))),
    Case("chain", "odd_clip", (512, 1025),
         lambda n, c, x: n.node(c, "Clip", x, n.constant(c, np.float32(0)), n.constant(c, np.float32(6)))),
    Case("chain", "odd_floor", (512, 1025), plain("Floor")),
    Case("chain", "odd_residual_relu", (197, 333),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Add", x, n.input(c, 197, 333)))),
    Case("movement", "nearest_planes", (64, 57, 57),
         resized("nearest", 2, 2, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "linear_planes", (64, 57, 57), resized("linear", 2, 2)),
    Case("movement", "cubic_planes", (64, 57, 57), resized("cubic", 2, 2)),
    Case("movement", "linear_down", (64, 114, 114), resized("linear", 0.5, 0.5)),
    Case("movement", "nearest_down", (64, 114, 114), resized("nearest", 0.5, 0.5)),
    Case("movement", "linear_corners", (21, 65, 65),
         lambda n, c, x: n.node(c, "Resize", x, "", "", n.integers(c, 32, 21, 257, 257), mode="linear",
                                coordinate_transformation_mode="align_corners")),
    Case("reduction", "average_of_signals", (256, 3001),
         plain("AveragePool", kernel_shape=[3], strides=[2], pads=[1, 1])),
    Case("reduction", "pooled_planes", (64, 113, 113),
         plain("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
)  # fmt: skip
"""Chains of odd extents, resizings and poolings of planes."""
RESIZES = (
    Case("movement", "linear_images", (64, 56, 56), resized("linear", 2, 2)),
    Case("movement", "cubic_images", (64, 56, 56), resized("cubic", 2, 2)),
    Case("movement", "linear_images_down", (64, 112, 112), resized("linear", 0.5, 0.5)),
    Case("movement", "nearest_images", (96, 57, 57),
         resized("nearest", 2, 2, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "linear_corners_images", (24, 64, 64),
         lambda n, c, x: n.node(c, "Resize", x, "", "", n.integers(c, 32, 24, 256, 256), mode="linear",
                                coordinate_transformation_mode="align_corners")),
    Case("movement", "reflected_images", (64, 128, 128), pads("reflect", 0, 0, 3, 3, 0, 0, 3, 3)),
    Case("movement", "odd_channels_joined", (27, 56, 56), joined(1, (58, 56, 56))),
    Case("movement", "shuffled", (2, 58, 28, 28), lambda n, c, x: n.node(
        c, "Reshape", n.node(c, "Transpose", x, perm=[0, 2, 1, 3, 4]), n.integers(c, 0, 116, 28, 28))),
    Case("movement", "space_to_channels", (64, 112, 112), plain("SpaceToDepth", blocksize=2)),
    Case("chain", "odd_channels_relu", (27, 113, 113), plain("Relu")),
    Case("chain", "odd_channels_norm", (27, 113, 113),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Mul", x, n.vector(c, 27, 1, 1)))),
    Case("chain", "odd_slopes", (27, 113, 113), lambda n, c, x: n.node(c, "PRelu", x, n.vector(c, 27, 1, 1))),
    Case("chain", "gated_odd_channels", (122, 57, 57), beside("Mul", 122, 1, 1)),
    Case("normalisation", "softmax_of_21_last", (21, 257, 257), plain("Softmax", axis=1)),
    Case("normalisation", "group_norm_of_90", (90, 56, 56), lambda n, c, x: channel_groups(n, c, x, 90, 9)),
    Case("normalisation", "group_norm_of_33", (33, 112, 112), lambda n, c, x: channel_groups(n, c, x, 33, 3)),
    Case("reduction", "mean_of_90", (90, 56, 56), plain("GlobalAveragePool")),
    Case("reduction", "max_of_5x5", (64, 57, 57), plain("MaxPool", kernel_shape=[5, 5], pads=[2, 2, 2, 2])),
)  # fmt: skip
"""Images channels last: resizings, odd channels."""
ODD_SETS = {
    "turns": Engines(TURNS, batches=(32,), layout=""),
    "parts": Engines(PARTS, batches=(32,), layout=""),
    "picks": Engines(PICKS, batches=(32,), layout=""),
    "logic": Engines(LOGIC, batches=(32,), opset=21, layout=""),
    "sums": Engines(SUMS, batches=(32,), opset=21, layout=""),
    "chains": Engines(CHAINS, batches=(32,), opset=21, layout=""),
    "resizes": Engines(RESIZES, batches=(32,), opset=21),
}
