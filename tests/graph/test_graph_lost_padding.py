"""Padding that becomes no number, as 0 / 0 does, which neither masks nor zeros hide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import model, node, tensor
from length_models import said

from bolt_build.graph.padding import PaddedPorts

LOST = {
    "a mask does not hide keys that are no numbers": (
        [
            node("MatMul", "u turned", "scores"), node("Sub", "mask unit", "less"), node("Mul", "less far", "gone"),
            node("Unsqueeze", "gone one", "row"), node("Add", "scores row", "masked"),
            node("Softmax", "masked", "shares", "share", axis=2), node("MatMul", "shares x", "y"),
        ],
        "'share' is a softmax over it",
    ),
    "no share takes values that are no numbers": (
        [
            node("MatMul", "x flipped", "scores"), node("Sub", "mask unit", "less"), node("Mul", "less far", "gone"),
            node("Unsqueeze", "gone one", "row"), node("Add", "scores row", "masked"),
            node("Softmax", "masked", "shares", "share", axis=2), node("MatMul", "shares u", "y", "mix"),
        ],
        "'mix' adds up over it, and padding is no number there",
    ),
    "zeros do not": (
        [
            node("Unsqueeze", "mask two", "column"), node("Mul", "u column", "kept"),
            node("ReduceSum", "kept one", "y", "total", keepdims=0),
        ],
        "'total' takes the sum over it",
    ),
}  # fmt: skip


def normalised(nodes: list[onnx.NodeProto], epsilon: float, weighed: bool = False) -> onnx.ModelProto:
    """Rows over their lengths, of which padded ones are zero: 0 / 0 where nothing is added."""
    first = [node("MatMul", "x w", "z")] if weighed else [node("Identity", "x", "z")]
    lines = [
        *first, node("Mul", "z z", "squares"), node("ReduceSum", "squares last", "sum", keepdims=1),
        node("Add", "sum epsilon", "more"), node("Sqrt", "more", "length"), node("Div", "z length", "u", "norm"),
        node("Transpose", "u", "turned", perm=[0, 2, 1]), node("Transpose", "x", "flipped", perm=[0, 2, 1]), *nodes,
    ]  # fmt: skip
    constants = {
        "last": np.asarray([2], np.int64), "one": np.asarray([1], np.int64), "two": np.asarray([2], np.int64),
        "epsilon": np.float32(epsilon), "far": np.float32(10000), "unit": np.float32(1),
        "w": np.eye(8, dtype=np.float32),
    }  # fmt: skip
    inputs = [tensor("x", ["N", "sequence", 8]), tensor("mask", ["N", "sequence"])]
    return model(lines, inputs, ["y"], constants, opset=17)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("name", LOST)
def test_padding_that_is_no_number_is_not_hidden(name: str, weighed: bool, tmp_path: Path) -> None:
    nodes, reason = LOST[name]
    found = said(tmp_path, normalised(nodes, 0.0, weighed))
    assert isinstance(found, str)
    assert found.startswith(reason), found


def test_a_small_number_that_is_added_keeps_padding_a_number(tmp_path: Path) -> None:
    nodes, _ = LOST["zeros do not"]
    assert isinstance(said(tmp_path, normalised(nodes, 1e-6)), PaddedPorts)


def test_rows_that_are_cut_off_may_be_no_numbers(tmp_path: Path) -> None:
    assert isinstance(said(tmp_path, normalised([node("MatMul", "u w", "y")], 0.0)), PaddedPorts)
