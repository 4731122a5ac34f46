"""Pieces of C++ source text."""

from __future__ import annotations

import math
from collections.abc import Iterable


def braces(values: Iterable[object]) -> str:
    """`{1, 2, 3}`"""
    return "{" + ", ".join(str(value) for value in values) + "}"


def literal(value: float) -> str:
    """A float literal with the exact value, infinities and NaN included."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value)!r}f"


def double(value: float) -> str:
    """The same of a double literal."""
    return repr(float(value)) if math.isfinite(value) else literal(value)


def boolean(value: bool) -> str:
    return "true" if value else "false"


def struct(name: str, **fields: object) -> str:
    """`Name{.field = value, ...}`, fields in the order of declaration."""
    return f"{name}{{" + ", ".join(f".{key} = {value}" for key, value in fields.items()) + "}"
