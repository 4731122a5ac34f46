"""Reductions over axes."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Reduce(Op):
    """`mode` is "mean", "sum" or "max" over `axes` (non-negative, sorted). GlobalAveragePool, GlobalMaxPool, ReduceMean/Sum/Max."""

    kind = "reduce"
    mode: str
    axes: tuple[int, ...]
    keepdims: bool = True
