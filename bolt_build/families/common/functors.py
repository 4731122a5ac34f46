"""Functions of elements as C++ functors of `bolt_portable`, which kernels of several families apply."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.common.cxx import literal
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS

ACTIVATIONS = {name: "".join(part.capitalize() for part in name.split("_")) for name in FUNCTIONS}
BINARIES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "mod": "Mod",
    "fmod": "Fmod", "prelu": "PRelu",
}  # fmt: skip

TRANSCENDENTAL = tuple(name for name, function in FUNCTIONS.items() if function.transcendental)
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
    parameters = (op.alpha, op.beta)[: FUNCTIONS[op.function].parameters]
    values = ", ".join(literal(value) for value in parameters)
    return f"{activation_type(op)}{{{values}}}"


def binary(op: Binary) -> str:
    """`bolt::portable::Add`"""
    return f"bolt::portable::{BINARIES[op.function]}"
