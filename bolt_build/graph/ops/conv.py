"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Conv(Op):
    """Inputs x [N,C,*spatial], w [K,C/groups,*kernel], optionally bias [K]; output [N,K,*out]. ONNX Conv.

    Pads are explicit here (auto_pad is resolved at import, from the bound shape).
    """

    kind = "conv"
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
