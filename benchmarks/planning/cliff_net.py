"""Writes small graphs of convolutional networks, a line a layer: for `cliff_models.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.zoo.builder import IR_VERSION, OPSET

Window = int | Sequence[int]


class Net:
    """Nodes and weights of one graph. Every method that makes a tensor returns its name; `channels` has how many
    channels, and `rank` how many spatial axes."""

    def __init__(self, *image: int) -> None:
        """From "x", f32 [N, *image]."""
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.image, self.rank = image, len(image) - 1
        self.channels = {"x": image[0]}

    def add(self, op: str, inputs: Sequence[str], channels: int, outputs: int = 1, **attributes: object) -> list[str]:
        made = [f"{op.lower()}{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), made, name=f"{op}{len(self.nodes)}", **attributes))
        self.channels |= dict.fromkeys(made, channels)
        return made

    def one(self, op: str, *inputs: str, **attributes: object) -> str:
        """A node that keeps the channels of its first input."""
        return self.add(op, inputs, self.channels[inputs[0]], **attributes)[0]

    def constant(self, array: np.ndarray) -> str:  # type: ignore[type-arg]
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def zeros(self, *shape: int) -> str:
        return self.constant(np.zeros(shape, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def conv(
        self, x: str, to: int, kernel: Window = 3, stride: Window = 1, groups: int = 1, dilation: Window = 1,
        pads: Sequence[int] | None = None, act: str = "Relu",
    ) -> str:  # fmt: skip
        """A convolution with bias and activation; padded so that a stride of one keeps the extents, or by `pads`."""
        kernel, stride, dilation = (self._each(value) for value in (kernel, stride, dilation))
        side = [(k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True)]
        weights = [self.zeros(to, self.channels[x] // groups, *kernel), self.zeros(to)]
        (y,) = self.add(
            "Conv", [x, *weights], to, kernel_shape=kernel, strides=stride, dilations=dilation, group=groups,
            pads=list(pads) if pads is not None else side * 2,
        )  # fmt: skip
        return self.activated(y, act)

    def activated(self, x: str, act: str) -> str:
        """`act` is an operator, "Silu" or ""."""
        if act == "Silu":
            return self.one("Mul", x, self.one("Sigmoid", x))
        return self.one(act, x) if act else x

    def depthwise(self, x: str, kernel: Window = 3, stride: Window = 1, act: str = "Relu", **more: object) -> str:
        return self.conv(x, self.channels[x], kernel, stride, self.channels[x], act=act, **more)  # type: ignore[arg-type]

    def transposed(self, x: str, to: int, kernel: int, stride: int, pad: int, groups: int = 1) -> str:
        weights = [self.zeros(self.channels[x], to // groups, *[kernel] * self.rank), self.zeros(to)]
        (y,) = self.add(
            "ConvTranspose", [x, *weights], to, kernel_shape=[kernel] * self.rank, strides=[stride] * self.rank,
            pads=[pad] * 2 * self.rank, group=groups,
        )  # fmt: skip
        return self.one("Relu", y)

    def concat(self, *parts: str) -> str:
        return self.add("Concat", parts, sum(self.channels[part] for part in parts), axis=1)[0]

    def split(self, x: str, parts: int) -> list[str]:
        each = self.channels[x] // parts
        return self.add("Split", [x, self.integers(*[each] * parts)], each, parts, axis=1)

    def pool(self, x: str, mode: str = "Max", kernel: Window = 3, stride: Window = 2, pad: int = 1) -> str:
        attributes = {"kernel_shape": self._each(kernel), "strides": self._each(stride), "pads": [pad] * 2 * self.rank}
        return self.one(f"{mode}Pool", x, **attributes)

    def resized(self, x: str, factor: float, mode: str = "nearest") -> str:
        scales = self.constant(np.array([1, 1, *[factor] * self.rank], np.float32))
        how = "asymmetric" if mode == "nearest" else "half_pixel"
        return self.one("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=how, nearest_mode="floor")

    def moved(self, x: str, split: Sequence[int], order: Sequence[int], to: Sequence[int]) -> str:
        """Reshape, transpose, reshape; shapes begin with the batch, which is left out of `split` and `to`."""
        y = self.one("Reshape", x, self.integers(0, *split))
        y = self.one("Reshape", self.one("Transpose", y, perm=list(order)), self.integers(0, *to))
        self.channels[y] = to[0]
        return y

    def shuffled(self, x: str, groups: int, *extents: int) -> str:
        """The channels of each group beside those of the others."""
        each, rest = self.channels[x] // groups, range(3, 3 + len(extents))
        return self.moved(x, (groups, each, *extents), (0, 2, 1, *rest), (groups * each, *extents))

    def gated(self, x: str, between: int) -> str:
        """Squeeze and excitation."""
        y = self.conv(self.one("GlobalAveragePool", x), between, 1)
        return self.one("Mul", x, self.conv(y, self.channels[x], 1, act="Sigmoid"))

    def add_to(self, x: str, y: str, act: str = "Relu") -> str:
        return self.activated(self.one("Add", x, y), act)

    def classified(self, x: str) -> onnx.ModelProto:
        """The mean of all positions, and a product with 100 classes."""
        y = self.add("Flatten", [self.one("GlobalAveragePool", x)], self.channels[x], axis=1)[0]
        return self.model(self.add("Gemm", [y, self.zeros(100, self.channels[x]), self.zeros(100)], 100, transB=1)[0])

    def model(self, *outputs: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *self.image])
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [given], made, self.weights)
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])

    def _each(self, value: Window) -> list[int]:
        return [value] * self.rank if isinstance(value, int) else list(value)

    def group_norm(self, x: str, groups: int = 1) -> str:
        """As exporters write it for opset 17."""
        flat = self.one("Reshape", x, self.integers(0, groups, -1))
        flat = self.one("InstanceNormalization", flat, self.zeros(groups), self.zeros(groups))
        y = self.one("Reshape", flat, self.one("Shape", x))
        self.channels[y] = channels = self.channels[x]
        return self.one("Add", self.one("Mul", y, self.zeros(channels, 1, 1)), self.zeros(channels, 1, 1))
