"""Steps that only move bytes, of operators and forms that the other sets lack, at sizes of real models."""

from __future__ import annotations

import numpy as np

from benchmarks.kernels.bandwidth_graphs import Case, Engines, Make, Net
from benchmarks.kernels.bandwidth_odd_cases import (
    BOOL,
    INT64,
    UINT8,
    joined,
    pads,
    plain,
    sliced,
    turned,
)


def quarters(n: Net, case: str, x: str, down: int, right: int, joins: int) -> str:
    """Every second pixel of every second row, four times, beside each other: what merges patches, and what begins
    a detector. Axes of rows, columns and channels."""
    parts = [
        sliced(right, column, 1 << 30, 2)(n, case, sliced(down, row, 1 << 30, 2)(n, case, x))
        for column in (0, 1)
        for row in (0, 1)
    ]
    return n.node(case, "Concat", *parts, axis=joins)


def split(axis: int, *parts: int) -> Make:
    return lambda n, c, x: n.node(c, "Split", x, n.integers(c, *parts), more=len(parts) - 1, axis=axis)


INDICES = (
    Case("movement", "sampled_pixels", (56, 56, 128),
         lambda n, c, x: n.node(c, "GatherND", x, n.indices(c, 56, 2000, 2), batch_dims=1)),
    Case("movement", "looked_up_heads", (197, 12, 64),
         lambda n, c, x: n.node(c, "Gather", x, n.constant(c, np.arange(11, -1, -1)), axis=2)),
    Case("movement", "sorted_queries", (900, 256), lambda n, c, x: n.node(
        c, "GatherElements", x, n.node(c, "Expand", n.indices(c, 900, 600, 1), n.integers(c, 1, 1, 256)), axis=1)),
    Case("movement", "picked_boxes", (8400, 4),
         lambda n, c, x: n.node(c, "GatherElements", x, n.indices(c, 8400, 8400, 4), axis=1)),
    Case("movement", "written_rows", (1500, 384), lambda n, c, x: n.node(
        c, "ScatterND", x, n.indices(c, 32, 512, 2), n.input(c, 512, 384))),
    Case("movement", "scattered_columns", (512, 333), lambda n, c, x: n.node(
        c, "ScatterElements", x, n.indices(c, 333, 512, 77), n.input(c, 512, 77), axis=2)),
    Case("movement", "added_rows", (576, 256), lambda n, c, x: n.node(
        c, "ScatterElements", x, n.indices(c, 576, 576, 256), n.input(c, 576, 256), axis=1, reduction="add")),
    Case("movement", "upper_of_1024", (8, 512, 513), plain("Trilu", upper=1)),
    Case("movement", "labels", (128, 128),
         lambda n, c, x: n.node(c, "OneHot", x, n.constant(c, np.array(21)), n.vector(c, 2), axis=1), INT64, 21),
    Case("movement", "expert_masks", (1024, 2),
         lambda n, c, x: n.node(c, "OneHot", x, n.constant(c, np.array(129)), n.vector(c, 2)), INT64, 129),
    Case("movement", "diagonals", (64, 257, 257),
         lambda n, c, x: n.node(c, "Einsum", x, equation="nhii->nhi")),
    Case("movement", "einsum_turn", (197, 12, 65),
         lambda n, c, x: n.node(c, "Einsum", x, equation="nqhd->nhdq")),
    Case("reduction", "running_heads", (8, 512, 65),
         lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(2)), exclusive=1)),
    Case("reduction", "running_back", (80, 3000),
         lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(2)), reverse=1)),
    Case("reduction", "running_integers", (128, 512),
         lambda n, c, x: n.node(c, "CumSum", x, n.constant(c, np.array(2))), INT64, 9),
    Case("reduction", "best_class", (80, 8400), plain("ArgMax", axis=1, keepdims=0)),
    Case("reduction", "best_of_151", (2048, 151), plain("ArgMax", axis=2, keepdims=0)),
    Case("reduction", "least_distance", (1024, 512), plain("ArgMin", axis=-1, keepdims=0)),
    Case("reduction", "five_of_1000", (512, 1000),
         lambda n, c, x: n.node(c, "TopK", x, n.integers(c, 5), axis=2, more=1)),
)  # fmt: skip
"""Elements that indices name, diagonals, places, running sums."""
SHAPES = (
    Case("chain", "where_row", (512, 768),
         lambda n, c, x: n.node(c, "Where", n.input(c, 512, 1, dtype=BOOL), n.vector(c, 768), x)),
    Case("chain", "where_columns", (512, 768),
         lambda n, c, x: n.node(c, "Where", n.input(c, 1, 768, dtype=BOOL), x, n.input(c, 512, 1))),
    Case("chain", "where_causal", (12, 333, 333), lambda n, c, x: n.node(
        c, "Where", n.constant(c, np.tri(333, dtype=bool)[None, None]), x, n.constant(c, np.float32(-1e4)))),
    Case("chain", "where_numbers", (512, 513), lambda n, c, x: n.node(
        c, "Where", x, n.constant(c, np.float32(0)), n.constant(c, np.float32(-1e4))), BOOL),
    Case("movement", "expanded_pooling", (512, 1, 1),
         lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 512, 33, 33))),
    Case("movement", "expanded_ids", (1, 512),
         lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 512, 512)), INT64),
    Case("movement", "expanded_rows", (513, 1), lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 513, 1025))),
    Case("movement", "expanded_bools", (1, 1, 513),
         lambda n, c, x: n.node(c, "Expand", x, n.integers(c, 1, 1, 1024, 513)), BOOL),
    Case("movement", "tiled_planes", (64, 29, 29), lambda n, c, x: n.node(c, "Tile", x, n.integers(c, 1, 1, 2, 2))),
    Case("movement", "tiled_token", (1, 770), lambda n, c, x: n.node(c, "Tile", x, n.integers(c, 1, 577, 1))),
    Case("movement", "tiled_channels", (57, 57, 33), lambda n, c, x: n.node(c, "Tile", x, n.integers(c, 1, 1, 1, 4))),
    Case("movement", "pad_volume", (32, 16, 29, 29), pads("constant", 0, 0, 1, 1, 1, 0, 0, 1, 1, 1)),
    Case("movement", "pad_signal", (1, 480000), pads("reflect", 0, 0, 200, 0, 0, 200)),
    Case("movement", "pad_signals", (80, 3000), pads("reflect", 0, 0, 1, 0, 0, 1)),
    Case("movement", "pad_wrap", (64, 57, 57), pads("wrap", 0, 0, 3, 3, 0, 0, 3, 3)),
    Case("movement", "pad_window", (57, 57, 96), pads("constant", 0, 0, 0, 0, 0, 6, 6, 0)),
    Case("movement", "pad_corner", (64, 57, 57), pads("constant", 0, 0, 0, 0, 0, 0, 1, 1)),
    Case("movement", "pad_edge_signal", (128, 1501), pads("edge", 0, 0, 0, 0, 0, 3)),
    Case("movement", "pad_ids", (64, 1001), pads("constant", 0, 0, 0, 0, 0, 23), INT64),
    Case("movement", "flip_image", (3, 384, 384), sliced(3, -1, -(1 << 30), -1)),
    Case("movement", "flip_rows", (64, 57, 57), sliced(2, -1, -(1 << 30), -1)),
    Case("movement", "flip_tokens", (197, 768), sliced(1, -1, -(1 << 30), -1)),
    Case("movement", "flip_channels", (57, 57, 33), sliced(3, -1, -(1 << 30), -1)),
    Case("movement", "every_third", (577, 769), sliced(2, 0, 769, 3)),
    Case("movement", "some_channels", (255, 40, 40), sliced(1, 85, 170)),
    Case("movement", "last_half", (12, 513, 66), sliced(3, 33, 66)),
    Case("movement", "last_columns", (64, 57, 57), sliced(3, 1, 57)),
    Case("movement", "box_sizes", (25200, 85), sliced(2, 2, 4)),
    Case("movement", "boxes_of_6", (25200, 6), sliced(2, 0, 4)),
    Case("movement", "boxes_of_84", (8400, 84), sliced(2, 0, 4)),
    Case("movement", "objectness", (25200, 85), sliced(2, 4, 5)),
)  # fmt: skip
"""Choices, expansions, repetitions, paddings in all modes, slices."""
PIECES = (
    Case("movement", "split_boxes", (8400, 85), split(2, 4, 1, 80)),
    Case("movement", "split_channels", (116, 57, 57), split(1, 58, 58)),
    Case("movement", "split_heads", (197, 3 * 12 * 65), split(2, 780, 780, 780)),
    Case("movement", "split_rows", (257, 771), split(1, 1, 256)),
    Case("movement", "three_odd_joined", (33, 57, 57), joined(1, (17, 57, 57), (47, 57, 57))),
    Case("movement", "halves_joined", (64, 57, 28), joined(3, (64, 57, 29))),
    Case("movement", "turned_halves", (12, 513, 33), joined(3, (12, 513, 33))),
    Case("movement", "planes_below", (64, 28, 57), joined(2, (64, 29, 57))),
    Case("movement", "tokens_joined", (77, 770), joined(1, (197, 770))),
    Case("movement", "ids_joined", (512, 127), lambda n, c, x: n.node(
        c, "Concat", x, n.indices(c, 9, 512, 2), axis=2), INT64, 9),
    Case("movement", "image_corners", (3, 640, 640), lambda n, c, x: quarters(n, c, x, 2, 3, 1)),
    Case("movement", "plane_corners", (64, 58, 58), lambda n, c, x: quarters(n, c, x, 2, 3, 1)),
    Case("movement", "merged_patches", (56, 56, 96), lambda n, c, x: quarters(n, c, x, 1, 2, 3)),
    Case("movement", "space_to_depth_of_4", (3, 512, 512), plain("SpaceToDepth", blocksize=4)),
    Case("movement", "shuffle_of_3", (27, 115, 115), plain("DepthToSpace", blocksize=3, mode="CRD")),
    Case("movement", "depth_to_space_of_4", (48, 128, 128), plain("DepthToSpace", blocksize=4, mode="CRD")),
    Case("movement", "windows_of_planes", (96, 8, 7, 8, 7), turned(0, 2, 4, 3, 5, 1)),
    Case("movement", "windows_back", (8, 8, 7, 7, 96), turned(0, 5, 1, 3, 2, 4)),
    Case("movement", "bytes_turned", (384, 384, 3), turned(0, 3, 1, 2), UINT8, 255),
    Case("movement", "bools_turned", (512, 1023), turned(0, 2, 1), BOOL),
    Case("movement", "channels_mixed", (4, 29, 56, 57), turned(0, 2, 1, 3, 4)),
    Case("movement", "time_first", (400, 512), turned(1, 0, 2)),
    Case("movement", "batch_last", (300, 512), turned(1, 2, 0)),
    Case("movement", "heads_of_80", (257, 3, 16, 80), turned(2, 0, 3, 1, 4)),
)  # fmt: skip
"""Splits, concatenations of odd parts, blocks of pixels, and further transposes."""
FURTHER_SETS = {
    "indices": Engines(INDICES, batches=(32,), opset=21, layout=""),
    "shapes": Engines(SHAPES, batches=(32,), opset=21, layout=""),
    "pieces": Engines(PIECES, batches=(32,), opset=21, layout=""),
}
