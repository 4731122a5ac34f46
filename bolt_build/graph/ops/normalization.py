"""Normalisations over channels."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class BatchNorm(Op):
    """Inference form: inputs x [N,C,...], scale, bias, mean, variance, each [C]."""

    kind = "batch_norm"
    epsilon: float


@dataclass(frozen=True)
class Lrn(Op):
    """Local response normalisation across channels: x / (bias + alpha/size * sum of squares over `size` channels) ** beta."""

    kind = "lrn"
    size: int
    alpha: float
    beta: float
    bias: float
