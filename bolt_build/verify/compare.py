"""Differences between two arrays, in pieces that stay in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bolt_build.graph.ir import Array

PIECE = 1 << 13
"""Elements compared at a time. Temporaries stay in the first cache and off mmap, and a BLAS dot product of under 10000
elements stays in its thread: waking others costs twenty times what they compute."""
FLOOR = 1e-2
"""The scale of a tensor is never less than this part of its largest element: constant tensors have no deviation."""


@dataclass(frozen=True)
class Difference:
    """How an array differs from its reference, over the elements that are finite in both.

    `max_abs` is the largest difference, `element` the largest |difference| / (|reference| + s) and `rms` the root mean
    square of difference / s, s being the reference's standard deviation, or the size of its only element.
    `not_finite` counts NaN and infinity in the array, `reference_not_finite` in the reference.
    """

    max_abs: float
    element: float
    rms: float
    not_finite: int
    reference_not_finite: int


def difference(array: Array, reference: Array) -> Difference:
    """Compares two arrays of one shape; any element types, computed in float32 (sums in float64)."""
    a, b = array.reshape(-1), reference.reshape(-1)
    scale = _scale(b)
    largest = element = squares = 0.0
    bad = bad_reference = 0
    for at in range(0, len(a), PIECE):
        x, y = (part[at : at + PIECE].astype(np.float32, copy=False) for part in (a, b))
        d = x - y
        total = float(np.dot(d, d))
        if not np.isfinite(total):
            bad += int(np.count_nonzero(~np.isfinite(x)))
            bad_reference += int(np.count_nonzero(~np.isfinite(y)))
            keep = np.isfinite(d)
            d, y = d[keep], y[keep]
            total = float(np.dot(d.astype(np.float64), d.astype(np.float64)))
            if not d.size:
                continue
        np.abs(d, out=d)
        largest = max(largest, float(d.max()))
        weight = np.abs(y)
        weight += np.float32(scale)
        np.divide(d, weight, out=d)
        element = max(element, float(d.max()))
        squares += total
    rms = float(np.sqrt(squares / max(len(a), 1))) / scale
    return Difference(largest, element, rms, bad, bad_reference)


def _scale(reference: Array) -> float:
    """Standard deviation of the finite elements, at least `FLOOR` of the largest; of a single one, its size."""
    total = squares = largest = 0.0
    count = 0
    for at in range(0, len(reference), PIECE):
        part = reference[at : at + PIECE].astype(np.float32, copy=False)
        square = float(np.dot(part, part))
        if not np.isfinite(square):
            part = part[np.isfinite(part)]
            square = float(np.dot(part.astype(np.float64), part.astype(np.float64)))
        if part.size:
            # Sums of a piece in float32: where rounding could touch the deviation, `FLOOR` takes its place.
            total += float(part.sum())
            squares += square
            largest = max(largest, float(part.max()), -float(part.min()))
            count += part.size
    if count == 1:
        return max(largest, float(np.finfo(np.float32).tiny))
    mean = total / max(count, 1)
    variance = squares / max(count, 1) - mean * mean
    return max(float(np.sqrt(max(variance, 0.0))), FLOOR * largest, float(np.finfo(np.float32).tiny))


def flatness(array: Array) -> float:
    """How many times as large as its deviation an array is in the root mean square; 1 at least, and at most `1 / FLOOR`
    where it hardly deviates."""
    flat = array.reshape(-1)
    finite = flat[np.isfinite(flat)].astype(np.float64)
    return max(1.0, float(np.sqrt(np.mean(np.square(finite)))) / _scale(flat)) if finite.size else 1.0


def cosine(a: Array, b: Array) -> float:
    """Cosine of two arrays as vectors: 1 for two zero vectors, 0 for one, and 0 where anything is not finite."""
    x, y = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    norms = float(np.dot(x, x)) * float(np.dot(y, y))
    if not np.isfinite(norms):
        return 0.0
    if norms == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(np.dot(x, y)) / float(np.sqrt(norms))


def least_cosine(rows: Array, reference: Array) -> float:
    """The least cosine between rows of the same index."""
    return min(cosine(a, b) for a, b in zip(rows, reference, strict=True))


def dependence(rows: Array, limit: int = 8) -> float | None:
    """The largest cosine between different rows (of the first `limit`); None for a single row."""
    return max((cosine(a, b) for a, b in combinations(rows[:limit], 2)), default=None)
