"""Outputs that hold no floating-point numbers beside others that do: nothing of them is rounded, and no error of theirs
is computed."""

from __future__ import annotations

import pytest
from graph_models import node

from bolt_build.verify.models.real_numbers import makes_others, whole_outputs


@pytest.mark.parametrize(
    ("op_type", "domain", "whole"),
    [
        ("TopK", "", {1}),
        ("MaxPool", "", {1}),
        ("Dropout", "", {1}),
        ("LSTM", "", set()),
        ("Softmax", "", set()),
        ("LayerNormalization", "", set()),  # which opset 13 has not
        ("EmbedLayerNormalization", "com.microsoft", {1}),
        ("Attention", "com.microsoft", set()),
        ("TreeEnsembleClassifier", "ai.onnx.ml", {0}),
        ("LinearClassifier", "ai.onnx.ml", {0}),
        ("SVMRegressor", "ai.onnx.ml", set()),
        ("Own", "elsewhere", set()),
    ],
)
def test_which_outputs_are_whole(op_type: str, domain: str, whole: set[int]) -> None:
    assert whole_outputs(node(op_type, "x", "y", domain=domain), 13) == whole


@pytest.mark.parametrize(("values", "others"), [("values_int64s", True), ("values_floats", False)])
def test_labels_that_stand_for_others_are_whole_or_not(values: str, others: bool) -> None:
    made = node("LabelEncoder", "x", "y", domain="ai.onnx.ml", keys_int64s=[1], **{values: [2 if others else 0.5]})
    assert makes_others(made) is others
