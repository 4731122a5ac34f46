"""Small ONNX models for the tests of import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.text import format_graph

Dims = Sequence[int | str | None]
FLOAT = TensorProto.FLOAT


def tensor(name: str, dims: Dims | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: object) -> onnx.NodeProto:
    """A node of inputs and outputs named in one string, with "-" for one left out."""
    split = [[("" if item == "-" else item) for item in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *split, name=name, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (tensor("x", [1, 3, 8, 8]),),
    outputs: Sequence[str] = ("y",),
    constants: dict[str, Array] | None = None,
    opset: int = 17,
    opsets: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        inputs,
        [tensor(name, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in (("", opset), *opsets)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def resize(x: tuple[int, ...], given: str, asked: object, opset: int = 19, **attributes: object) -> onnx.ModelProto:
    """Of scales or sizes."""
    inputs = {"scales": "x - asked", "sizes": "x - - asked"}[given]
    nodes = [node("Resize", inputs, "y", **attributes)]
    for each in nodes:
        each.input[:] = ["" if name == "-" else name for name in each.input]
    return model(nodes, [tensor("x", x)], constants={"asked": np.asarray(asked)}, opset=opset)


def saved(directory: Path, proto: onnx.ModelProto, name: str = "test.onnx") -> Path:
    path = directory / name
    path.write_bytes(proto.SerializeToString())
    return path


def bound(directory: Path, proto: onnx.ModelProto, batch: int = 1, dims: tuple[tuple[str, int], ...] = ()) -> Graph:
    return load_model(saved(directory, proto)).bind(batch, dims)


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def refusals(tmp_path: Path, proto: onnx.ModelProto) -> list[tuple[str, str]]:
    """Codes and messages of what loading and binding say."""
    path = saved(tmp_path, proto)
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(1)
    assert all(d.subject == str(path) for d in raised.value.diagnostics)
    return [(d.code, d.message) for d in raised.value.diagnostics]


def said(path: Path) -> list[tuple[str, str]]:
    """Codes and messages of what loading and binding say of the model at `path`."""
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(1)
    assert all(d.subject == str(path) for d in raised.value.diagnostics)
    return [(d.code, d.message) for d in raised.value.diagnostics]


def of(tmp_path: Path, proto: onnx.ModelProto) -> list[tuple[str, str]]:
    return said(saved(tmp_path, proto))


def body(graph: Graph) -> list[str]:
    """The lines of the graph's text between its braces, without indentation."""
    check(graph)
    return [line.strip() for line in format_graph(graph).splitlines()[1:-1]]
