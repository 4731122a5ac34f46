"""Functions of elements as C++ functors of `bolt_portable`, which kernels of several families apply."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.common.cxx import literal
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS as MORE_FUNCTIONS

ACTIVATIONS = {
    "relu": "Relu", "leaky_relu": "LeakyRelu", "clip": "Clip", "sigmoid": "Sigmoid", "hard_sigmoid": "HardSigmoid",
    "hard_swish": "HardSwish", "tanh": "Tanh", "softplus": "Softplus", "gelu": "Gelu", "gelu_tanh": "GeluTanh",
    "erf": "Erf", "silu": "Silu", "exp": "Exp", "sqrt": "Sqrt", "square": "Square", "neg": "Neg", "abs": "Abs",
    "reciprocal": "Reciprocal", "sign": "Sign",
    **{name: "".join(part.capitalize() for part in name.split("_")) for name in MORE_FUNCTIONS},
}  # fmt: skip
BINARIES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "mod": "Mod",
    "fmod": "Fmod", "prelu": "PRelu",
}  # fmt: skip

PARAMETERS = {
    "leaky_relu": 1, "clip": 2, "hard_sigmoid": 2, "elu": 1, "selu": 2, "celu": 1, "thresholded_relu": 1, "shrink": 2,
    "swish": 1,
}  # fmt: skip
"""How many of alpha and beta a function has."""
_CALLED = tuple(
    name for name in MORE_FUNCTIONS if name not in ("floor", "ceil", "round", "thresholded_relu", "softsign", "shrink")
)

TRANSCENDENTAL = ("sigmoid", "tanh", "softplus", "gelu", "gelu_tanh", "erf", "silu", "exp", *_CALLED)
"""Activations that cost tens of operations an element instead of one or two."""
_INSTRUCTIONS = {"silu": 5, "swish": 5, "sigmoid": 5, "tanh": 5, "exp": 5, "gelu": 10, "hard_swish": 2}
_MANY = 10
"""Instructions of a function that is no simple one: those of softplus, say."""


def instructions(stages: Sequence[EpilogueOp]) -> int:
    """Instructions of one element's activations on a GPU, about; none for those of one or two
    (`benchmarks/kernels/activation_sass.py` counts them)."""
    functions = (stage.op.function for stage in stages if isinstance(stage.op, Activation))
    return sum(_INSTRUCTIONS.get(name, _MANY if name in TRANSCENDENTAL else 0) for name in functions)


def activation_type(op: Activation) -> str:
    """`bolt::portable::Clip`"""
    return f"bolt::portable::{ACTIVATIONS[op.function]}"


def activation(op: Activation) -> str:
    """`bolt::portable::Clip{0.0f, 6.0f}`"""
    parameters = (op.alpha, op.beta)[: PARAMETERS.get(op.function, 0)]
    values = ", ".join(literal(value) for value in parameters)
    return f"{activation_type(op)}{{{values}}}"


def binary(op: Binary) -> str:
    """`bolt::portable::Add`"""
    return f"bolt::portable::{BINARIES[op.function]}"
