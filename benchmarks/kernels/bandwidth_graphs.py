"""Many small graphs in one model: what `bandwidth.py` times."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCHES = (1, 32, 256)


class Net:
    """Graphs beside each other, each of inputs of its own: what is called `case/Op` is of `case`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []
        self.below: dict[str, int] = {}
        """What the integers of an input are below."""

    def input(self, case: str, *shape: int, dtype: int = TensorProto.FLOAT, below: int = 2) -> str:
        name = f"{case}.{len(self.inputs)}"
        self.below[name] = below
        self.inputs.append(helper.make_tensor_value_info(name, dtype, ["N", *shape]))
        return name

    def constant(self, case: str, array: np.ndarray[Any, Any]) -> str:
        name = f"{case}.constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def vector(self, case: str, *shape: int) -> str:
        return self.constant(case, np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape))

    def integers(self, case: str, *values: int) -> str:
        return self.constant(case, np.array(values, np.int64))

    def indices(self, case: str, below: int, *shape: int) -> str:
        return self.input(case, *shape, dtype=TensorProto.INT64, below=below)

    def node(self, case: str, op: str, *inputs: str, more: int = 0, **attributes: Any) -> str:
        """The first output of a node; `more` follow it, which are outputs of the model."""
        name = f"{case}/{op}{len(self.nodes)}"
        others = [f"{name}.{number}" for number in range(more)]
        self.outputs += map(helper.make_empty_tensor_value_info, others)
        self.nodes.append(helper.make_node(op, list(inputs), [name, *others], name=name, **attributes))
        return name

    def model(self, opset: int) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "bandwidth", self.inputs, self.outputs, self.constants)
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


Make = Callable[[Net, str, str], str]


@dataclass(frozen=True)
class Case:
    """`make` adds the case's nodes of a batch-sized input of `shape`, and gives the tensor that is its result. Integers
    of the input are below `below`."""

    kind: str
    name: str
    shape: tuple[int, ...]
    make: Make
    dtype: int = TensorProto.FLOAT
    below: int = 2


def layer_norm(n: Net, case: str, x: str, channels: int) -> str:
    return n.node(case, "LayerNormalization", x, n.vector(case, channels), n.vector(case, channels), axis=-1)


def group_norm(n: Net, case: str, x: str, channels: int) -> str:
    return n.node(case, "InstanceNormalization", x, n.vector(case, channels), n.vector(case, channels))


def channel_groups(n: Net, case: str, x: str, channels: int, groups: int = 32) -> str:
    scale, bias = n.vector(case, channels), n.vector(case, channels)
    return n.node(case, "GroupNormalization", x, scale, bias, num_groups=groups, epsilon=1e-5)


def swish(n: Net, case: str, x: str) -> str:
    return n.node(case, "Mul", x, n.node(case, "Sigmoid", x))


def channel_norm(n: Net, case: str, x: str, channels: int) -> str:
    """Of images in planes, as exporters write what networks call LayerNorm2d."""
    last = layer_norm(n, case, n.node(case, "Transpose", x, perm=[0, 2, 3, 1]), channels)
    return n.node(case, "Transpose", last, perm=[0, 3, 1, 2])


def part(n: Net, case: str, x: str, axis: int, begin: int, end: int) -> str:
    bounds = [n.integers(case, value) for value in (begin, end, axis)]
    return n.node(case, "Slice", x, *bounds)


def padded(n: Net, case: str, x: str, *pads: int) -> str:
    return n.node(case, "Pad", x, n.integers(case, *pads))


def tokens(n: Net, case: str, x: str, words: int, hidden: int) -> str:
    return n.node(case, "Gather", n.vector(case, words, hidden), x, axis=0)


@dataclass(frozen=True)
class Engines:
    """What one engine is of."""

    cases: tuple[Case, ...]
    batches: tuple[int, ...] = BATCHES
    opset: int = 17
    layout: str = "layout: channels_last"
    precision: str = "fp16"

    def having(self, names: Collection[str] | None) -> Engines:
        """The same of the cases with these names alone; all where there are none."""
        return replace(self, cases=tuple(case for case in self.cases if case.name in names)) if names else self

    def net(self) -> Net:
        net = Net()
        for case in self.cases:
            x = net.input(case.name, *case.shape, dtype=case.dtype, below=case.below)
            net.outputs.append(helper.make_empty_tensor_value_info(case.make(net, case.name, x)))
        return net

    def model(self) -> onnx.ModelProto:
        model = onnx.shape_inference.infer_shapes(self.net().model(self.opset))
        known = {value.name: value for value in model.graph.value_info}
        for output in model.graph.output:
            if output.name in known:
                output.CopyFrom(known[output.name])
        return model
