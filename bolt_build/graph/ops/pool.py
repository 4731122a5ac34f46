"""Windowed pooling."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Pool(Op):
    """Input [N,C,*spatial], output [N,C,*out]. `mode` is "max" or "average". ONNX MaxPool, AveragePool.

    With `ceil_mode` the output size rounds up, but a window never starts beyond the input and its begin padding
    (ONNX's rule). `count_include_pad` divides by the window's cells that lie inside input and padding.
    """

    kind = "pool"
    mode: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False
    count_include_pad: bool = False
