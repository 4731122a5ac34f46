"""Models in bf16 or fp64 as the same models in fp32: onnxruntime computes next to nothing in bf16 on a CPU, and NumPy,
through which it is fed, has no such type; and some operators it does not compute in fp64."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

_TYPES = ("to", "dtype", "output_dtype")
"""Attributes that name an element type."""


def without_bf16(model: ModelProto) -> ModelProto:
    """The model with fp32 wherever it has bf16, and its numbers as they are; `model` itself where it has none.

    External data stays where it is. `model` has no functions, and of subgraphs nothing is changed: import takes none.
    """
    return _in_fp32(model, TensorProto.BFLOAT16)


def without_fp64(model: ModelProto) -> ModelProto:
    """The model with fp32 wherever it has fp64; `model` itself where it has none."""
    return _in_fp32(model, TensorProto.DOUBLE)


def _in_fp32(model: ModelProto, kind: int) -> ModelProto:
    graph = model.graph
    if not (_states(graph, kind) or any(_is_of(held, kind) for node in graph.node for held in node.attribute)):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    _change(changed.graph, kind)
    return changed


def _states(graph: GraphProto, kind: int) -> bool:
    ports = (*graph.input, *graph.output)
    return any(port.type.tensor_type.elem_type == kind for port in ports) or any(
        tensor.data_type == kind for tensor in graph.initializer
    )


def _is_of(attribute: AttributeProto, kind: int) -> bool:
    if attribute.name in _TYPES:
        return bool(attribute.i == kind)
    return bool(attribute.t.data_type == kind)


def _change(graph: GraphProto, kind: int) -> None:
    del graph.value_info[:]  # what is between follows from the nodes
    constants = [tensor for tensor in graph.initializer if tensor.data_type == kind]
    named = {tensor.name for tensor in constants}
    ports = [port for port in graph.input if port.name not in named]  # old versions list constants there too
    del graph.input[:]
    graph.input.extend(ports)
    for port in (*graph.input, *graph.output):
        if port.type.tensor_type.elem_type == kind:
            port.type.tensor_type.elem_type = TensorProto.FLOAT
    for attribute in (held for node in graph.node for held in node.attribute if _is_of(held, kind)):
        if attribute.name in _TYPES:
            attribute.i = TensorProto.FLOAT
        else:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype("float32")))
    casts = []
    prefix = _unused_prefix(graph)
    for tensor in constants:
        name, tensor.name = tensor.name, f"{prefix}{tensor.name}"
        casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    nodes: list[NodeProto] = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _unused_prefix(graph: GraphProto) -> str:
    taken = {tensor.name for tensor in graph.initializer} | {port.name for port in graph.input}
    taken |= {name for node in graph.node for name in node.output}
    prefix = "bf16:"
    while any(name.startswith(prefix) for name in taken):
        prefix += ":"
    return prefix
