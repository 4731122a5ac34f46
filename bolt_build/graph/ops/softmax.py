"""Softmax."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Softmax(Op):
    """Over one axis (non-negative). The coerced 2-D form of opsets below 13 is a Reshape, this, and a Reshape back."""

    kind = "softmax"
    axis: int
