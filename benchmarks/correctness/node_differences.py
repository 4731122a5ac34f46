"""Whether the results of a node case are what it wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
RIGHT = "right"


def difference(wanted: Sequence[tuple[Array, str]], found: Sequence[Array], rtol: float, atol: float) -> str:
    """ "right", or in which output and how the first difference is. `wanted` are arrays as `stored` gives them, each
    with the name of its element type."""
    for index, (one, (array, dtype)) in enumerate(zip(found, wanted, strict=True)):
        if one.shape != array.shape or one.dtype != array.dtype:
            return f"output {index} is {one.dtype} {list(one.shape)} where {dtype} {list(array.shape)} is wanted"
        same = np.isclose(wide(one), wide(array), _rtol(rtol, dtype), max(atol, 1e-6), equal_nan=True)
        if not same.all():
            worst = np.unravel_index(int(np.argmin(same)), same.shape)
            count = int(same.size - same.sum())
            return (
                f"output {index}: {count} of {same.size} differ, first {one[worst]!s} where {array[worst]!s} is wanted"
            )
    return RIGHT


def _rtol(given: float, dtype: str) -> float:
    """`given`, or two units in the last place of a type that is coarser."""
    if dtype == "bfloat16":
        return max(given, 2 * float(ml_dtypes.finfo(dtype).eps))
    return max(given, 2 * float(np.finfo(dtype).eps)) if np.dtype(dtype).kind == "f" else 0.0


def stored(array: Array) -> Array:
    """As engines' outputs are kept in files: bfloat16 widened."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def wide(array: Array) -> Array:
    """Numbers that compare without overflow; what is not floating-point exactly, as far as 2^53."""
    found: Array = array.astype(np.float64)
    return found
