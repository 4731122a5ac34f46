"""ONNX files as plain data: everything about protobuf, external data and operator schemas ends here and in the modules
`onnx_parse`, `onnx_functions`, `onnx_structure` and `onnx_tensor`.

Import these only where a model is really read: they import onnx.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.defs
from onnx import AttributeProto, TensorProto

from bolt_build.graph.importing import NO_SCHEMA, Attribute, Branch, OnnxNode
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_model.onnx_findings import Findings
from bolt_build.graph.onnx_model.onnx_functions import inlined
from bolt_build.graph.onnx_model.onnx_order import in_order
from bolt_build.graph.onnx_model.onnx_parse import opsets_of, parse_model
from bolt_build.graph.onnx_model.onnx_structure import captured, check_definitions, live_nodes, unique_names
from bolt_build.graph.onnx_model.onnx_tensor import Tensors
from bolt_build.graph.operators import added_operators


@dataclass(frozen=True)
class OnnxInput:
    """A graph input; a dimension is an extent, the name of a symbolic one, or None for one without a name.

    `dtype` is TensorProto's name of the element type; `dims` is None where the rank is not known.
    """

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class OnnxContents:
    """A model file's graph. `nodes` are those that outputs depend on, in order; `files` all that was read."""

    path: Path
    files: tuple[Path, ...]
    opsets: tuple[tuple[str, int], ...]
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    initializers: tuple[tuple[str, Array], ...]
    nodes: tuple[OnnxNode, ...]


def read_onnx(path: Path) -> OnnxContents:
    """The contents of the model at `path`, local functions inlined where no package has an operator for them. Raises
    BoltError with every finding."""
    findings = Findings(path, files=[path])
    model = parse_model(findings)
    opsets = opsets_of(findings, model)
    graph = in_order(inlined(findings, model, added_operators() if model.functions else ())).graph
    if not graph.output:
        raise findings.fail("model-without-outputs", "the model's graph has no outputs")
    check_definitions(findings, graph)
    live = live_nodes(findings, graph)
    tensors = Tensors(findings)
    needed = {name for _, proto in live for name in proto.input} | {output.name for output in graph.output}
    needed.update(name for _, proto in live for attribute in proto.attribute for name in captured(attribute))
    initializers = tuple(
        (tensor.name, array)
        for tensor in graph.initializer
        if tensor.name in needed and (array := tensors.array(tensor, f"'{tensor.name}'")) is not None
    )
    initializers += tuple(
        (sparse.values.name, array)
        for sparse in graph.sparse_initializer
        if sparse.values.name in needed and (array := tensors.dense(sparse, f"'{sparse.values.name}'")) is not None
    )
    given = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = tuple(_input(findings, value) for value in graph.input if value.name not in given)
    names = unique_names(live)
    nodes = tuple(
        _node(findings, tensors, proto, name, dict(opsets)) for name, (_, proto) in zip(names, live, strict=True)
    )
    tensors.finish()
    findings.check()
    outputs = tuple(dict.fromkeys(output.name for output in graph.output))
    return OnnxContents(path, tuple(dict.fromkeys(findings.files)), opsets, inputs, outputs, initializers, nodes)


def _node(findings: Findings, tensors: Tensors, proto: onnx.NodeProto, name: str, opsets: dict[str, int]) -> OnnxNode:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    label = f"{proto.op_type} '{name}'"
    attributes: list[tuple[str, Attribute]] = []
    unreadable = []
    inside = _INSIDE.get(proto.op_type, ()) if not domain else ()
    branches = _branches(findings, tensors, proto, opsets, inside)
    for attribute in proto.attribute:
        if branches and attribute.name in inside:
            continue
        value = _attribute(tensors, attribute, f"'{attribute.name}' of {label}")
        if value is None:
            unreadable.append(attribute.name)
        else:
            attributes.append((attribute.name, value))
    for given, count in Counter(attribute.name for attribute in proto.attribute).items():
        if count > 1:
            findings.report("invalid-node", f"{label}: attribute '{given}' is given {count} times")
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    schema = _schema(domain, proto.op_type, opsets.get(domain, 0))
    if schema is not None:
        for what, names, most in (("inputs", inputs, schema.max_input), ("outputs", outputs, schema.max_output)):
            if _count(names) > most:
                findings.report("invalid-node", f"{label}: has {_count(names)} {what}, of at most {most}")
    # A domain without schemas: the opset itself.
    own = opsets.get(domain, _ASSUMED.get(domain, 0)) if domain else NO_SCHEMA
    version = own if schema is None else schema.since_version
    return OnnxNode(
        name, domain, proto.op_type, version, inputs, outputs, tuple(attributes), tuple(unreadable), branches
    )


