"""Rows that data choose: `y[mask] = f(x[mask])` is computed of all rows and put where the mask is true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.errors import BoltError
from bolt_build.graph.reference import evaluate

X = tensor("x", [4, 6])
CONSTANTS = {
    "zero": np.float32(0), "five": np.float32(5), "two": np.float32(2), "all": np.asarray([-1], np.int64),
    "from": np.asarray([0], np.int64),
    "first": np.asarray(0, np.int64), "last": np.asarray([1], np.int64), "shape": np.asarray([4, 6], np.int64),
    "each": np.asarray([1, 1], np.int64), "minus": np.asarray(-1, np.int64),
    "scale": np.float32(0.05), "middle": np.int8(3),
    "image": np.random.default_rng(2).random((1, 2, 8, 8), np.float32), "none": np.zeros((4, 2, 2, 2), np.float32),
    "four": np.asarray([0, 1, 2, 3], np.int64), "tall": np.asarray([-1, 1, 1, 1], np.int64),
    "planes": np.asarray([-1, 1, 2, 3], np.int64), "upright": np.asarray([-1, 1], np.int64),
    "taps": np.random.default_rng(3).standard_normal((1, 1, 1, 1)).astype(np.float32),
    "w0": np.full(6, 0.5, np.float32),
    "kept": np.asarray([0, 6], np.int64), "cells": np.asarray([-1, 2, 3], np.int64),
    "rowed": np.asarray([-1, 6], np.int64), "four_rows": np.asarray([4, -1], np.int64),
    "six": np.asarray([6], np.int64), "w": np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32),
}  # fmt: skip
MASK = [
    node("Greater", "x zero", "mask"),
    node("NonZero", "mask", "found", "find"),
    node("Transpose", "found", "places"),
]
COUNT = [node("Reshape", "mask all", "flat"), node("Cast", "flat", "ones", to=7), node("ReduceSum", "ones", "count")]
ROWS = [
    node("ReduceSum", "x last", "sums", keepdims=0), node("Greater", "sums zero", "mask"),
    node("NonZero", "mask", "found", "find"), node("Transpose", "found", "places"),
    node("GatherND", "x places", "rows"),
]  # fmt: skip
WIDE = [
    node("Unsqueeze", "mask last", "column"), node("Expand", "column shape", "wide"),
    node("NonZero", "wide", "found2"), node("Transpose", "found2", "places2"),
]  # fmt: skip
FIRST = [
    node("Reshape", "w all", "line"), node("Shape", "places", "extents"), node("Gather", "extents first", "count"),
    node("Unsqueeze", "count from", "end"), node("Slice", "line from end from", "few", "take"),
]  # fmt: skip
REGIONS = [
    *ROWS[:-1], node("Squeeze", "places last", "some"), node("Gather", "x four", "boxes", axis=1),
    node("Gather", "boxes some", "own", axis=0), node("Floor", "sums", "floor"), node("Cast", "floor", "low", to=7),
    node("Min", "low first", "images"), node("Gather", "images some", "of", axis=0),
    node("RoiAlign", "image own of", "cut", output_height=2, output_width=2, sampling_ratio=2),
    node("Reshape", "some tall", "column"), node("Shape", "cut", "extents"), node("Reshape", "extents all", "same"),
    node("Expand", "column same", "rows"),
]  # fmt: skip


def proto(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    return model(nodes, [X], ["y"], CONSTANTS, opset=19)


SUPPORTED = {
    "a number, as torch.export counts its places": [
        *MASK, *COUNT, node("Expand", "five count", "many"), node("Reshape", "many all", "row"),
        node("ScatterND", "x places row", "y"),
    ],
    "a function of what was there, as torch-script cuts it": [
        *MASK, node("GatherND", "x places", "taken"), node("Exp", "taken", "more"), node("Mul", "x five", "other"),
        node("Reshape", "more all", "row"), node("Shape", "places", "extents"),
        node("Gather", "extents first", "count"), node("Unsqueeze", "count from", "end"),
        node("Slice", "row from end from", "cut"), node("ScatterND", "other places cut", "y"),
    ],
    "whole rows": [
        *ROWS, node("MatMul", "rows w", "made"), node("Softmax", "made", "shares"),
        node("ScatterND", "x places shares", "y"),
    ],
    "whole rows, element by element": [
        *ROWS, *WIDE, *COUNT, node("Tanh", "rows", "made"), node("Concat", "count six", "extents", axis=0),
        node("Expand", "made extents", "same"), node("Reshape", "same all", "row"),
        node("ScatterND", "x places2 row", "y"),
    ],
    "places that are broadcast, as torch-script does before it puts something there": [
        *MASK, node("Split", "places each", "i j", axis=1), node("Shape", "i", "rows"), node("Shape", "rows", "rank"),
        node("ConstantOfShape", "rank", "ones", value=numpy_helper.from_array(np.ones(1, np.int64))),
        node("Mul", "ones minus", "free"), node("Equal", "rows free", "open"), node("Where", "open ones rows", "wide"),
        *[node("Expand", f"{name} wide", f"{name}s") for name in "ij"], node("Concat", "is js", "both", axis=1),
        node("Slice", "rows from last", "count"), node("Expand", "five count", "row"),
        node("ScatterND", "x both row", "y"),
    ],
    "rows in other forms, of as many rows as there are": [
        *ROWS, *COUNT, node("Concat", "count all", "own", axis=0), node("Reshape", "rows own", "same"),
        node("Reshape", "same kept", "still"), node("Reshape", "still cells", "apart"), node("Exp", "apart", "powers"),
        node("Reshape", "powers rowed", "made"), node("ScatterND", "x places made", "y"),
    ],
    "the first of a line, as torch-script writes masked_scatter": [
        *MASK, *FIRST, node("Tanh", "few", "made"), node("ScatterND", "x places made", "y"),
    ],
    "the first rows of a table": [
        node("ReduceSum", "x last", "sums", keepdims=0), node("Greater", "sums zero", "mask"), *WIDE[:3],
        node("Transpose", "found2", "places"), *FIRST, node("ScatterND", "x places few", "y"),
    ],
    "rows that are rounded, as onnxruntime's quantiser leaves them": [
        *MASK, *FIRST, node("QuantizeLinear", "few scale middle", "q"),
        node("DequantizeLinear", "q scale middle", "made"), node("ScatterND", "x places made", "y"),
    ],
    "rows that are added, as mixtures of experts do": [
        *ROWS, node("Squeeze", "places last", "tokens"), node("Gather", "x tokens", "again", axis=0),
        node("Gemm", "again w", "made"), node("Unsqueeze", "tokens last", "indices"),
        node("ScatterND", "x indices made", "y", reduction="add"),
    ],
    "rows that are added where indices are right only where they are chosen": [
        node("ReduceSum", "x last", "sums", keepdims=0), node("Floor", "sums", "whole"),
        node("Cast", "whole", "numbers", to=7), node("Less", "sums zero", "low"), node("Less", "two sums", "high"),
        node("Or", "low high", "outside"), node("Not", "outside", "mask"), node("NonZero", "mask", "found"),
        node("Transpose", "found", "places"), node("GatherND", "numbers places", "inside"),
        node("Unsqueeze", "inside last", "indices"), node("GatherND", "x places", "rows"),
        node("ScatterND", "x indices rows", "y", reduction="add"),
    ],
    "rows of a table whose indices are right only where they are chosen": [
        node("Floor", "x", "whole"), node("Cast", "whole", "numbers", to=7), node("Less", "x zero", "low"),
        node("Less", "five x", "high"), node("Or", "low high", "outside"), node("Not", "outside", "mask"),
        node("NonZero", "mask", "found"), node("Transpose", "found", "places"),
        node("GatherND", "numbers places", "inside"), node("Gather", "w inside", "rows", axis=0),
        node("ReduceSum", "rows last", "made", keepdims=0), node("ScatterND", "x places made", "y"),
    ],
    "images that are convolved, pooled and multiplied with themselves": [
        *ROWS, node("Reshape", "rows planes", "images"), node("Conv", "images taps", "seen"),
        node("Transpose", "seen", "turned", perm=[0, 1, 3, 2]), node("MatMul", "seen turned", "both"),
        node("GlobalAveragePool", "both", "means"), node("Reshape", "means upright", "own_mean"),
        node("Add", "rows own_mean", "made"), node("ScatterND", "x places made", "y"),
    ],
    **{
        f"{kind} of each": [
            *ROWS, node("Tanh", "rows", "small"), node(kind, "small", "made"), node("ScatterND", "x places made", "y"),
        ]
        for kind in ("Asinh", "Celu", "Cosh", "Shrink", "Sinh", "ThresholdedRelu")
    },
    **{
        f"{kind} of them": [*ROWS, node(kind, "rows from", "y", keepdims=0)]
        for kind in ("ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    },
    "the mean square of all their numbers": [
        *MASK, node("GatherND", "x places", "taken"), node("Mul", "taken taken", "squares"),
        node("ReduceMean", "squares", "y", keepdims=0),
    ],
    "how many they are, as a number": [
        *ROWS, node("ReduceSum", "rows from", "total", keepdims=0), node("Shape", "rows", "extents"),
        node("Gather", "extents first", "count"), node("Cast", "count", "number", to=1),
        node("Div", "total number", "y"),
    ],
    "regions of an image, put back as torchvision does level by level": [
        *REGIONS, node("ScatterElements", "none rows cut", "y", axis=0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPORTED)
def test_rows_are_made_everywhere_and_put_where_the_mask_is_true(name: str, tmp_path: Path) -> None:
    made = proto(SUPPORTED[name])
    graph = bound(tmp_path, made, 4)
    for seed in range(3):
        x = (5 * np.random.default_rng(seed).standard_normal((4, 6))).astype(np.float32)
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
        np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)


def test_all_places_are_no_gather(tmp_path: Path) -> None:
    graph = bound(tmp_path, proto(SUPPORTED["whole rows"]), 4)
    assert {"gather", "gather_nd", "scatter_nd"}.isdisjoint(each.op.kind for each in graph.nodes)


def test_what_no_other_runtime_shows_is_not_compared(tmp_path: Path) -> None:
    graph = bound(tmp_path, proto(SUPPORTED["whole rows"]), 4)
    assert [value.name for value in graph.values if value.constant is None and not value.synthetic] == [
        "x", "sums", "mask", "y",
    ]  # fmt: skip


REFUSED = {
    "how many they are, as an output": [*MASK, node("Shape", "places", "y")],
    "the rows themselves": [*ROWS, node("Relu", "rows", "y")],
    "their products with each other": [*ROWS, node("Transpose", "rows", "turned"), node("MatMul", "turned rows", "y")],
    "a running sum of their sum": [
        *ROWS, node("Transpose", "rows", "turned"), node("ReduceSum", "turned from", "sum", keepdims=0),
        node("CumSum", "sum first", "y"),
    ],
    "statistics of a batch of them": [
        *ROWS, node("BatchNormalization", "rows w0 w0 w0 w0", "made", training_mode=1),
        node("ScatterND", "x places made", "y"),
    ],
    "rows that were not chosen so": [
        *ROWS, node("Add", "rows x", "made"), node("ScatterND", "x places made", "y"),
    ],
    "places of another mask": [
        *ROWS, node("Greater", "sums five", "mask2"), node("NonZero", "mask2", "found2"),
        node("Transpose", "found2", "places2"), node("ScatterND", "x places2 rows", "y"),
    ],
    "as many as another mask has": [
        *MASK, node("Greater", "x five", "mask2"), node("NonZero", "mask2", "found2"),
        node("Transpose", "found2", "places2"), node("Shape", "places2", "extents"),
        node("Gather", "extents first", "count"), node("Unsqueeze", "count from", "end"),
        node("Slice", "places from end from", "few"), node("GatherND", "x few", "rows"),
        node("Neg", "rows", "made"), node("ScatterND", "x few made", "y"),
    ],
    "the rows behind the first of a line": [
        *MASK, *FIRST[:-1], node("Slice", "line last end from", "few"), node("ScatterND", "x places few", "y"),
    ],
    "the first of a line that another mask has places for": [
        *MASK, *FIRST, node("Greater", "x five", "mask2"), node("NonZero", "mask2", "found2"),
        node("Transpose", "found2", "places2"), node("ScatterND", "x places2 few", "y"),
    ],
    "whether they are so many": [
        *MASK, node("Shape", "places", "rows"), node("Equal", "rows each", "many"), node("Cast", "many", "y", to=1),
    ],
    "regions that are put elsewhere": [
        *REGIONS, node("Neg", "rows", "others"), node("ScatterElements", "none others cut", "y", axis=0),
    ],
    "regions that are added": [*REGIONS, node("ScatterElements", "none rows cut", "y", axis=0, reduction="add")],
    "rows of as many numbers as a constant leaves, which is as large as the mask by chance": [
        *ROWS, node("Reshape", "rows four_rows", "lines"), node("ReduceMax", "lines last", "largest"),
        node("Sub", "lines largest", "made"), node("ReduceSum", "made from", "y", keepdims=0),
    ],
    "as many rows as a constant says, to which a single one is broadcast": [
        *ROWS, node("ReduceSum", "rows last", "totals"), node("Expand", "totals shape", "many"),
        node("ReduceSum", "many from", "y", keepdims=0),
    ],
    "their order": [*ROWS, node("CumSum", "rows first", "made"), node("ScatterND", "x places made", "y")],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_whatever_else_reads_them_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto(REFUSED[name]), 4)
    first, *others = [(each.code, each.message) for each in raised.value.diagnostics]
    others_of = {
        "places of another mask": "NonZero_6",
        "the first of a line that another mask has places for": "NonZero_9",
    }
    named = f"'{others_of.get(name, 'find')}'"
    assert first == ("unsupported-op", f"NonZero {named}: NonZero on data is not supported (only on constants)")
    assert not others
