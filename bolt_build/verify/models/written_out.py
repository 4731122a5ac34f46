"""Functions written out as the operators that define them, where verification has rules for those alone, or where
onnxruntime computes them less exactly than they are defined; and nodes of types that it has no kernel for, as a cast of
what it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from bolt_build.graph.onnx_model.onnx_parse import subgraphs
from bolt_build.verify.emitter import unused_prefix
from bolt_build.verify.models import batch_norms
from bolt_build.verify.models.contrib_functions import contrib_written_out

WRITTEN_OUT = ("Attention",)
"""Operators of ONNX's own domain whose rounding follows from that of the operators of their definition."""
_QUANTISED_LSTM = "DynamicQuantizeLSTM"
"""Of the domain com.microsoft: onnxruntime rounds its x and its states to 8 bits, an engine does not."""

EYES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT64)
"""Types that onnxruntime takes and gives an EyeLike of. torch-script writes masks as such of booleans."""


def with_exact_sigmoids(model: ModelProto) -> ModelProto:
    """The model with 1 / (1 + e^-x) in place of every Sigmoid of fp32: onnxruntime's is off by 1e-7, which may be all
    that an output is."""
    if not any(node.op_type == "Sigmoid" for node in model.graph.node):
        return model
    types = types_of(onnx.shape_inference.infer_shapes(model).graph)
    changed = ModelProto()
    changed.CopyFrom(model)
    one = unused_prefix(name for node in model.graph.node for name in (*node.input, *node.output))
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        kind = types.get(node.input[0]) if node.op_type == "Sigmoid" else None
        nodes += [node] if kind is None or kind.tensor_type.elem_type != TensorProto.FLOAT else _exactly(node, one)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    changed.graph.initializer.append(helper.make_tensor(one, TensorProto.FLOAT, [], [1.0]))
    return changed


def _exactly(node: NodeProto, one: str) -> list[NodeProto]:
    """1 / (1 + e^-x), for which `one` is there."""
    negative, power, below = (f"{one}.{node.output[0]}.{part}" for part in ("negative", "power", "below"))
    return [
        helper.make_node("Neg", node.input, [negative]),
        helper.make_node("Exp", [negative], [power]),
        helper.make_node("Add", [power, one], [below]),
        helper.make_node("Reciprocal", [below], node.output),
    ]


def written_out(model: ModelProto) -> ModelProto:
    """The model with the bodies of such functions in their places, in graphs inside nodes too; itself without any.

    Tensors of the model keep their names; those inside begin with the function's first output. A node whose inputs have
    no known type stays.
    """
    model = contrib_written_out(model, _renamed)
    if not _has_functions(model.graph):
        return model
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    changed = ModelProto()
    changed.CopyFrom(model)
    _write_out(changed.graph, onnx.shape_inference.infer_shapes(model).graph, {}, opset)
    return changed


def _write_out(graph: GraphProto, inferred: GraphProto, outer: dict[str, TypeProto], opset: int) -> None:
    """`inferred` is the same graph with the types of its tensors."""
    types = outer | types_of(inferred)
    nodes: list[NodeProto] = []
    for given, known in zip(graph.node, inferred.node, strict=True):
        node = NodeProto()
        node.CopyFrom(given)
        for inner, typed in zip(_graphs(node), _graphs(known), strict=True):
            _write_out(inner, typed, types, opset)
        if _is_eye(node):
            nodes += _in_single(node, types)
            continue
        body = _body(node, opset, types) if _is_function(node) else None
        nodes += [node] if body is None else _renamed(node, body)
    del graph.node[:]
    graph.node.extend(nodes)


def _graphs(node: NodeProto) -> list[GraphProto]:
    return [graph for attribute in node.attribute for graph in subgraphs(attribute)]


def _has_functions(graph: GraphProto) -> bool:
    return any(_is_function(node) or _is_eye(node) or any(map(_has_functions, _graphs(node))) for node in graph.node)


def _is_function(node: NodeProto) -> bool:
    if node.domain == "com.microsoft":
        return node.op_type == _QUANTISED_LSTM
    return batch_norms.is_unusual(node) or (node.domain in ("", "ai.onnx") and node.op_type in WRITTEN_OUT)


