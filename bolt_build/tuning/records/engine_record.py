"""A measurement of a whole engine as it is kept: which kernels it began with, what was tried, what it ended with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bolt_build.digest import UNSAID, digest
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.tuning.records.kernel_record import Statistics, Status

EngineMeasurement = tuple[Fingerprint, "EngineRecord"]
Kernels = tuple[tuple[str, Candidate], ...]
"""Of each problem (its digest, in the order of which they stand) the candidate that solves it."""


@dataclass(frozen=True)
class Gain:
    """The part of the first engine's time that the second saves: the median of `pairs` of replays in turns, between
    their quartiles."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class TriedSwap:
    """One candidate in the place of another, in all of a problem's steps. `first` and `second` are microseconds of the
    engine with what it had and with this; they and `gain` are None where the status is not OK."""

    problem: str
    candidate: Candidate
    status: Status
    message: str
    first: float | None
    second: float | None
    gain: Gain | None
    kept: bool


@dataclass(frozen=True)
class TriedPlan:
    """Another plan (the digest of its table) that was tried; the rest as of a `TriedSwap`."""

    plan: str
    status: Status
    message: str
    first: float | None
    second: float | None
    gain: Gain | None
    kept: bool


@dataclass(frozen=True)
class EngineRecord:
    """`table` is the digest of the engine's first plan's table, `plan` that of the plan that it ended with. `base` are
    the kernels that it began with, for the problems of all plans that were tried, `chosen` those that it ended with.
    Both are as they were where nothing was kept, or where all together gained nothing.

    `before` and `after` are microseconds of one replay with each of the two, of one engine against itself where they
    are the same. `threshold` is the part of the time that a swap had to save. `complete`: nothing that was to be tried
    was left out for lack of time. `gpu` is as of a kernel's record.
    """

    table: str
    batch: int
    base: Kernels
    chosen: Kernels
    status: Status
    message: str
    before: Statistics | None
    after: Statistics | None
    gain: Gain | None
    threshold: float
    tried: tuple[TriedSwap, ...]
    complete: bool
    plan: str
    plans: tuple[TriedPlan, ...] = ()
    gpu: str = field(default="", metadata=UNSAID)

    @property
    def key(self) -> str:
        """With the table and the fingerprint: what a record is kept by."""
        return base_key(self.base)

    @cached_property
    def swaps(self) -> Kernels:
        """What of `chosen` is not as in `base`."""
        before = dict(self.base)
        return tuple((problem, candidate) for problem, candidate in self.chosen if before[problem] != candidate)


def base_key(base: Kernels) -> str:
    """Digest of kernels that an engine begins with."""
    return digest([[problem, candidate.digest] for problem, candidate in base])
