"""A net of convolutions, some of whose results may exceed fp16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Convolutions of 8 channels, one behind the other, and a classifier of what is left of their maxima."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, *shape: int, scale: float) -> str:
        array = (scale * self.random.standard_normal(shape)).astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}:out"], name=name, **attributes))
        return f"{name}:out"

    def conv(self, name: str, x: str, gain: float = 1.0, size: int = 3) -> str:
        scale = gain * (2 / (8 * size * size)) ** 0.5
        weights = self.constant(f"{name}.w", 8, 8, size, size, scale=scale)
        bias = self.constant(f"{name}.b", 8, scale=0.1 * gain)
        y = self.node("Conv", name, x, weights, bias, pads=[size // 2] * 4)
        return self.node("Relu", f"{name}/relu", y)

    def saved(self, folder: Path, x: str) -> None:
        x = self.node("Flatten", "flat", self.node("GlobalAveragePool", "gap", x))
        weights = self.constant("fc.w", 5, 8, scale=1.0)
        self.node("Gemm", "fc", x, weights, self.constant("fc.b", 5, scale=0.1), transB=1)
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 8, 6, 6])
        logits = helper.make_tensor_value_info("fc:out", TensorProto.FLOAT, ["N", 5])
        graph = helper.make_graph(self.nodes, "net", [image], [logits], self.constants)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "net.onnx"
        )