_ASSUMED = {"com.microsoft": 1}
"""The version of a domain that a model uses and does not import, as onnxruntime takes it; 0 of any other."""
_INSIDE = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",), "SequenceMap": ("body",)}
"""Attributes of ONNX's operators that are graphs."""


def _branches(
    findings: Findings, tensors: Tensors, proto: onnx.NodeProto, opsets: dict[str, int], names: tuple[str, ...]
) -> tuple[Branch, ...]:
    """The graphs in these attributes; nothing where one is missing."""
    graphs = {attribute.name: attribute.g for attribute in proto.attribute if attribute.HasField("g")}
    if any(name not in graphs for name in names):
        return ()
    return tuple(branch_of(findings, tensors, graphs[name], opsets) for name in names)


def branch_of(findings: Findings, tensors: Tensors, graph: onnx.GraphProto, opsets: dict[str, int]) -> Branch:
    """A graph inside a node as plain data."""
    nodes = list(enumerate(graph.node))
    return Branch(
        tuple(
            _node(findings, tensors, inner, name, opsets)
            for name, (_, inner) in zip(unique_names(nodes), nodes, strict=True)
        ),
        tuple(
            (tensor.name, array)
            for tensor in graph.initializer
            if (array := tensors.array(tensor, f"'{tensor.name}'")) is not None
        ),
        tuple(output.name for output in graph.output),
        tuple(value.name for value in graph.input),
        tuple(value.name for value in graph.input if len(value.type.tensor_type.shape.dim) == 1),
    )


def _count(names: tuple[str, ...]) -> int:
    """How many names there are, trailing ones left out not counted."""
    return max((index for index, name in enumerate(names, 1) if name), default=0)


@functools.cache
def _schema(domain: str, op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """The operator's schema in an opset; None where there is none."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _attribute(tensors: Tensors, attribute: AttributeProto, label: str) -> Attribute | None:
    """The decoded value, None for a kind that has no decoded form, and for one that only a function's call gives."""
    kind = attribute.type
    if attribute.ref_attr_name:
        return None
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind == AttributeProto.TENSOR:
        return tensors.array(attribute.t, label)
    if kind == AttributeProto.SPARSE_TENSOR:
        return tensors.dense(attribute.sparse_tensor, label)
    if kind == AttributeProto.FLOATS:
        return tuple(float(item) for item in attribute.floats)
    if kind == AttributeProto.INTS:
        return tuple(int(item) for item in attribute.ints)
    if kind == AttributeProto.STRINGS:
        return tuple(item.decode(errors="replace") for item in attribute.strings)
    return None


def _input(findings: Findings, value: onnx.ValueInfoProto) -> OnnxInput:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return OnnxInput(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    known = tensor.elem_type in TensorProto.DataType.values()
    dtype = TensorProto.DataType.Name(tensor.elem_type).lower() if known else str(tensor.elem_type)
    if not tensor.HasField("shape"):
        return OnnxInput(value.name, dtype, None)
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and (dim.dim_value == 0 or dim.dim_value < _OPEN):
            message = f"dimension {axis} of the input '{value.name}' is {dim.dim_value}, so that it has no elements"
            findings.report("empty-input", message, "export the model with the extents that it is to be run with")
    return OnnxInput(value.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


_OPEN = -1
"""What some exporters write for a dimension without an extent."""
_NAMELESS = ("", "?")
"""What they write for the name of one that has none: equal ones are no reason for equal extents."""


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value != _OPEN else None
    return dim.dim_param if dim.dim_param not in _NAMELESS else None
