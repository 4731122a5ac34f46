"""How much a network amplifies a small change of its input: measured in the reference, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.verify.compare import difference, flatness, least_cosine
from bolt_build.verify.masked import without_masked
from bolt_build.verify.reference import Reference, Run
from bolt_build.verify.rounding.rounding import UNIT, UNITS

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
    square, and of the element that it changes most. What saturates changes in few elements, and there wholly.

    `changed` is the part of whole numbers that become others. `tried` is what an output is off by, in the same units,
    where every layer is rounded; `tried_element` likewise, and `turned` is 1 less the cosine of the row of the batch
    that is turned most. 0 where that was not tried."""

    rms: float = 0.0
    element: float = 0.0
    changed: float = 0.0
    tried: float = 0.0
    tried_element: float = 0.0
    turned: float = 0.0

    def most(self, other: Growth) -> Growth:
        """The larger of each."""
        return Growth(*map(max, astuple(self), astuple(other)))


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
    reference: Reference, feeds: Mapping[str, Array], before: Mapping[str, Array], size: float, seed: int,
    *, stirs: bool = False,
) -> dict[str, Growth]:  # fmt: skip
    """`stirs`: what integers select is changed in any model, which loads it once more."""
    change = max(size, STEP) if reference.rounds_to_integers else size
    whole = not any(array.dtype.kind == "f" for array in feeds.values())
    if whole and (stirs or reference.rounds_to_integers):
        after = reference.stirred(feeds, change, seed)
    else:
        changed = {name: _changed(array, change, seed + index) for index, (name, array) in enumerate(feeds.items())}
        after = reference.outputs(changed)
    return {name: _growth(after[name], before[name], size) for name in before}


def _growth(after: Array, before: Array, size: float) -> Growth:
    """An output is itself stored: what it loses is a part of its size, which may be far above its deviation."""
    after, before = without_masked(after, before)
    found = difference(after, before)
    whole = before.dtype.kind in "iub"
    changed = float(np.mean(after != before)) if whole and before.size else 0.0
    return Growth(max(found.rms / size, 0.0 if whole else flatness(before)), found.element / size, changed)


DRAWS = 4
"""Changes of the input that are tried where outputs depart and no layer does."""


def tried(
    reference: Reference, plan: BatchPlan, feeds: Sequence[Mapping[str, Array]], before: Sequence[Mapping[str, Array]],
    stored: DType, seed: int,
) -> dict[str, Growth]:  # fmt: skip
    """The most that `DRAWS` other changes make of each output, and roundings of every layer, over all samples."""
    found: dict[str, Growth] = {}
    size = ROUNDINGS * UNITS.get(stored, 1.0) * UNIT
    run = _rounded(reference, plan) if stored in (DType.F16, DType.BF16) else None
    for given, expected in zip(feeds, before, strict=True):
        draws = [
            _grown(reference, given, expected, size, seed + 100 * draw, stirs=True) for draw in range(1, DRAWS + 1)
        ]
        if run is not None:
            made = run(list(expected), given)
            draws.append({name: _off(made[name], expected[name], plan.batch) for name in expected})
        for draw in draws:
            found = {name: each.most(found.get(name, Growth())) for name, each in draw.items()}
    return found


def _off(made: Array, expected: Array, batch: int) -> Growth:
    """What roundings of every layer made of an output."""
    made, expected = without_masked(made, expected)
    off = difference(made, expected)
    rows = batch if expected.ndim and len(expected) == batch else 1
    cosines = least_cosine(made.reshape(rows, -1), expected.reshape(rows, -1))
    return Growth(tried=off.rms, tried_element=off.element, turned=1.0 - cosines)


def _rounded(reference: Reference, plan: BatchPlan) -> Run | None:
    """What runs the model with every layer rounded as the plan stores it; None where that is not known of a model."""
    try:
        model, run = reference.rounded(plan)
    except BoltError:
        return None
    return lambda names, feeds: run(names, model.feeds(feeds, frozenset()))


def _changed(array: Array, size: float, seed: int) -> Array:
    """`array` with noise of `size` of its root mean square; what is not floating point stays."""
    if array.dtype.kind != "f":
        return array
    noise = np.random.RandomState(seed).standard_normal(array.shape)
    return np.asarray(array + noise * (size * max(float(np.sqrt(np.mean(np.square(array)))), 1e-30)), array.dtype)
