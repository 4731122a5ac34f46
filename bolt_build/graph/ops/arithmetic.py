"""Elementwise functions of two tensors."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Binary(Op):
    """y = a (function) b with NumPy broadcasting; `function` is "add", "sub", "mul", "div", "pow", "max" or "min"."""

    kind = "binary"
    function: str
