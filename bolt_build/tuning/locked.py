"""What a lock holds, as data: for each target the fastest kernel of every problem with its evidence, and covers."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import Candidate
from bolt_build.planner.selection import ChosenCover, Selection, Winner
from bolt_build.tuning.record import Fingerprint

LOCK_VERSION = 1


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
class LockedTarget:
    """What a lock holds for one target: fingerprints by their names, entries by problem digest, covers by batch."""

    target: str
    fingerprints: tuple[tuple[str, Fingerprint], ...]
    entries: tuple[LockEntry, ...]
    covers: tuple[ChosenCover, ...]

    def selection(self, source: str) -> Selection:
        """What the planner takes of it; `source` is how the lock is called."""
        winners = (Winner(entry.problem, entry.winner, entry.median * 1e-6) for entry in self.entries)
        return Selection(source, tuple(sorted(winners, key=lambda winner: winner.problem)), self.covers)

    def fingerprint(self, entry: LockEntry) -> Fingerprint:
        """What an entry was measured with."""
        return dict(self.fingerprints)[entry.fingerprint]


@dataclass(frozen=True)
class Lock:
    """A whole lock, by target name in its order."""

    targets: tuple[LockedTarget, ...]

    def target(self, name: str) -> LockedTarget | None:
        """What it holds for a target, None where that is nothing."""
        return next((each for each in self.targets if each.target == name), None)
