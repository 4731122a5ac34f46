"""What tuning puts into a lock for one target: a pure function of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bolt_build.lockfile.contents import LockedEngine, LockedTarget, LockEntry
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import ChosenCover
from bolt_build.sizes import sizes_of
from bolt_build.tuning.choice.engines import EngineEvidence
from bolt_build.tuning.choice.winners import Evidence, evidence
from bolt_build.tuning.records.kernel_record import Record
from bolt_build.tuning.trials.tuning_set import TuningSet

_ID_LETTERS = 12


def lock_from(
    tuning_set: TuningSet,
    records: Iterable[tuple[Fingerprint, Record]],
    covers: Sequence[ChosenCover],
    engines: Sequence[EngineEvidence] = (),
) -> LockedTarget:
    """The part of the set's target: a pure function. `covers` are those that `plan_engine` found with
    `select(tuning_set, records)`, `engines` what holds for the engines with them, whose covers take their places. Times
    are rounded to the nanosecond, as they are written."""
    predicted = {
        (each.problem.digest, trial.candidate): trial.predicted
        for each in tuning_set.problems
        for trial in each.trials
    }  # fmt: skip
    what = {each.problem.digest: describe_problem(each.problem) for each in tuning_set.problems}
    found = sorted(evidence(tuning_set, records), key=lambda each: each.problem)
    entries = tuple(_entry(each, what[each.problem], predicted[each.problem, each.winner.candidate]) for each in found)
    fingerprints = {_fingerprint_id(each.fingerprint): each.fingerprint for each in found}
    played = {(each.cover.batch, each.cover.graph): each.cover for each in engines}
    taken = (played.get((cover.batch, cover.graph), cover) for cover in covers)
    ordered = tuple(sorted(taken, key=lambda cover: (sizes_of(cover), cover.graph)))
    return LockedTarget(
        tuning_set.target, tuple(sorted(fingerprints.items())), entries, ordered,
        tuple(sorted(map(_engine, engines), key=lambda each: (sizes_of(each), each.graph))),
    )  # fmt: skip


def _engine(found: EngineEvidence) -> LockedEngine:
    swaps = tuple((problem, candidate, round(median, 3)) for problem, candidate, median in found.swaps)
    return LockedEngine(
        found.table.batch, found.table.graph, found.table.digest, round(found.before.median, 3),
        round(found.after.median, 3), round(found.gain, 5), len(found.record.tried), swaps,
        _fingerprint_id(found.fingerprint), len(found.record.plans),
        found.lineup.table.digest if found.other_plan else None, found.table.dims,
    )  # fmt: skip


def _entry(found: Evidence, what: str, predicted: float) -> LockEntry:
    other = found.runner_up
    return LockEntry(
        found.problem, what, found.winner.candidate, round(found.median, 3),
        other.candidate if other is not None else None,
        round(other.statistics.median, 3) if other is not None and other.statistics is not None else None,
        round(predicted * 1e6, 3), found.measured, _fingerprint_id(found.fingerprint),
    )  # fmt: skip


def _fingerprint_id(fingerprint: Fingerprint) -> str:
    return fingerprint.digest[:_ID_LETTERS]
