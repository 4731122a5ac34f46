"""What a lock holds, as data: for each target the fastest kernel of every problem with its evidence, covers, and what
whole engines are faster with."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.selection import ChosenCover, EngineChoice, Selection, Winner
from bolt_build.sizes import Dims

LOCK_VERSION = 3
"""Candidates state all their settings."""
WITH_ENGINES, WITHOUT_ENGINES = 2, 1
"""Before, candidates without settings had those that were predicted. Locks without whole engines said 1."""


@dataclass(frozen=True)
class LockEntry:
    """The winner of a problem (its digest; `what` is it in one line) and what that rests on: see `Evidence`.

    Times are microseconds, `predicted` that of the winner. `fingerprint` names one of the target's.
    """

    problem: str
    what: str
    winner: Candidate
    median: float
    runner_up: Candidate | None
    runner_up_median: float | None
    predicted: float
    measured: int
    fingerprint: str


@dataclass(frozen=True)
class LockedEngine:
    """What the whole engine of one graph and batch was measured to take: `before` microseconds with the winners,
    `after` with the swaps in place of those of their problems (the same where there are none), of `tried`. `gain` is
    the part of the time that they save, the median of pairs.

    A swap is a problem's digest, the kernel, and the microseconds that it takes alone. `table` is the digest of the
    engine's steps, `fingerprint` names one of the target's. Of `plans` others one may have been chosen: `in_place_of`
    is then the digest of the one whose kernels take least alone, which `before` is of.
    """

    batch: int
    graph: str
    table: str
    before: float
    after: float
    gain: float
    tried: int
    swaps: tuple[tuple[str, Candidate, float], ...]
    fingerprint: str
    plans: int = 0
    in_place_of: str | None = None
    dims: Dims = ()

    @property
    def choice(self) -> EngineChoice:
        """As the planner takes it."""
        swaps = (Winner(problem, candidate, median * 1e-6) for problem, candidate, median in self.swaps)
        times = self.before * 1e-6, self.after * 1e-6
        return EngineChoice(self.graph, self.batch, tuple(swaps), *times, self.dims, self.in_place_of is not None)


@dataclass(frozen=True)
class LockedTarget:
    """What a lock holds for one target: fingerprints by their names, entries by problem digest, covers and engines by
    batch. `stated`: candidates state all their settings, as locks from format 3 on have it."""

    target: str
    fingerprints: tuple[tuple[str, Fingerprint], ...]
    entries: tuple[LockEntry, ...]
    covers: tuple[ChosenCover, ...]
    engines: tuple[LockedEngine, ...] = ()
    stated: bool = True

    def selection(self, source: str) -> Selection:
        """What the planner takes of it; `source` is how the lock is called."""
        winners = (Winner(entry.problem, entry.winner, entry.median * 1e-6) for entry in self.entries)
        ordered = tuple(sorted(winners, key=lambda winner: winner.problem))
        return Selection(source, ordered, self.covers, tuple(engine.choice for engine in self.engines), self.stated)

    def fingerprint(self, entry: LockEntry) -> Fingerprint:
        """What an entry was measured with."""
        return dict(self.fingerprints)[entry.fingerprint]


@dataclass(frozen=True)
class Lock:
    """A whole lock, by target name in its order."""

    targets: tuple[LockedTarget, ...]

    @property
    def version(self) -> int:
        """What all of it can be read as."""
        if all(target.stated for target in self.targets):
            return LOCK_VERSION
        return WITH_ENGINES if any(target.engines for target in self.targets) else WITHOUT_ENGINES

    def target(self, name: str) -> LockedTarget | None:
        """What it holds for a target, None where that is nothing."""
        return next((each for each in self.targets if each.target == name), None)
