"""Operators that onnxruntime has on GPUs alone, or computes less exactly, written out as what its CPU has
(`graph.onnx_model.contrib_bodies`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from bolt_build.graph.onnx_model.contrib_bodies import OPERATORS, body_of_contrib
from bolt_build.graph.onnx_model.contrib_body import Port

_CONTRIB = "com.microsoft"
_AS_FIRST = (
    "BiasGelu", "FastGelu", "Gelu", "LayerNormalization", "QuickGelu", "SimplifiedLayerNormalization",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
)  # fmt: skip
"""Other operators that onnxruntime's optimiser writes into models of any opset, so that onnx may know nothing of their
types: what of their outputs is read is of the type of input 0."""
_OF_ITS_AXES = {
    "QLinearAdd": 0, "QLinearAveragePool": 0, "QLinearConcat": 2, "QLinearGlobalAveragePool": 0,
    "QLinearLeakyRelu": 0, "QLinearMul": 0, "QLinearSigmoid": 0, "QLinearSoftmax": 0, "QLinearWhere": 1,
}  # fmt: skip
"""Of com.microsoft, whose results have as many axes as this input, and its type."""
_SMALL = 1024
"""Elements of constants that decide shapes; of larger ones their types are enough."""


def contrib_written_out(
    model: ModelProto, renamed: Callable[[NodeProto, FunctionProto], Iterable[NodeProto]]
) -> ModelProto:
    """The model without such operators, `renamed` being how a function's nodes go into a graph; itself without any. One
    whose inputs have no known type stays."""
    if not any(map(_is_written, model.graph.node)):
        return model
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    changed = ModelProto()
    changed.CopyFrom(model)
    like: dict[str, TypeProto] = {}
    # What follows one has a known type only where that is written out.
    while any(map(_is_written, changed.graph.node)):
        types, nodes, found = _types(changed, like), list[NodeProto](), False
        for node in changed.graph.node:
            body = _body(node, types, opset) if _is_written(node) else None
            nodes += [node] if body is None else renamed(node, body)
            found |= body is not None
            unknown = [name for name in node.output if name and name not in types]
            of = _other(node, types) if unknown else None
            if of is not None:
                like |= dict.fromkeys(unknown, of)
                found = True
        if not found:
            break
        del changed.graph.node[:]
        changed.graph.node.extend(nodes)
    return changed


def _is_written(node: NodeProto) -> bool:
    return node.domain == _CONTRIB and node.op_type in OPERATORS


def _body(node: NodeProto, types: dict[str, TypeProto], opset: int) -> FunctionProto | None:
    if any(name and name not in types for name in node.input):
        return None
    inputs = [_port(types[name]) if name else None for name in node.input]
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    outputs = max((index for index, name in enumerate(node.output, 1) if name), default=0)
    return body_of_contrib(node.op_type, attributes, inputs, outputs, opset)


def _other(node: NodeProto, types: dict[str, TypeProto]) -> TypeProto | None:
    """The type of the outputs of another operator; None where it is not known."""
    at = _OF_ITS_AXES.get(node.op_type) if node.domain == _CONTRIB else None
    if at is not None:
        of = types.get(node.input[at]) if at < len(node.input) else None
        axes = [] if of is None else [None] * len(of.tensor_type.shape.dim)
        return None if of is None else helper.make_tensor_type_proto(of.tensor_type.elem_type, axes)
    if node.op_type == "QGemm" and node.domain == _CONTRIB:
        zero = node.input[8] if len(node.input) > 8 else ""
        if zero and zero not in types:
            return None
        return helper.make_tensor_type_proto(
            types[zero].tensor_type.elem_type if zero else TensorProto.FLOAT, [None] * 2
        )
    first = types.get(node.input[0]) if node.input else None
    if first is None or node.op_type in _AS_FIRST:
        return first
    shape = [dim.dim_value for dim in first.tensor_type.shape.dim]
    if node.domain != _CONTRIB or node.op_type not in ("Attention", "MultiHeadAttention"):
        return None
    if len(shape) == 5:  # queries, keys and values by head
        shape = [*shape[:2], shape[2] * shape[4]]
    elif node.op_type == "Attention":
        if node.input[1] not in types:
            return None
        width = types[node.input[1]].tensor_type.shape.dim[-1].dim_value
        sizes = next((each.ints for each in node.attribute if each.name == "qkv_hidden_sizes"), [width // 3])
        shape = [*shape[:2], sizes[-1]]
    return helper.make_tensor_type_proto(first.tensor_type.elem_type, [extent or None for extent in shape])


def _port(of: TypeProto) -> Port:
    return Port(of.tensor_type.elem_type, tuple(dim.dim_value for dim in of.tensor_type.shape.dim))


def _types(model: ModelProto, like: dict[str, TypeProto]) -> dict[str, TypeProto]:
    """The types of all tensors that onnx knows, given those of some, without carrying large constants along."""
    light, graph = ModelProto(), GraphProto()
    for initializer in model.graph.initializer:
        if len(initializer.dims) < 2 and sum(initializer.dims) <= _SMALL:
            graph.initializer.append(initializer)
        else:
            of = helper.make_tensor_type_proto(initializer.data_type, initializer.dims)
            graph.input.append(onnx.ValueInfoProto(name=initializer.name, type=of))
    graph.name = model.graph.name
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.node.extend(model.graph.node)
    graph.value_info.extend(onnx.ValueInfoProto(name=name, type=of) for name, of in like.items())
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    if all(each.domain != _CONTRIB for each in model.opset_import):  # onnxruntime takes nodes of it all the same
        light.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    light.graph.CopyFrom(graph)
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    found = {each.name: each.type for each in (*inferred.value_info, *inferred.input, *inferred.output)}
    for each in inferred.initializer:
        found[each.name] = helper.make_tensor_type_proto(each.data_type, each.dims)
    return {name: of for name, of in found.items() if of.tensor_type.elem_type != TensorProto.UNDEFINED}
