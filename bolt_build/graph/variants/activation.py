"""Another activation in the place of a model's own, written with the operators that its opset has.

What the opset lacks is spelled out as exporters do: SiLU as x * sigmoid(x), GELU with Erf below opset 20. The planner
recognises these as one operation, so that they ride in an epilogue as others do.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx
from onnx import helper

from bolt_build.graph.variants.edited import EditedModel, called
from bolt_build.graph.variants.mistake import Mistake, VariantError
from bolt_build.schema.recipe import ActivationChange

SWAPPABLE = ("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "HardSwish", "Gelu", "Swish", "Softplus", "Mish")
"""Activations of one tensor. Sigmoid and Tanh are not among them, for they are gates as often; nor is Clip."""

GELU_SINCE, HARDSWISH_SINCE = 20, 14


def swap_activations(edited: EditedModel, change: ActivationChange) -> int:
    """Puts `change.to` in the place of every activation that is meant; how many there were.

    The node keeps its name and its output's. Raises VariantError where there is none.
    """
    nodes = edited.nodes if change.match is None else edited.matching(change.match)
    kinds = ("Relu",) if change.match is None else SWAPPABLE
    found = [node for node in nodes if node.op_type in kinds]
    if not found:
        raise VariantError([_nothing(edited, change)])
    for node in found:
        edited.put_in_place(node, activation_nodes(edited, change.to, called(node), node.input[0], node.output[0]))
    return len(found)


def activation_nodes(edited: EditedModel, function: str, name: str, x: str, y: str) -> list[onnx.NodeProto]:
    """Nodes that compute y = function(x), the last of them called `name`."""

    def inner(op: str, *inputs: str) -> onnx.NodeProto:
        scope = edited.free(f"{name}/{op}")
        return helper.make_node(op, list(inputs), [edited.free(f"{scope}_output_0")], name=scope)

    def number(of: str, value: float) -> str:
        return edited.add_constant(f"{name}.{of}", np.asarray(value, edited.numpy_type(x)))

    def last(op: str, *inputs: str) -> onnx.NodeProto:
        return helper.make_node(op, list(inputs), [y], name=name)

    match function:
        case "relu":
            return [last("Relu", x)]
        case "softplus":
            return [last("Softplus", x)]
        case "silu":
            gate = inner("Sigmoid", x)
            return [gate, last("Mul", x, gate.output[0])]
        case "hardswish" if edited.opset >= HARDSWISH_SINCE:
            return [last("HardSwish", x)]
        case "hardswish":
            gate = inner("HardSigmoid", x)
            gate.attribute.extend([helper.make_attribute("alpha", 1 / 6), helper.make_attribute("beta", 0.5)])
            return [gate, last("Mul", x, gate.output[0])]
        case "gelu" if edited.opset >= GELU_SINCE:
            return [last("Gelu", x)]
        case "gelu":
            scaled = inner("Div", x, number("root", sqrt(2.0)))
            erf = inner("Erf", scaled.output[0])
            gate = inner("Add", erf.output[0], number("one", 1.0))
            product = inner("Mul", x, gate.output[0])
            return [scaled, erf, gate, product, last("Mul", product.output[0], number("half", 0.5))]
    raise ValueError(f"'{function}' is no activation")


def _nothing(edited: EditedModel, change: ActivationChange) -> Mistake:
    if change.match is None:
        other = next((node for node in edited.nodes if node.op_type in SWAPPABLE), None)
        hint = f"name its activations with 'match', such as '{called(other)}' ({other.op_type})" if other else None
        return Mistake("activation", "nothing-to-swap", "the model has no Relu", hint)
    matched = edited.matching(change.match)
    if not matched:
        return Mistake("activation.match", "no-match", f"'{change.match}' matches no node of the model")
    kinds = ", ".join(sorted({node.op_type for node in matched}))
    return Mistake(
        "activation.match", "nothing-to-swap", f"'{change.match}' matches no activation: only {kinds}",
        f"activations are {', '.join(SWAPPABLE)} nodes",
    )  # fmt: skip
