"""A model of blocks whose last 1x1 convolution is gated by what its mean says: squeeze and excitation, and ECA."""

from __future__ import annotations

import numpy as np
import onnx
from graph_models import model, node, tensor

from bolt_build.graph.ir import Array

CHANNELS, WIDE, FEW = 16, 64, 8


def gated_blocks(extent: int = 9) -> onnx.ModelProto:
    """A squeezed block and one of ECA, each with the residual around it, as exporters write them."""
    random, constants = np.random.default_rng(0), dict[str, Array]()

    def add_product(name: str, filters: int, channels: int) -> None:
        scaled = random.standard_normal((filters, channels, 1, 1)) * channels**-0.5
        constants[f"{name}.w"] = scaled.astype(np.float32)
        constants[f"{name}.b"] = (random.standard_normal(filters) * 0.3).astype(np.float32)

    constants["flat"], constants["image"] = np.array([0, 1, -1]), np.array([0, -1, 1, 1])
    for prefix in ("s.", "e."):
        add_product(prefix + "0", CHANNELS, WIDE)
        add_product(prefix + "1", WIDE, CHANNELS)
    add_product("f0", FEW, WIDE)
    add_product("f1", WIDE, FEW)
    constants["k"] = random.standard_normal((1, 1, 5)).astype(np.float32)
    nodes = [
        node("Conv", "x s.0.w s.0.b", "s.n", "s.narrow"),
        node("Relu", "s.n", "s.r", "s.relu"),
        node("Conv", "s.r s.1.w s.1.b", "s.p", "s.wide"),
        node("GlobalAveragePool", "s.p", "s.m", "s.mean"),
        node("Conv", "s.m f0.w f0.b", "s.f", "s.few"),
        node("Relu", "s.f", "s.fr", "s.few.relu"),
        node("Conv", "s.fr f1.w f1.b", "s.g", "s.many"),
        node("Sigmoid", "s.g", "s.gate", "s.sigmoid"),
        node("Mul", "s.p s.gate", "s.y", "s.gated"),
        node("Add", "s.y x", "s.a", "s.sum"),
        node("Relu", "s.a", "s.out", "s.last"),
        node("Conv", "s.out e.0.w e.0.b", "e.n", "e.narrow"),
        node("Relu", "e.n", "e.r", "e.relu"),
        node("Conv", "e.r e.1.w e.1.b", "e.p", "e.wide"),
        node("ReduceMean", "e.p", "e.m", "e.mean", axes=[2, 3], keepdims=0),
        node("Reshape", "e.m flat", "e.line", "e.flat"),
        node("Conv", "e.line k", "e.k", "e.window", pads=[2, 2]),
        node("Sigmoid", "e.k", "e.g", "e.sigmoid"),
        node("Reshape", "e.g image", "e.gate", "e.image"),
        node("Mul", "e.gate e.p", "e.y", "e.gated"),
        node("Add", "s.out e.y", "e.a", "e.sum"),
        node("Relu", "e.a", "y", "e.last"),
    ]
    return model(nodes, (tensor("x", ["N", WIDE, extent, extent]),), ("y",), constants)
