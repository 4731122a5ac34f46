"""BatchNormalization by statistics of the batch itself, or with numbers for each element, as the operators that define
it: rules of rounding are for one that scales and moves channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import FunctionProto, NodeProto, TypeProto, helper, numpy_helper

_SAYS_MODE = 14
"""From this operator set on an attribute says whether statistics are the batch's; more outputs than one did before."""
_AXES_INPUT = 18
"""From this one on ReduceMean has its axes as an input."""


def is_unusual(node: NodeProto) -> bool:
    """Whether it is such a node."""
    if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
        return False
    given = {each.name: each.i for each in node.attribute}
    return bool(given.get("training_mode", 0)) or not given.get("spatial", 1) or any(node.output[1:])


def body(node: NodeProto, x: TypeProto, opset: int) -> FunctionProto | None:
    """The function that computes the node of an `x` of this type; None where its rank is not known."""
    if not x.tensor_type.HasField("shape"):
        return None
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    rank, apart = len(x.tensor_type.shape.dim), not given.get("spatial", 1)
    trains = bool(given.get("training_mode", 0)) or (opset < _SAYS_MODE and any(node.output[1:]))
    axes = [0] if apart else [0, *range(2, rank)]
    steps: list[NodeProto] = []

    def step(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        steps.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def constant(name: str, value: Any) -> str:
        return step("Constant", [], name, value=numpy_helper.from_array(np.asarray(value)))

    def averaged(name: str, output: str) -> str:
        if opset >= _AXES_INPUT:
            along = constant(f"{output}_axes", np.asarray(axes, np.int64))
            return step("ReduceMean", [name, along], output, keepdims=1)
        return step("ReduceMean", [name], output, axes=axes, keepdims=1)

    def spread(name: str) -> str:
        """A number for each channel, as what broadcasts to x."""
        return name if apart else step("Reshape", [name, "channels"], f"{name}_spread")

    constant("channels", np.asarray([-1, *[1] * (rank - 2)], np.int64))
    mean = averaged("x", "batch_mean") if trains else spread("m")
    centred = step("Sub", ["x", mean], "centred")
    variance = averaged(step("Mul", [centred, centred], "squares"), "batch_variance") if trains else spread("v")
    shifted = step("Add", [variance, constant("epsilon", np.float32(given.get("epsilon", 1e-5)))], "shifted")
    unit = step("Div", [centred, step("Sqrt", [shifted], "deviation")], "unit")
    step("Add", [step("Mul", [unit, spread("s")], "scaled"), spread("b")], "o0")
    outputs = ["o0"]
    if opset >= _SAYS_MODE:
        momentum = constant("momentum", np.float32(given.get("momentum", 0.9)))
        rest = constant("rest", np.float32(1.0) - np.float32(given.get("momentum", 0.9)))
        for old, new in (("m", mean), ("v", variance)):
            flat = step("Reshape", [new, constant(f"{old}_flat", np.asarray([-1], np.int64))], f"{old}_new")
            kept = step("Mul", [old, momentum], f"{old}_kept")
            outputs.append(step("Add", [kept, step("Mul", [flat, rest], f"{old}_share")], f"o_{old}"))
    named = outputs[: len(node.output)]
    return helper.make_function("own", node.op_type, ["x", "s", "b", "m", "v"], named, steps, [])
