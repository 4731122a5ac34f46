"""Functions of elements as C++ functors of `bolt_portable`, which kernels of several families apply."""

from __future__ import annotations

from bolt_build.families.common.cxx import literal
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary

ACTIVATIONS = {
    "relu": "Relu", "leaky_relu": "LeakyRelu", "clip": "Clip", "sigmoid": "Sigmoid", "hard_sigmoid": "HardSigmoid",
    "hard_swish": "HardSwish", "tanh": "Tanh", "softplus": "Softplus", "gelu": "Gelu", "gelu_tanh": "GeluTanh",
    "erf": "Erf", "silu": "Silu", "exp": "Exp", "sqrt": "Sqrt", "neg": "Neg", "abs": "Abs", "reciprocal": "Reciprocal",
    "sign": "Sign",
}  # fmt: skip
BINARIES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "mod": "Mod",
    "fmod": "Fmod",
}  # fmt: skip

TRANSCENDENTAL = ("sigmoid", "tanh", "softplus", "gelu", "gelu_tanh", "erf", "silu", "exp")
"""Activations that cost tens of operations an element instead of one or two."""


def activation_type(op: Activation) -> str:
    """`bolt::portable::Clip`"""
    return f"bolt::portable::{ACTIVATIONS[op.function]}"


def activation(op: Activation) -> str:
    """`bolt::portable::Clip{0.0f, 6.0f}`"""
    parameters = {"leaky_relu": (op.alpha,), "clip": (op.alpha, op.beta), "hard_sigmoid": (op.alpha, op.beta)}
    values = ", ".join(literal(value) for value in parameters.get(op.function, ()))
    return f"{activation_type(op)}{{{values}}}"


def binary(op: Binary) -> str:
    """`bolt::portable::Add`"""
    return f"bolt::portable::{BINARIES[op.function]}"
