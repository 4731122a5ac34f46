"""From records of whole engines to what each runs with: a pure function, as `select` is for problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.selection import ChosenCover, EngineChoice, Winner
from bolt_build.tuning.choice.winners import Evidence
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.engine_table import EngineLineup, EngineTable


@dataclass(frozen=True)
class EngineEvidence:
    """What the choice for one engine rests on. `table` and `cover` are the plan that was chosen; `swaps` are the
    kernels that take the places of their problems' winners in it, with what each was measured to take alone
    (microseconds)."""

    lineup: EngineLineup
    table: EngineTable
    cover: ChosenCover
    fingerprint: Fingerprint
    record: EngineRecord
    swaps: tuple[tuple[str, Candidate, float], ...]

    @property
    def other_plan(self) -> bool:
        """True where the plan is not the one whose kernels take least alone."""
        return self.table != self.lineup.table

    @property
    def changed(self) -> bool:
        return self.other_plan or bool(self.swaps)

    @property
    def before(self) -> Statistics:
        """Of the first plan with the winners."""
        assert self.record.before is not None, "only records with times are evidence"
        return self.record.before

    @property
    def after(self) -> Statistics:
        """Of what was chosen, or as before where nothing else was."""
        assert self.record.after is not None, "only records with times are evidence"
        return self.record.after if self.changed else self.before

    @property
    def gain(self) -> float:
        """The part of the time that it saves, 0 where nothing else was chosen."""
        assert self.record.gain is not None, "only records with times are evidence"
        return self.record.gain.median if self.changed else 0.0

    @property
    def choice(self) -> EngineChoice:
        """As the planner takes it."""
        swaps = (Winner(problem, candidate, median * 1e-6) for problem, candidate, median in self.swaps)
        times = (self.before.median * 1e-6, self.after.median * 1e-6)
        return EngineChoice(self.table.graph, self.table.batch, tuple(swaps), *times, self.table.dims, self.other_plan)


def base_of(lineup: EngineLineup, found: Mapping[str, Evidence]) -> tuple[EngineLineup, Fingerprint] | str:
    """The plans whose problems all have a winner that was measured with the same as the first plan's, and that; or why
    there is no such engine to measure. `found` is the evidence by problem."""
    problems = lineup.table.problems
    missing = [problem for problem in problems if problem not in found]
    if missing:
        return f"{len(missing)} of its {len(problems)} problems have no measured kernel"
    fingerprints = {found[problem].fingerprint for problem in problems}
    if len(fingerprints) > 1:
        return "its problems were measured on several GPUs, drivers or toolchains"
    (fingerprint,) = fingerprints
    known = {problem for problem, each in found.items() if each.fingerprint == fingerprint}
    return lineup.kept([table for table in lineup.tables if known.issuperset(table.problems)]), fingerprint


def record_of(
    lineup: EngineLineup, fingerprint: Fingerprint, found: Mapping[str, Evidence], measured: Iterable[EngineMeasurement]
) -> EngineRecord | None:
    """The record of an engine that began with these plans' winners, measured with the same as they were.

    Its plan is one of the lineup's, and every kernel that it began with is its problem's winner now. Of several, one
    that did not fail, for which most plans were tried, and that had the time for all.
    """

    def holds(record: EngineRecord) -> bool:
        base, plan = dict(record.base), lineup.plan(record.plan)
        return (
            record.table == lineup.table.digest
            and plan is not None
            and set(base).issuperset({*lineup.table.problems, *plan[0].problems})
            and all(
                problem in found
                and (found[problem].fingerprint, found[problem].winner.candidate) == (fingerprint, candidate)
                for problem, candidate in record.base
            )
        )

    fitting = [record for known, record in measured if known == fingerprint and holds(record)]
    return min(
        fitting,
        key=lambda record: (record.status is not Status.OK, -len(record.plans), not record.complete, record.key),
        default=None,
    )


def engine_evidence(
    lineups: Sequence[EngineLineup],
    found: Iterable[Evidence],
    records: Iterable[tuple[Fingerprint, Record]],
    measured: Iterable[EngineMeasurement],
) -> tuple[EngineEvidence, ...]:
    """What holds for each engine that was measured as its problems' winners make it, in the order of the lineups.

    A record that began with other kernels says nothing of this engine; one that failed says nothing at all.
    """
    by_problem, measured = {each.problem: each for each in found}, tuple(measured)
    medians = {
        (fingerprint.digest, record.problem, record.candidate): record.statistics.median
        for fingerprint, record in records
        if record.statistics is not None
    }
    chosen = []
    for lineup in lineups:
        base = base_of(lineup, by_problem)
        if isinstance(base, str):
            continue
        kept, fingerprint = base
        record = record_of(kept, fingerprint, by_problem, measured)
        if record is None or record.status is not Status.OK or record.before is None or record.after is None:
            continue
        plan = kept.plan(record.plan)
        alone = [medians.get((fingerprint.digest, *swap)) for swap in record.swaps]
        swaps = tuple((*swap, time) for swap, time in zip(record.swaps, alone, strict=True) if time is not None)
        if plan is not None and record.gain is not None and len(swaps) == len(record.swaps):
            chosen.append(EngineEvidence(lineup, *plan, fingerprint, record, swaps))
    return tuple(chosen)