def _is_eye(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type == "EyeLike"


def _in_single(node: NodeProto, types: dict[str, TypeProto]) -> Iterable[NodeProto]:
    """An EyeLike in fp32, between casts from and to its own types; itself where onnxruntime has it in these."""
    given = types[node.input[0]].tensor_type.elem_type if node.input[0] in types else TensorProto.FLOAT
    to = next((each.i for each in node.attribute if each.name == "dtype"), given)
    if given in EYES and to in EYES:
        return (node,)
    single, eye = f"{node.output[0]}/EyeLike/like", f"{node.output[0]}/EyeLike/single"
    others = {each.name: each.i for each in node.attribute if each.name != "dtype"}
    return (
        helper.make_node("Cast", [node.input[0]], [single], name=f"{node.name}/like", to=TensorProto.FLOAT),
        helper.make_node("EyeLike", [single], [eye], name=node.name, dtype=TensorProto.FLOAT, **others),
        helper.make_node("Cast", [eye], list(node.output), name=f"{node.name}/cast", to=to),
    )


def types_of(graph: GraphProto) -> dict[str, TypeProto]:
    """The types that a graph states of its tensors, by name."""
    found = {each.name: helper.make_tensor_type_proto(each.data_type, each.dims) for each in graph.initializer}
    found.update((each.name, each.type) for each in (*graph.value_info, *graph.input, *graph.output))
    return found


def _body(node: NodeProto, opset: int, types: dict[str, TypeProto]) -> FunctionProto | None:
    """The function that defines the node for inputs of these types."""
    if node.op_type == _QUANTISED_LSTM:
        return _quantised_lstm(node)
    if any(name and name not in types for name in node.input):
        return None
    if batch_norms.is_unusual(node):
        return batch_norms.body(node, types[node.input[0]], opset)
    schema: Any = onnx.defs.get_schema(node.op_type, opset)  # its stub lacks what functions need
    known = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
    if not known:
        return None
    given = [types[name].SerializeToString() if name else b"" for name in node.input]
    made = schema.get_context_dependent_function_with_opset_version(max(known), node.SerializeToString(), given)
    return FunctionProto.FromString(made) if made else None


def _quantised_lstm(node: NodeProto) -> FunctionProto:
    """(W - zero point) * scale, [directions, inputs, gates] with one scale a direction or a column, as an LSTM reads
    it; R likewise."""
    inputs = [f"i{index}" for index in range(12)]
    given = [name if index < len(node.input) and node.input[index] else "" for index, name in enumerate(inputs)]
    steps: list[NodeProto] = []

    def step(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        steps.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    directions = 2 if any(each.name == "direction" and each.s == b"bidirectional" for each in node.attribute) else 1
    step("Constant", [], "apart", value_ints=[directions, 1, -1])
    for place, scale in ((1, 8), (2, 10)):
        real = step("Cast", [given[place]], f"real{place}", to=onnx.TensorProto.FLOAT)
        if given[scale + 1]:
            zero = step("Cast", [given[scale + 1]], f"zero{place}", to=onnx.TensorProto.FLOAT)
            real = step("Sub", [real, step("Reshape", [zero, "apart"], f"zeros{place}")], f"moved{place}")
        scales = step("Reshape", [given[scale], "apart"], f"scales{place}")
        real = step("Mul", [real, scales], f"scaled{place}")
        given[place] = step("Transpose", [real], f"turned{place}", perm=[0, 2, 1])
    outputs = [f"o{index}" for index in range(len(node.output))]
    named = [name if used else "" for name, used in zip(outputs, node.output, strict=True)]
    steps.append(helper.make_node("LSTM", given[:8], named))
    steps[-1].attribute.extend(node.attribute)
    return helper.make_function("com.microsoft", node.op_type, inputs, outputs, steps, [])


def _renamed(node: NodeProto, body: FunctionProto) -> Iterable[NodeProto]:
    """The function's nodes between the node's own tensors."""
    given = dict.fromkeys(body.input, "")
    given.update(zip(body.input, node.input, strict=False))
    given.update((inner, name) for inner, name in zip(body.output, node.output, strict=False) if name)
    prefix = f"{node.output[0]}/{node.op_type}/"
    for index, each in enumerate(body.node):
        made = NodeProto()
        made.CopyFrom(each)
        made.name = f"{prefix}{index}"
        for names in (made.input, made.output):
            names[:] = [given.get(name, f"{prefix}{name}") if name else "" for name in names]
        yield made
