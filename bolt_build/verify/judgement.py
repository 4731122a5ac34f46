"""Judges one tensor: how far it is from what its own inputs give, measured by what rounding of them can do.

An element's deviation is its difference from the reference over the standard deviation that rounding gives it there.
Where an engine is right, deviations are below 1 in the root mean square (the variances of `verify.rounding` are upper
ones) and the largest of a hundred million is some 6. A fault is found where either exceeds its limit; it has to be no
larger than rounding for that, whatever the network makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.compare import PIECE
from bolt_build.verify.rounding.rounding import SMALLEST, UNIT, UNITS

SPREAD = 1.5
"""Of the deviations' root mean square: an error of every element shows in it, however small beside the largest that
rounding makes. Right engines stay below 1, for variances are taken where the last bit weighs most."""


MASK = 1e30
"""What is as large hides a key of attention and is no result of a layer: half precision has infinity in its place, or
its largest number."""
MOST = {DType.F16: 65504.0, DType.BF16: float(np.float32(2.0**128 * (1 - 2.0**-8)))}
"""The largest numbers of half types."""


def largest(count: int) -> float:
    """The limit of the largest of `count` deviations: twice what it is among as many normal ones, and 3 for the error
    of that estimate. 9 of a hundred elements, 15 of a hundred million."""
    return 3.0 + 2.0 * sqrt(2.0 * log(max(count, 2)))


def chance(count: float) -> float:
    """How much larger than SPREAD the root mean square of `count` normal deviations is, once in a million: 3.5 times
    for a single one, 1 from 50 on (Wilson and Hilferty's approximation of the chi-squared distribution)."""
    part = 2.0 / (9.0 * max(count, 1.0))
    square = pow(1.0 - part + 4.75 * sqrt(part), 3)
    return max(1.0, sqrt(square) / SPREAD)


def different(values: Array) -> float:
    """How many different numbers there are, to 2^-20 of the largest: n where all of n are, 1 where all are one, and
    otherwise n^2 over the sum of the squares of how often each is there. What is the same is rounded the same way."""
    finite = values[np.isfinite(values)].astype(np.float32, copy=False)
    most = float(np.abs(finite).max(initial=0.0))
    if most == 0.0:
        return 1.0
    _, often = np.unique(np.round(finite * np.float32(2.0**20 / most)), return_counts=True)
    return float(finite.size**2 / np.sum(np.square(often, dtype=np.float64)))


@dataclass(frozen=True)
class Judgement:
    """`largest`, of `limit`, and `spread`: the largest deviation, and their root mean square or that of all differences
    over that of what rounding can do, whichever is larger, less what `chance` makes of few elements. `noise` and
    `signal`: the root mean squares of what rounding can do and of the reference. `max_abs`: the largest difference.
    Elements that are not finite count in `not_finite` (in the engine alone) or `reference_not_finite` and nowhere else,
    and in neither where both sides have NaN or the same infinity, or the reference a number beyond `MASK`; `unbounded`
    are those that differ where rounding may do anything."""

    max_abs: float
    largest: float
    limit: float
    spread: float
    noise: float
    signal: float
    not_finite: int
    reference_not_finite: int
    unbounded: int = 0

    @property
    def used(self) -> float:
        """The part of its limits that the tensor uses; above 1 it departs."""
        return max(self.largest / self.limit, self.spread / SPREAD)

    @property
    def tells(self) -> bool:
        """False where what passes is as large as the signal: then a wrong tensor could pass for a right one."""
        return not self.unbounded and (SPREAD * self.noise < self.signal or self.noise == 0.0)


def judge(array: Array, expected: Array, variance: Array | None, stored: DType, relative: float = 0.0) -> Judgement:
    """`array` as the engine has it, stored in `stored`, beside `expected` of the same shape.

    `variance` broadcasts to that shape, or is that of its first rows; `relative` is a variance relative to `expected`.
    Both are in units of UNIT^2; they are None and 0 where nothing but the storing rounds.
    """
    found = _judged(array, expected, variance, stored, relative)
    if found.spread > SPREAD:
        # That may be chance, where what seems to be many elements are few: in their size, or as different ones.
        found = _judged(array, expected, variance, stored, relative, weighed=True)
    if found.spread <= SPREAD:
        return found
    return replace(found, spread=found.spread * chance(expected.size) / chance(different(expected)))


def _judged(
    array: Array, expected: Array, variance: Array | None, stored: DType, relative: float, *, weighed: bool = False
) -> Judgement:
    last = np.float32((UNITS.get(stored, 0.0) ** 2 / 3.0 + relative) * UNIT**2)
    least = np.float32(max(SMALLEST.get(stored, 0.0) ** 2, float(np.finfo(np.float32).tiny)))
    sums = _Sums(last, least, np.float32(MOST.get(stored, np.inf)), weighed)
    with np.errstate(all="ignore"):
        rows = expected.shape[:1]
        known = rows if variance is None or variance.ndim < expected.ndim else variance.shape[:1]
        if variance is None or known in ((1,), rows):
            sums.add(array, expected, variance)
            return sums.judgement()
        (count,) = known
        sums.add(array[:count], expected[:count], variance)
        size = max(_mean(np.square(expected[:count])), float(np.finfo(np.float32).tiny))
        # Another row's may be larger at a place: twice the largest there, the mean of all, and more for a larger row.
        usual = 2.0 * variance.max(axis=0) + np.float32(_mean(variance))
        for x, y in zip(array[count:], expected[count:], strict=True):
            sums.add(x, y, usual * np.float32(max(1.0, _mean(np.square(y)) / size)))
    return sums.judgement()


def judge_exactly(array: Array, expected: Array) -> Judgement:
    """Integers and booleans, which nothing rounds: one element that is another departs."""
    wrong = array != expected
    size = float(np.abs(array.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))
    signal = float(np.sqrt(np.mean(np.square(expected.astype(np.float64))))) if expected.size else 0.0
    count = int(np.count_nonzero(wrong))
    return Judgement(max(size, float(count > 0)), float(count), 0.5, 0.0, 0.0, signal, 0, 0)


class _Sums:
    """What is added up, piece by piece. Every variance has a part `last` of the reference's square, and `least`. A
    number of at least `most` stands for all that are larger. Where they are `weighed`, elements of which few make most
    of the variance count as few."""

    def __init__(self, last: np.float32, least: np.float32, most: np.float32, weighed: bool) -> None:
        self._last, self._least, self._most, self._weighed = last, least, most, weighed
        self._squared_noise = 0.0
        self._max_abs = self._largest = self._deviations = self._differences = self._noise = self._signal = 0.0
        self._count = self._bad = self._bad_reference = self._unbounded = 0

    def add(self, array: Array, expected: Array, variance: Array | None) -> None:
        """A part of the engine's tensor and of the reference's, with the variance in units of UNIT^2."""
        a, b = array.reshape(-1), expected.reshape(-1)
        v = None if variance is None else np.broadcast_to(variance, expected.shape).reshape(-1)
        for at in range(0, len(a), PIECE):
            x, y = (part[at : at + PIECE].astype(np.float32, copy=False) for part in (a, b))
            square = y * y
            error = square * self._last
            error += self._least
            if v is not None:
                error += v[at : at + PIECE] * np.float32(UNIT**2)
            self._piece(x, y, square, error)

    def _piece(self, x: Array, y: Array, square: Array, error: Array) -> None:
        """A piece of the engine's tensor, the reference's with its squares, and the variances of rounding."""
        d = x - y
        np.multiply(d, d, out=d)
        if not np.isfinite(float(d.sum()) + float(error.sum())):
            # A masked logit is infinite, or near the largest number, on both sides, and what a model computes for
            # both answers and then chooses from is NaN on both: there is nothing to judge.
            other = (x != y) & ~(np.isnan(x) & np.isnan(y))
            finite = np.isfinite(x) & np.isfinite(y)
            bounded = np.isfinite(error)
            beyond = (np.abs(x) >= self._most) & (np.abs(y) >= MASK) & (np.signbit(x) == np.signbit(y))
            self._bad += int(np.count_nonzero(~np.isfinite(x) & np.isfinite(y) & ~beyond))
            self._bad_reference += int(np.count_nonzero(~np.isfinite(y) & other))
            self._unbounded += int(np.count_nonzero(finite & ~bounded & other & ~beyond))
            d, error, square = (part[finite & bounded] for part in (d, error, square))
        if not d.size:
            return
        self._count += d.size
        self._max_abs = max(self._max_abs, float(d.max()))
        self._differences += float(d.sum())
        self._noise += float(error.sum())
        if self._weighed:
            self._squared_noise += float(np.square(error, dtype=np.float64).sum())
        self._signal += float(square.sum())
        np.divide(d, error, out=d)
        self._largest = max(self._largest, float(d.max()))
        self._deviations += float(d.sum())

    def judgement(self) -> Judgement:
        count = max(self._count, 1)
        # Where rounding does little, small errors show; where it does much, what is behind most of the tensor's size.
        heavy = self._noise**2 / self._squared_noise if self._squared_noise else float(count)
        together = _root(self._differences / self._noise) / chance(heavy) if self._noise else 0.0
        spread = max(_root(self._deviations / count) / chance(count), together)
        # What numbers near zero lose is no noise of the layer's.
        rounding = max(self._noise / count - 1.01 * float(self._least), 0.0)
        noise, signal = map(_root, (rounding, self._signal / count))
        return Judgement(
            _root(self._max_abs), _root(self._largest), largest(self._count), spread, noise, signal,
            self._bad, self._bad_reference, self._unbounded,
        )  # fmt: skip


def _mean(values: Array) -> float:
    """Of those that are finite: 0 where none is."""
    mean = float(np.mean(values))
    if np.isfinite(mean):
        return mean
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if finite.size else 0.0


def _root(square: float) -> float:
    """Square root; of what is beyond all numbers, the largest that JSON can hold."""
    return min(float(np.sqrt(square)), float(np.finfo(np.float32).max))
