"""How much a network amplifies a small change of its input: measured in the reference, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array
from bolt_build.verify.compare import difference
from bolt_build.verify.reference import Reference
from bolt_build.verify.rounding import UNIT, UNITS

ROUNDINGS = 8.0
"""Unit roundoffs by which the input is changed, as a part of its root mean square: as much as some sixty layers'
roundings come to. Less would drown in the reference's own; much more would not meet the decisions (an attention that
is torn between two positions) that rounding tips."""


STEP = 2.0**-8
"""The change, in place of that, for a model that rounds to integers: it absorbs what is smaller than half a step, and
where an engine's rounding tips a number over a border, that is off by a whole one. Where it is fed integers alone, such
as tokens, what these select is changed."""

ROWS = 4
"""Rows of a large batch that are run once more, over all samples: they pass through the network each by itself."""


@dataclass(frozen=True)
class Share:
    """Which rows of a batch are changed in one of `samples` samples: of a large batch each sample changes others,
    `ROWS` in all or one a sample."""

    batch: int
    sample: int
    samples: int

    def of(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The rows alone."""
        count = -(-min(self.batch, ROWS) // self.samples)
        first = min(self.sample * (self.batch // self.samples), self.batch - count)
        return {name: array[first : first + count] for name, array in arrays.items()}

    def divides(self, arrays: Mapping[str, Array]) -> bool:
        """True where there are rows to leave out, and every array lies along the batch."""
        return self.batch > -(-min(self.batch, ROWS) // self.samples) and all(
            array.ndim > 0 and array.shape[0] == self.batch for array in arrays.values()
        )


@dataclass(frozen=True)
class Growth:
    """What a relative change of 1 in the inputs would make of an output, in its standard deviations: in the root mean
    square, and of the element that it changes most. What saturates changes in few elements, and there wholly."""

    rms: float = 0.0
    element: float = 0.0

    def most(self, other: Growth) -> Growth:
        """The larger of each."""
        return Growth(max(self.rms, other.rms), max(self.element, other.element))


def amplification(
    reference: Reference,
    feeds: Mapping[str, Array],
    before: Mapping[str, Array],
    stored: DType,
    share: Share,
    seed: int,
) -> dict[str, Growth]:
    """For each output, what a relative change of 1 in the inputs would make of it, in proportion to what a change by
    roundings of the type `stored` makes. `before` are the outputs for `feeds` as they are."""
    size = ROUNDINGS * UNITS.get(stored, 1.0) * UNIT
    if reference.takes_any_batch and share.divides(feeds):
        part = share.of(feeds)
        try:
            return _grown(reference, part, reference.outputs(part), size, seed)
        except BoltError:
            # A symbolic batch is no promise: somewhere inside, a model may count on the batch that is asked for.
            return _grown(reference, feeds, before, size, seed)
    return _grown(reference, feeds, before, size, seed)


def _grown(
    reference: Reference, feeds: Mapping[str, Array], before: Mapping[str, Array], size: float, seed: int
) -> dict[str, Growth]:
    change = max(size, STEP) if reference.rounds_to_integers else size
    if reference.rounds_to_integers and not any(array.dtype.kind == "f" for array in feeds.values()):
        after = reference.stirred(feeds, change, seed)
    else:
        changed = {name: _changed(array, change, seed + index) for index, (name, array) in enumerate(feeds.items())}
        after = reference.outputs(changed)
    found = {name: difference(after[name], before[name]) for name in before}
    return {name: Growth(each.rms / size, each.element / size) for name, each in found.items()}


def _changed(array: Array, size: float, seed: int) -> Array:
    """`array` with noise of `size` of its root mean square; what is not floating point stays."""
    if array.dtype.kind != "f":
        return array
    noise = np.random.RandomState(seed).standard_normal(array.shape)
    return np.asarray(array + noise * (size * max(float(np.sqrt(np.mean(np.square(array)))), 1e-30)), array.dtype)
