"""Which nodes of an ONNX model make floating-point numbers, of whatever type, and which tensors hold some."""

from __future__ import annotations

import functools

import onnx
import onnx.defs
from onnx import AttributeProto, NodeProto, TensorProto, helper

from bolt_build.graph.ir import Array

REAL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_COUNTS = (
    "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "IsNaN", "IsInf", "Equal", "Less", "Greater", "LessOrEqual",
    "GreaterOrEqual", "And", "Or", "Not", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot",
    "BitShift", "MatMulInteger", "ConvInteger",
)  # fmt: skip
"""Operators whose results are no floating-point numbers: nothing of them is rounded."""


def is_own(node: NodeProto) -> bool:
    """True of ONNX's own operators."""
    return node.domain in ("", "ai.onnx")


def makes_others(node: NodeProto) -> bool:
    """True of a node whose results are no floating-point numbers."""
    return node.op_type in _COUNTS or _is_counted(node) or _is_encoded(node)


def whole_outputs(node: NodeProto, opset: int) -> frozenset[int]:
    """Which of a node's outputs hold no floating-point numbers, beside others that do: indices, masks, labels. Integers
    that stand for such numbers are none of these: where one is decided is a matter of rounding."""
    if node.op_type in _ROUNDING:
        return frozenset()
    if node.domain == "com.microsoft":
        return _OF_CONTRIB.get(node.op_type, frozenset())
    return _whole_outputs("" if is_own(node) else node.domain, node.op_type, opset if is_own(node) else _LEARNED_OPSET)


_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
_OF_CONTRIB = {"EmbedLayerNormalization": frozenset((1,))}
_LEARNED_OPSET = 3
"""Of the domain ai.onnx.ml, in which all of its operators that are imported are."""


@functools.cache
def _whole_outputs(domain: str, op_type: str, opset: int) -> frozenset[int]:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return frozenset()
    real = ("tensor(float", "tensor(double", "tensor(bfloat")
    found = enumerate(schema.outputs)
    return frozenset(index for index, each in found if not any(kind.startswith(real) for kind in each.types))


def makes_real(node: NodeProto) -> bool:
    """True of a constant of a floating-point type, and of a cast to one."""
    if node.op_type == "Cast":
        return not _is_counted(node)
    return node.op_type == "Constant" and any(
        attribute.name in ("value_float", "value_floats")
        or (attribute.name == "value" and attribute.t.data_type in REAL)
        for attribute in node.attribute
    )


def _is_counted(node: NodeProto) -> bool:
    """True of a cast to whole numbers or booleans."""
    to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), None)
    return node.op_type == "Cast" and to not in REAL


def _is_encoded(node: NodeProto) -> bool:
    """True of labels that stand for others, and are no floating-point numbers."""
    if node.domain != "ai.onnx.ml" or node.op_type != "LabelEncoder":
        return False
    values = [each for each in node.attribute if each.name.startswith("values_")]
    return not any(each.name == "values_floats" or each.t.data_type in REAL for each in values)


def in_fp32(attribute: AttributeProto) -> AttributeProto:
    """A Cast's `to`, or a Constant's `value`, of another floating-point type in fp32."""
    if attribute.name == "to" and attribute.i in REAL:
        return helper.make_attribute("to", TensorProto.FLOAT)
    if attribute.name == "value" and attribute.t.data_type in REAL and attribute.t.data_type != TensorProto.FLOAT:
        array = onnx.numpy_helper.to_array(attribute.t).astype("float32")
        return helper.make_attribute("value", onnx.numpy_helper.from_array(array))
    return attribute


def is_real(array: Array) -> bool:
    return array.dtype.kind not in "iub"
