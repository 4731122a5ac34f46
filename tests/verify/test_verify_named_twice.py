"""Outputs of graphs inside nodes that are one tensor, as verification gives them to onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import model, node, tensor
from onnx import TensorProto, helper

from bolt_build.graph.ir import Array
from bolt_build.verify.models.named_twice import with_outputs_apart

X = np.asarray([[1.0, -2.0]], np.float32)
RELU = np.maximum(X, 0)


def inside(
    nodes: Sequence[onnx.NodeProto], outputs: str, inputs: Sequence[onnx.ValueInfoProto] = ()
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "inside", inputs, [tensor(name, None) for name in outputs.split()])


def branches(twice: str) -> onnx.NodeProto:
    then = inside([node("Relu", "x", "a")], twice)
    other = inside([node("Neg", "x", "b"), node("Abs", "x", "c")], "b c")
    return node("If", "is", "y z", then_branch=then, else_branch=other)


def by_data() -> list[onnx.NodeProto]:
    return [
        node("ReduceMax", "x", "most", keepdims=0),
        node("Cast", "most", "is", to=TensorProto.BOOL),
        branches("a a"),
    ]


def by_a_constant() -> list[onnx.NodeProto]:
    return [node("Identity", "true", "is"), branches("a a")]


def in_a_loop() -> list[onnx.NodeProto]:
    ports = [
        tensor("I", [], TensorProto.INT64),
        tensor("on", [], TensorProto.BOOL),
        tensor("s", None),
        tensor("t", None),
    ]
    body = inside([node("Identity", "on", "goes"), node("Relu", "x", "a")], "goes a a", ports)
    body.output[0].CopyFrom(tensor("goes", [], TensorProto.BOOL))
    return [node("Loop", "two true x x", "y z", body=body)]


@pytest.mark.parametrize("made", [by_data, by_a_constant, in_a_loop])
def test_each_output_is_given(made: object) -> None:
    assert callable(made)
    constants = {"true": np.asarray(True), "two": np.asarray(2, np.int64)}
    proto = model(made(), [tensor("x", [1, 2])], ["y", "z"], constants)
    apart = with_outputs_apart(proto)
    assert with_outputs_apart(apart) is apart
    for found in run(apart):
        np.testing.assert_array_equal(found, RELU)


def test_a_model_without_such_graphs_is_left_alone() -> None:
    nodes = [node("Identity", "true", "is"), branches("a x")]
    proto = model(nodes, [tensor("x", [1, 2])], ["y", "z"], {"true": np.asarray(True)})
    assert with_outputs_apart(proto) is proto


def run(proto: onnx.ModelProto) -> list[Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(["y", "z"], {"x": X}))
