"""From records to winners: a pure function, so that equal records give equal choices without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bolt_build.digest import canonical_json
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.selection import Selection, Winner
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials, TuningSet

NEAR = 1.01
"""Medians up to so many times the best count as equal to it: two measurements of one kernel differ by as much."""


@dataclass(frozen=True)
class Evidence:
    """What a winner rests on: the fastest other candidate (None where no other has a time), how many have one, how
    many were tried, and on which device with which toolchain."""

    problem: str
    fingerprint: Fingerprint
    winner: Record
    runner_up: Record | None
    measured: int
    tried: int

    @property
    def median(self) -> float:
        """Microseconds of the winner."""
        return _median(self.winner)


def evidence(tuning_set: TuningSet, records: Iterable[tuple[Fingerprint, Record]]) -> tuple[Evidence, ...]:
    """For each problem of the set that has an OK record its winner, in the order of the set.

    The fastest wins. Among those within 1 % of it, the one with the fewest changed settings does, then the one with the
    least digest, so that noise does not change the choice back and forth. Only trials of the set count. Times of
    different fingerprints do not compare: those of the one with most trials count, of equal ones the one with the least
    digest.
    """
    by_problem: dict[str, list[tuple[Fingerprint, Record]]] = {}
    for fingerprint, record in records:
        by_problem.setdefault(record.problem, []).append((fingerprint, record))
    found = (_evidence(trials, by_problem.get(trials.problem.digest, [])) for trials in tuning_set.problems)
    return tuple(each for each in found if each is not None)


def select(tuning_set: TuningSet, records: Iterable[tuple[Fingerprint, Record]], source: str = "records") -> Selection:
    """The winners of the set's problems. Covers follow from them: `plan_engine` finds them."""
    winners = (
        Winner(each.problem, each.winner.candidate, each.median * 1e-6) for each in evidence(tuning_set, records)
    )
    return Selection(source, tuple(sorted(winners, key=lambda winner: winner.problem)))


def unmeasured(tuning_set: TuningSet, selection: Selection) -> tuple[ProblemTrials, ...]:
    """The problems of the set that have no winner, because none of their trials has a time."""
    known = {winner.problem for winner in selection.winners}
    return tuple(trials for trials in tuning_set.problems if trials.problem.digest not in known)


def _evidence(trials: ProblemTrials, records: Iterable[tuple[Fingerprint, Record]]) -> Evidence | None:
    tried = {trial.candidate: trials.changes(trial) for trial in trials.trials}
    groups: dict[str, tuple[Fingerprint, dict[str, Record]]] = {}
    # A candidate has one record a fingerprint; of several, the order of their texts decides, not that of arrival.
    for fingerprint, record in sorted(records, key=lambda pair: canonical_json(pair[1])):
        if record.candidate in tried:
            group = groups.setdefault(fingerprint.digest, (fingerprint, {}))
            group[1].setdefault(record.candidate.digest, record)
    usable = {digest: group for digest, group in groups.items() if _timed(group[1].values())}
    if not usable:
        return None
    fingerprint, found = usable[min(usable, key=lambda digest: (-len(usable[digest][1]), digest))]
    timed = _timed(found.values())
    near = [record for record in timed if _median(record) <= _median(timed[0]) * NEAR]
    winner = min(near, key=lambda record: (tried[record.candidate], record.candidate.digest))
    others = [record for record in timed if record is not winner]
    return Evidence(
        trials.problem.digest, fingerprint, winner, others[0] if others else None, len(timed), len(found)
    )  # fmt: skip


def _timed(records: Iterable[Record]) -> list[Record]:
    """Those that have a time, fastest first."""
    found = (record for record in records if record.status is Status.OK and record.statistics is not None)
    return sorted(found, key=lambda record: (_median(record), record.candidate.digest))


def _median(record: Record) -> float:
    statistics: Statistics | None = record.statistics
    assert statistics is not None, "only records with a time are asked for it"
    return statistics.median
