"""NumPy arrays for the IR's element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, TensorType

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F64: np.dtype(np.float64), DType.F32: np.dtype(np.float32), DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16), DType.I64: np.dtype(np.int64), DType.I32: np.dtype(np.int32),
    DType.I8: np.dtype(np.int8), DType.U8: np.dtype(np.uint8), DType.BOOL: np.dtype(np.bool_),
    DType.I16: np.dtype(np.int16), DType.U16: np.dtype(np.uint16), DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
}  # fmt: skip
_DTYPES = {numpy: dtype for dtype, numpy in _NUMPY.items()}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of `dtype` (bf16 through ml_dtypes)."""
    return _NUMPY[dtype]


def held_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which a constant of `dtype` is held that import or a pass has computed: fp32 for half types.
    The weights table rounds once, to what the reader stores, which may be finer than the model."""
    return _NUMPY[DType.F32 if dtype in (DType.F16, DType.BF16) else dtype]


def dtype_of(array: Array) -> DType:
    """The element type of `array`. Raises ValueError for one that the IR has no name for."""
    found = _DTYPES.get(array.dtype)
    if found is None:
        what = "strings" if array.dtype.kind in "OSU" else str(array.dtype)
        raise ValueError(f"element type {what} is not supported")
    return found


def type_of(array: Array) -> TensorType:
    """Element type and shape of `array`. Raises ValueError as `dtype_of`."""
    return TensorType(dtype_of(array), tuple(int(extent) for extent in array.shape))


def widened(array: Array) -> Array:
    """`array` in float64 if it is of a floating-point type, else itself: what references compute in."""
    if dtype_of(array).is_float:
        return array.astype(np.float64)
    return array


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array` in `dtype` as kernels convert: floating-point numbers are cut off towards zero and end at the limits of
    an integer type (NaN is 0), integers keep their low bits, and a boolean is what is not zero."""
    with np.errstate(all="ignore"):
        if dtype.kind not in "iu" or not dtype_of(array).is_float:
            return np.asarray(array).astype(dtype)
        info = np.iinfo(dtype)
        wide = np.trunc(np.nan_to_num(np.asarray(array).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        above, below = wide >= 2.0**info.bits / (1 if info.min == 0 else 2), wide < float(info.min)
        within = np.where(above | below, 0.0, wide).astype(dtype)
        return np.asarray(np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), within)), dtype)


def held(array: Array) -> Array:
    """`array` as what is computed of it is held, itself where it is."""
    return array.astype(held_dtype(dtype_of(array)), copy=False)


def narrowed(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array` in `dtype`, itself where it is; values out of range become infinite without a warning."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype, copy=False)
