"""Elementwise functions of one tensor."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op

FUNCTIONS = (
    "relu", "leaky_relu", "clip", "sigmoid", "hard_sigmoid", "hard_swish", "tanh", "softplus", "gelu", "gelu_tanh", "erf", "silu",
    "exp", "sqrt", "neg", "abs", "reciprocal",
)  # fmt: skip


@dataclass(frozen=True)
class Activation(Op):
    """y = function(x; alpha, beta). `alpha`, `beta`: leaky_relu slope in alpha; clip [alpha, beta];
    hard_sigmoid clip(alpha * x + beta, 0, 1); unused ones are 0."""

    kind = "activation"
    function: str
    alpha: float = 0.0
    beta: float = 0.0
