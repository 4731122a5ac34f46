"""Operators that move elements without computing."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Reshape(Op):
    """Logical row-major reshape to a static shape. ONNX Reshape, Flatten, Squeeze, Unsqueeze."""

    kind = "reshape"
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Transpose(Op):
    """Output axis i is input axis perm[i]."""

    kind = "transpose"
    perm: tuple[int, ...]


@dataclass(frozen=True)
class Concat(Op):
    """Any number of inputs along `axis` (non-negative)."""

    kind = "concat"
    axis: int


@dataclass(frozen=True)
class Slice(Op):
    """One entry an axis of the input: begin, count and step (may be negative) are already resolved."""

    kind = "slice"
    begin: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True)
class Pad(Op):
    """One entry an axis (may be negative: crops). `mode` is "constant", "reflect" or "edge"."""

    kind = "pad"
    begin: tuple[int, ...]
    end: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0


@dataclass(frozen=True)
class Identity(Op):
    """The input. Also what Dropout is at inference."""

    kind = "identity"


@dataclass(frozen=True)
class Cast(Op):
    """Converts between floating-point types that the model itself asks for."""

    kind = "cast"
    to: DType


@dataclass(frozen=True)
class Convert(Op):
    """The same logical values in another storage format. Only in problems: the graph knows no formats."""

    kind = "convert"
