"""An ONNX graph that is being changed: who makes and who reads a tensor, and names that are free."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.replace import LEAST_IR_VERSION

_KNOWN_VALUES = 1024
"""Elements of a constant that may be a shape, and so decide types; larger ones are weights."""


class EditedModel:
    """A copy of a model; `finish` gives it back. Tensors and nodes that stay keep their names.

    Nodes are called by their name, or, without one, by their first output.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        self.nodes = list(graph.node)
        self.constants = {item.name: item for item in graph.initializer}
        self.inputs = frozenset(item.name for item in graph.input) - self.constants.keys()
        self.outputs = frozenset(item.name for item in graph.output)
        names = {name for node in _all_nodes(graph) for name in (node.name, *node.input, *node.output)}
        self._taken = names | self.inputs | self.outputs | self.constants.keys()
        self._added: list[onnx.TensorProto] = []
        self._types: dict[str, onnx.TypeProto.Tensor] | None = None

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return int(next(item.version for item in self.model.opset_import if item.domain in ("", "ai.onnx")))

    def matching(self, glob: str) -> list[onnx.NodeProto]:
        return [node for node in self.nodes if fnmatchcase(called(node), glob)]

    def readers(self, tensor: str) -> list[onnx.NodeProto]:
        """The nodes that read `tensor`, those with a subgraph that does among them."""
        return [node for node in self.nodes if tensor in self.read_by(node)]

    def read_by(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """What a node reads, then what its subgraphs do, names that only they know among these."""
        inner: set[str] = set().union(*(_read(graph) for graph in _graphs(node)))
        return (*node.input, *sorted(inner))

    def free(self, name: str) -> str:
        """`name`, or where it is taken, `name` with a number behind it; taken from now on."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found

    def add_constant(self, name: str, array: Array) -> str:
        """A new initializer; the name that it got."""
        name = self.free(name)
        self.constants[name] = numpy_helper.from_array(array, name)
        self._added.append(self.constants[name])
        return name

    def set_constant(self, name: str, array: Array) -> None:
        """Another value for an initializer, of whatever shape."""
        self.constants[name].CopyFrom(numpy_helper.from_array(array, name))

    def put_in_place(self, old: onnx.NodeProto, new: Sequence[onnx.NodeProto]) -> None:
        """`new` where `old` stands, which may be one of them."""
        (at,) = (index for index, node in enumerate(self.nodes) if node is old)
        self.nodes[at : at + 1] = new

    def shape(self, tensor: str) -> tuple[int | None, ...] | None:
        """Extents as ONNX infers them, None for those it cannot; None where even the rank is unknown."""
        if tensor in self.constants:
            return tuple(self.constants[tensor].dims)
        kind = self._inferred().get(tensor)
        if kind is None or not kind.HasField("shape"):
            return None
        return tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)

    def numpy_type(self, tensor: str) -> np.dtype[Any]:
        """The element type of a tensor; f32 where ONNX cannot infer it."""
        kind = self._inferred().get(tensor)
        code = self.constants[tensor].data_type if tensor in self.constants else kind.elem_type if kind else 0
        return np.dtype(helper.tensor_dtype_to_np_dtype(code or onnx.TensorProto.FLOAT))

    def type_as(self, tensor: str, other: str) -> None:
        """A new tensor has the type of `other`."""
        if other in self._inferred():
            self._inferred()[tensor] = self._inferred()[other]

    def finish(self) -> onnx.ModelProto:
        """The model with its changes. Types of inner tensors, which may be others now, are left out, and so are inputs
        that only repeat the type of an initializer, as files before IR version 4 must have them."""
        graph = self.model.graph
        del graph.node[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(self._added)
        self.model.ir_version = max(self.model.ir_version, LEAST_IR_VERSION)
        del graph.value_info[:]
        listed = [item for item in graph.input if item.name in self.inputs]
        del graph.input[:]
        graph.input.extend(listed)
        return self.model

    def _inferred(self) -> dict[str, onnx.TypeProto.Tensor]:
        """Types of the tensors of the model as it was given."""
        if self._types is None:
            inferred = onnx.shape_inference.infer_shapes(_without_weights(self.model)).graph
            values = (*inferred.input, *inferred.value_info, *inferred.output)
            self._types = {value.name: value.type.tensor_type for value in values}
        return self._types


def called(node: onnx.NodeProto) -> str:
    """What a recipe calls a node."""
    return str(node.name or next((name for name in node.output if name), ""))


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute, `default` where it is left out."""
    return next((helper.get_attribute_value(item) for item in node.attribute if item.name == name), default)


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types but not the values of large constants: inference would copy them."""
    light = onnx.ModelProto(ir_version=max(model.ir_version, LEAST_IR_VERSION), opset_import=model.opset_import)
    graph = model.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    stored = {item.name for item in graph.initializer}
    light.graph.input.extend(item for item in graph.input if item.name not in stored)
    light.graph.output.extend(graph.output)
    for item in graph.initializer:
        if np.prod(item.dims) <= _KNOWN_VALUES:
            light.graph.initializer.append(item)
        else:
            light.graph.input.append(helper.make_tensor_value_info(item.name, item.data_type, item.dims))
    return light


def _graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [item.g for item in node.attribute if item.HasField("g")] + [
        g for item in node.attribute for g in item.graphs
    ]


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [found for node in graph.node for sub in _graphs(node) for found in _all_nodes(sub)]
    return [*graph.node, *inner]


def _read(graph: onnx.GraphProto) -> set[str]:
    return {name for node in _all_nodes(graph) for name in node.input} | {item.name for item in graph.output}
