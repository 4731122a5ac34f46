"""Outputs without what masks them: a model may answer minus infinity, or the least number that there is, for classes or
tokens that it leaves out. That is right where an engine answers it too, and says nothing of what else it answers."""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.judgement import MASK, MOST


def without_masked(array: Array, reference: Array, stored: DType = DType.F32) -> tuple[Array, Array]:
    """Both arrays, 0 in place of what is beyond `MASK` and the same in both. Half precision has infinity or its largest
    number on that side of 0. As they are where nothing else is left."""
    if reference.dtype.kind != "f" or array.shape != reference.shape:
        return array, reference
    beyond = _size(reference) >= MASK
    if not beyond.any():
        return array, reference
    same = array == reference
    if stored in MOST:
        same |= (_size(array) >= MOST[stored]) & (np.signbit(array) == np.signbit(reference))
    beyond &= same
    if beyond.all():
        return array, reference
    return np.where(beyond, 0, array).astype(array.dtype), np.where(beyond, 0, reference).astype(reference.dtype)


def _size(array: Array) -> Array:
    """Magnitudes, in a type that holds the bounds."""
    return np.asarray(np.abs(array if array.dtype.itemsize > 2 else array.astype(np.float32)))
