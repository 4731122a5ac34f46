"""Networks that once failed although the engine was right, each at its smallest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array


class Net:
    """A model of single-output nodes that are called what they make."""

    def __init__(self, shape: list[int | str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape = shape

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def pads(self, entries: list[int]) -> str:
        self.constants.append(numpy_helper.from_array(np.array(entries), "pads"))
        return "pads"

    def node(self, op: str, name: str, *inputs: str, **attributes: int | float | list[int]) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def saved(self, path: Path, output: str, shape: list[int | str], opset: int = 17) -> Path:
        info = helper.make_tensor_value_info
        ports = [info("x", TensorProto.FLOAT, self.shape)], [info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "net", *ports, self.constants)
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]), path)
        return path


def normalized(net: Net, x: str, name: str) -> str:
    """Layer normalisation over the last axis, in the operators that exporters write."""
    mean = net.node("ReduceMean", f"{name}/mean", x, axes=[-1])
    below = net.node("Sub", f"{name}/sub", x, mean)
    square = net.node("Mul", f"{name}/square", below, below)
    variance = net.node("ReduceMean", f"{name}/variance", square, axes=[-1])
    shifted = net.node("Add", f"{name}/shift", variance, net.constant(f"{name}.epsilon", np.float32(1e-6)))
    return net.node("Div", f"{name}/out", below, net.node("Sqrt", f"{name}/root", shifted))


def cancelling_means(path: Path) -> Path:
    """ConvNeXt: what was normalised is normalised again, and its mean is nothing but rounding. Then enough layers for
    that one to be few."""
    random = np.random.RandomState(0)
    net = Net(["N", 16, 96])
    x = normalized(net, "x", "first")
    weight = net.constant("layer.w", 1e-9 * random.standard_normal((96, 96)))
    x = net.node("Add", "scaled", x, net.node("MatMul", "layer", x, weight))
    x = normalized(net, x, "second")
    for index in range(50):
        weight = net.constant(f"w{index}", random.standard_normal((96, 96)) / np.sqrt(96))
        x = net.node("MatMul", f"dense{index}", x, weight)
    return net.saved(path, x, ["N", 16, 96])


def sure_attention(path: Path) -> Path:
    """LeViT: attention with logits in the thousands, whose own rounding in fp32 is far above that of the softmax."""
    random = np.random.RandomState(1)
    net = Net(["N", 24, 32])
    x = "x"
    for block in range(4):
        name = f"block{block}"
        parts = [
            net.node(
                "MatMul", f"{name}/{part}", x, net.constant(f"{name}.{part}", 4 * random.standard_normal((32, 32)))
            )
            for part in ("q", "k", "v")
        ]
        turned = net.node("Transpose", f"{name}/turn", parts[1], perm=[0, 2, 1])
        logits = net.node("MatMul", f"{name}/logits", parts[0], turned)
        attention = net.node("Softmax", f"{name}/softmax", logits, axis=-1)
        x = net.node("MatMul", f"{name}/out", attention, parts[2])
    return net.saved(path, x, ["N", 24, 32])


def chaotic(path: Path) -> Path:
    """A network that enlarges what rounding does in every layer, until it is as large as the output."""
    random = np.random.RandomState(4)
    net = Net(["N", 64])
    x = "x"
    for index in range(16):
        x = net.node("MatMul", f"dense{index}", x, net.constant(f"w{index}", random.standard_normal((64, 64))))
        x = net.node("Tanh", f"tanh{index}", x)
    return net.saved(path, x, ["N", 64])


def squeezed(path: Path) -> Path:
    """EfficientNetV2: gates from means over positions that nearly cancel, around which activations are large."""
    random = np.random.RandomState(2)
    net = Net(["N", 8, 16, 16])
    x = "x"
    for block in range(4):
        name = f"block{block}"
        weight = net.constant(f"{name}.w", random.standard_normal((8, 1, 3, 3)))
        y = net.node("Conv", f"{name}/depthwise", x, weight, pads=[1, 1, 1, 1], group=8)
        mean = net.node("GlobalAveragePool", f"{name}/mean", y)
        down = net.node(
            "Conv", f"{name}/down", mean, net.constant(f"{name}.d", 3 * random.standard_normal((2, 8, 1, 1)))
        )
        down = net.node("Mul", f"{name}/silu", down, net.node("Sigmoid", f"{name}/sigmoid", down))
        up = net.node("Conv", f"{name}/up", down, net.constant(f"{name}.u", 3 * random.standard_normal((8, 2, 1, 1))))
        gate = net.node("Sigmoid", f"{name}/gate", up)
        x = net.node("Add", f"{name}/out", net.node("Mul", f"{name}/gated", y, gate), x)
    return net.saved(path, x, ["N", 8, 16, 16])


def masked(path: Path, lowest: float) -> Path:
    """Llama and T5: attention of which a causal mask, infinite or the least number, leaves what came before."""
    random = np.random.RandomState(5)
    net = Net(["N", 24, 32])
    mask = net.constant("mask", np.where(np.tri(24) == 1, 0.0, lowest))
    x = "x"
    for block in range(3):
        name = f"block{block}"
        weights = [net.constant(f"{name}.{p}", random.standard_normal((32, 32)) / np.sqrt(32)) for p in "qkv"]
        q, k, v = (net.node("MatMul", f"{name}/{part}", x, w) for part, w in zip("qkv", weights, strict=True))
        logits = net.node("MatMul", f"{name}/logits", q, net.node("Transpose", f"{name}/turn", k, perm=[0, 2, 1]))
        logits = net.node("Add", f"{name}/masked", logits, mask)
        attention = net.node("Softmax", f"{name}/softmax", logits, axis=-1)
        x = net.node("Add", f"{name}/out", x, net.node("MatMul", f"{name}/mix", attention, v))
    return net.saved(path, x, ["N", 24, 32])


def half_padded(path: Path) -> Path:
    """Video Swin: rows of which padding makes three quarters 0 are normalised, which onnxruntime's kernel in fp32 does
    less exactly than engines."""
    random = np.random.RandomState(6)
    net = Net(["N", 40, 384])
    padded = net.node("Pad", "pad", "x", net.pads([0, 0, 0, 0, 0, 1152]))
    scale = net.constant("scale", random.standard_normal(1536))
    x = net.node("LayerNormalization", "norm", padded, scale, net.constant("shift", np.zeros(1536)))
    weight = net.constant("w", random.standard_normal((1536, 64)) / np.sqrt(1536))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 40, 64])


def alike(path: Path) -> Path:
    """Channels whose elements are all the same, far from zero: onnxruntime takes their norms as differences of large
    products."""
    random = np.random.RandomState(7)
    net = Net(["N", 4, 6, 8])
    least = net.constant("least", 500 + 50 * random.standard_normal((4, 1, 1)))
    same = net.node("Max", "same", "x", least)
    factors = net.constant("scale", random.standard_normal(4)), net.constant("shift", random.standard_normal(4))
    x = net.node("InstanceNormalization", "norm", same, *factors, epsilon=1e-3)
    weight = net.constant("w", random.standard_normal((8, 8)) / np.sqrt(8))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 4, 6, 8])


def places_alone(path: Path) -> Path:
    """TopK of which only the places are read: onnxruntime takes no TopK of one output."""
    random = np.random.RandomState(8)
    net = Net(["N", 12, 32])
    x = net.node("MatMul", "first", "x", net.constant("v", random.standard_normal((32, 32)) / np.sqrt(32)))
    net.constants.append(numpy_helper.from_array(np.asarray([4]), "count"))
    net.nodes.append(helper.make_node("TopK", [x, "count"], ["values", "places"], name="top", axis=-1))
    x = net.node("Cast", "numbers", "places", to=TensorProto.FLOAT)
    weight = net.constant("w", random.standard_normal((4, 8)))
    return net.saved(path, net.node("MatMul", "dense", x, weight), ["N", 12, 8])


def resized(path: Path) -> Path:
    """CrossViT: images made smaller by a factor that is no whole number; onnxruntime takes places in fp32."""
    net = Net(["N", 3, 240, 240])
    net.constants.append(numpy_helper.from_array(np.asarray([1, 1, 224 / 240, 224 / 240], np.float32), "scales"))
    net.nodes.append(helper.make_node("Resize", ["x", "", "scales"], ["smaller"], name="smaller", mode="cubic"))
    weight = net.constant("w", np.random.RandomState(9).standard_normal((4, 3, 16, 16)))
    return net.saved(path, net.node("Conv", "patches", "smaller", weight, strides=[16, 16]), ["N", 4, 14, 14])


NETS: dict[str, Callable[[Path], Path]] = {
    "means": cancelling_means,
    "attention": sure_attention,
    "gates": squeezed,
    "chaos": chaotic,
    "padding": half_padded,
    "places": places_alone,
    "resized": resized,
    "infinite mask": lambda path: masked(path, -np.inf),
    "finite mask": lambda path: masked(path, float(np.finfo(np.float32).min)),
}
