"""Seeded random models whose products follow each other: `random_chains(seed)`.

Each model has several chains of their own input and output: a convolution or matrix product, a function, and a 1x1, a
matrix product or a pooling of maxima behind it. Sizes and channels are odd as often as not.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

CHAINS = 6
_FUNCTIONS = ("Relu", "Relu", "Sigmoid", "LeakyRelu", "")


class _Chains:
    """The graph under construction, and the source of its decisions."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []

    def pick(self, *values: int) -> int:
        return int(self.random.choice(values))

    def given(self, name: str, *extents: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *extents]))
        return name

    def constant(self, name: str, *shape: int, scale: float) -> str:
        values = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, name: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def function(self, x: str) -> str:
        kind = str(self.random.choice(_FUNCTIONS))
        return self.node(kind, f"{x}.f", x) if kind else x

    def conv(self, x: str, name: str, channels: int, filters: int, kernel: int, stride: int) -> str:
        weights = self.constant(
            f"{name}.w", filters, channels, kernel, kernel, scale=(2 / (channels * kernel**2)) ** 0.5
        )
        operands = [x, weights]
        if self.random.random() < 0.7:
            operands.append(self.constant(f"{name}.b", filters, scale=0.1))
        pads = [kernel // 2] * 4
        return self.node("Conv", name, *operands, pads=pads, strides=[stride] * 2)

    def images(self, name: str) -> None:
        """A convolution with a 1x1 behind it, to which its input may be added, or with a pooling."""
        channels, between = self.pick(3, 16, 24, 46, 64), self.pick(8, 13, 32, 48, 64)
        kernel, stride = self.pick(1, 3, 3, 7 if channels == 3 else 3), self.pick(1, 1, 2)
        height, width = self.pick(9, 14, 17, 28), self.pick(10, 14, 23)
        x = self.given(f"{name}.x", channels, height, width)
        first = self.function(self.conv(x, f"{name}.first", channels, between, kernel, stride))
        behind = self.pick(0, 1, 2)
        if behind == 2:
            size = self.pick(2, 3)
            pads = [size // 3] * 4
            y = self.node("MaxPool", f"{name}.pool", first, kernel_shape=[size] * 2, strides=[2, 2], pads=pads)
        else:
            last = channels if behind == 1 and stride == 1 else self.pick(8, 40, 64, 96)
            y = self.conv(first, f"{name}.second", between, last, 1, 1)
            if last == channels and stride == 1:
                y = self.node("Add", f"{name}.sum", y, x)
            y = self.function(y)
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def matrices(self, name: str) -> None:
        """Two matrix products."""
        rows, depth, between, last = self.pick(5, 32), self.pick(24, 33, 64), self.pick(16, 29, 64), self.pick(8, 40)
        x = self.given(f"{name}.x", rows, depth)
        first = self.node("MatMul", f"{name}.first", x, self.constant(f"{name}.u", depth, between, scale=depth**-0.5))
        second = self.constant(f"{name}.v", between, last, scale=between**-0.5)
        y = self.function(self.node("MatMul", f"{name}.second", self.function(first), second))
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))


def random_chains(seed: int, count: int = CHAINS) -> onnx.ModelProto:
    """The same model for the same seed and number of chains; the last chain is one of matrix products."""
    chains = _Chains(seed)
    for index in range(count - 1):
        chains.images(f"chain{index}")
    chains.matrices(f"chain{count - 1}")
    graph = helper.make_graph(chains.nodes, f"chains{seed}", chains.inputs, chains.outputs, chains.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)
