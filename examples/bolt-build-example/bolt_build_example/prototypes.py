"""A zoo model: which of ten prototypes an image is nearest to."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE, CHANNELS, FEATURES, PROTOTYPES = (3, 16, 16), 8, 16, 10
SCALE = 0.125
"""Distances stay small: half precision rounds large ones so far that a softmax behind them shows it."""


def build() -> onnx.ModelProto:
    """From "input", f32 [N,3,16,16], to "nearness", f32 [N,10].

    Weights of convolutions and matrix products are zeros: the zoo draws and calibrates them. The prototypes are drawn
    here."""
    prototypes = 0.5 * np.random.RandomState(1).standard_normal((PROTOTYPES, FEATURES)).astype(np.float32)
    flat = CHANNELS * (IMAGE[1] // 2) * (IMAGE[2] // 2)
    nodes = [
        helper.make_node(
            "Conv", ["input", "conv.weight", "conv.bias"], ["conv"], "conv",
            kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
        ),
        helper.make_node("Relu", ["conv"], ["relu"], "relu"),
        helper.make_node("Flatten", ["relu"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "embed.weight", "embed.bias"], ["embedding"], "embed", transB=1),
        helper.make_node("Mul", ["embedding", "scale"], ["scaled"], "scaled"),
        helper.make_node(
            "CDist", ["scaled", "prototypes"], ["distance"], "distance", domain="com.microsoft", metric="euclidean"
        ),
        helper.make_node("Neg", ["distance"], ["near"], "near"),
        helper.make_node("Softmax", ["near"], ["nearness"], "softmax", axis=1),
    ]  # fmt: skip
    zeros = {
        "conv.weight": (CHANNELS, IMAGE[0], 3, 3), "conv.bias": (CHANNELS,),
        "embed.weight": (FEATURES, flat), "embed.bias": (FEATURES,),
    }  # fmt: skip
    constants = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in zeros.items()]
    graph = helper.make_graph(
        nodes, "prototypes",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *IMAGE])],
        [helper.make_tensor_value_info("nearness", TensorProto.FLOAT, ["N", PROTOTYPES])],
        [
            *constants, numpy_helper.from_array(np.float32(SCALE).reshape(()), "scale"),
            numpy_helper.from_array(prototypes.astype(np.float32), "prototypes"),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, producer_name="bolt-build-example")
