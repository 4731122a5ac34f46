"""Operators that are functions: what they are in other operators, for inputs of known types.

Import this only where such an operator is met: it imports onnx.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.inliner
from onnx import AttributeProto, helper, numpy_helper

from bolt_build.graph.importing import Attribute, Branch, OnnxNode, Refusal
from bolt_build.graph.ir import TensorType
from bolt_build.graph.onnx_model.contrib_bodies import body_of_contrib
from bolt_build.graph.onnx_model.contrib_body import Port
from bolt_build.graph.onnx_model.onnx_file import branch_of
from bolt_build.graph.onnx_model.onnx_findings import Findings
from bolt_build.graph.onnx_model.onnx_tensor import Tensors
from bolt_build.graph.ops.moves.moving import ONNX_DTYPES

_TYPES = {dtype: number for number, dtype in ONNX_DTYPES.items()}
CONTRIB = "com.microsoft"
"""The other domain that has such operators (`contrib_bodies`)."""
_DOMAIN = "bolt.functions"
"""Of the call in a model that is made to be inlined at once."""


def body_of(node: OnnxNode, types: Sequence[TensorType | None], opset: int) -> Branch | None:
    """The function that defines the node for inputs of these types (None: left out), written out in its operators.

    None where ONNX defines the operator otherwise, and where the node has attributes that cannot be read.
    """
    if node.domain not in ("", CONTRIB) or node.unreadable:
        return None
    proto = helper.make_node(node.op_type, list(node.inputs), list(node.outputs), name=node.name)
    proto.attribute.extend(_attribute(name, value) for name, value in node.attributes)
    ports = dict(zip(node.inputs, types, strict=True))
    if node.domain:
        function = _taken_over(proto, types) or _contrib(node, types, opset)
    else:
        function = _function(proto, [_type(each) for each in types], opset)
    if function is None:
        return None
    function.domain = proto.domain = _DOMAIN
    given = [
        helper.make_tensor_value_info(name, _TYPES[type_.dtype], type_.shape)
        for name, type_ in ports.items()
        if type_ is not None
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    opsets = [*function.opset_import, helper.make_opsetid(_DOMAIN, 1)]
    graph = helper.make_graph([proto], "function", given, made)
    model = onnx.inliner.inline_local_functions(helper.make_model(graph, opset_imports=opsets, functions=[function]))
    findings = Findings(Path(node.op_type))
    tensors = Tensors(findings)
    own = {each.domain: each.version for each in function.opset_import}
    body = branch_of(findings, tensors, model.graph, own)
    tensors.finish()
    findings.check()
    return body


_AS_ONNX = {"LinearAttention": 27, "CausalConvWithState": 27}
"""Operators of the other domain that ONNX took over, by the opset in which it did. Their attributes that it did not
take have these values where nothing is said."""
_UNTAKEN = {
    "state_window": 0, "dilation": 1, "ndim": 1, "state_update_capacity": 0, "state_channels_last": 0,
    "state_length": 0, "input_channel_offset": 0, "channels_last": 0, "input_channels": 0,
}  # fmt: skip


def _taken_over(proto: onnx.NodeProto, types: Sequence[TensorType | None]) -> onnx.FunctionProto | None:
    """The function of a node of the other domain that is an operator of ONNX too. Raises Refusal."""
    if proto.op_type not in _AS_ONNX:
        return None
    kept = []
    for each in proto.attribute:
        if each.name not in _UNTAKEN:
            kept.append(each)
        elif helper.get_attribute_value(each) != _UNTAKEN[each.name]:
            message = f"{each.name}={helper.get_attribute_value(each)} is not supported"
            raise Refusal("unsupported-attribute", message)
    del proto.attribute[:]
    proto.attribute.extend(kept)
    return _function(proto, [_type(each) for each in types], _AS_ONNX[proto.op_type])


def _contrib(node: OnnxNode, types: Sequence[TensorType | None], opset: int) -> onnx.FunctionProto | None:
    inputs = [None if each is None else Port(_TYPES[each.dtype], each.shape) for each in types]
    outputs = max((index for index, name in enumerate(node.outputs, 1) if name), default=0)
    return body_of_contrib(node.op_type, dict(node.attributes), inputs, outputs, opset)


def is_function(op_type: str, opset: int) -> bool:
    """Whether ONNX defines an operator of an operator set by others."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _function(proto: onnx.NodeProto, types: Sequence[bytes], opset: int) -> onnx.FunctionProto | None:
    """The function of the node's operator for an operator set; None where there is none."""
    try:
        schema: Any = onnx.defs.get_schema(proto.op_type, opset, "")  # its stub lacks what functions need
    except onnx.defs.SchemaError:
        return None
    found = b""
    if known := [version for version in schema.function_opset_versions if version <= opset]:
        found = schema.get_function_with_opset_version(max(known))
    elif known := [version for version in schema.context_dependent_function_opset_versions if version <= opset]:
        given = proto.SerializeToString()
        found = schema.get_context_dependent_function_with_opset_version(max(known), given, types)
    return onnx.FunctionProto.FromString(found) if found else None


def _type(of: TensorType | None) -> bytes:
    if of is None:
        return b""
    made: bytes = helper.make_tensor_type_proto(_TYPES[of.dtype], of.shape).SerializeToString()
    return made


def _attribute(name: str, value: Attribute) -> AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, numpy_helper.from_array(value))
    if value == ():
        return helper.make_attribute(name, [], attr_type=AttributeProto.INTS)
    return helper.make_attribute(name, value)
