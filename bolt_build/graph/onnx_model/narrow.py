"""Constants of fewer than 8 bits, and of 8 bits of floating point: no tensor of an engine has such a type.

They are read as what holds every number of theirs, and only operators that look at their numbers alone may have them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from bolt_build.graph.ir import Array

WIDER: dict[np.dtype[np.generic], np.dtype[np.generic]] = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in (
        (ml_dtypes.int2, np.int8), (ml_dtypes.int4, np.int8), (ml_dtypes.uint2, np.uint8), (ml_dtypes.uint4, np.uint8),
        (ml_dtypes.float4_e2m1fn, np.float32), (ml_dtypes.float8_e4m3fn, np.float32),
        (ml_dtypes.float8_e4m3fnuz, np.float32), (ml_dtypes.float8_e5m2, np.float32),
        (ml_dtypes.float8_e5m2fnuz, np.float32),
    )
}  # fmt: skip
"""What each such type is read as."""

READERS = ("DequantizeLinear", "GatherBlockQuantized")
"""Operators that take them, in whatever domain: the element type is nothing to those."""


def is_narrow(array: Array) -> bool:
    """True of an array that is read as another type."""
    return array.dtype in WIDER


def wider(array: Array) -> Array:
    """The same numbers in the type that they are read as; itself where it is not narrow."""
    return array.astype(WIDER[array.dtype]) if is_narrow(array) else array
