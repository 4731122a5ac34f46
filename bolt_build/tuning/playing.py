"""The second stage of a tuning: which engines to play, with which candidates, and what of it is known already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from bolt_build.errors import Diagnostic
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.sizes import Sizes
from bolt_build.tuning.choice.engines import EngineEvidence, base_of, record_of
from bolt_build.tuning.choice.winners import Evidence
from bolt_build.tuning.compile.kernels import without
from bolt_build.tuning.exchange.bundle import Bundle
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.trials.engine_table import EngineLineup
from bolt_build.tuning.trials.tuning_set import ProblemTrials


@dataclass(frozen=True)
class Played:
    """What became of the second stage: `engines` were measured now, `diagnostics` say what was not and why. `compile`
    and `seconds` are what its compilation and what the playing took."""

    engines: int = 0
    diagnostics: tuple[Diagnostic, ...] = ()
    compile: float = 0.0
    seconds: float = 0.0
    interrupted: bool = False


@dataclass(frozen=True)
class Open:
    """Engines that are to be played, and notes about those that cannot be."""

    lineups: tuple[EngineLineup, ...]
    notes: tuple[Diagnostic, ...]


def open_engines(
    lineups: Sequence[EngineLineup],
    found: Iterable[Evidence],
    measured: Sequence[EngineMeasurement],
    here: Collection[Fingerprint],
    *,
    again: bool,
) -> Open:
    """The engines that their problems' winners make and that nobody played to the end (`again`: all of them) on what is
    `here`, each with those of its plans that can be. One that failed, or for which the time was over, is played again.
    """
    by_problem = {each.problem: each for each in found}
    waiting, notes = [], []
    for lineup in lineups:
        base = base_of(lineup, by_problem)
        if isinstance(base, str):
            notes.append(not_played(lineup.sizes, base))
            continue
        kept, fingerprint = base
        if fingerprint not in here:
            notes.append(not_played(lineup.sizes, "its problems were measured on another GPU, driver or toolchain"))
        elif again or not _is_known(record_of(kept, fingerprint, by_problem, measured)):
            waiting.append(kept)
    return Open(tuple(waiting), tuple(notes))


def _is_known(record: EngineRecord | None) -> bool:
    return record is not None and record.status is Status.OK and record.complete


def not_played(sizes: Sizes, why: str) -> Diagnostic:
    return Diagnostic("engine-not-played", f"the whole engine of {sizes} is not measured: {why}", severity="note")


def not_compiled(lineups: Iterable[EngineLineup]) -> tuple[Diagnostic, ...]:
    """Warnings about engines of which a kernel that was measured before does not compile now."""
    found = (not_played(lineup.sizes, "what measures it does not compile") for lineup in lineups)
    return tuple(replace(each, severity="warning") for each in found)


def problems_to_play(
    lineups: Sequence[EngineLineup],
    problems: Sequence[ProblemTrials],
    measurements: Iterable[Measurement],
    tools: TuningTools,
) -> tuple[ProblemTrials, ...]:
    """The problems of the plans with all of their trials but those that are known not to compile: what calls them is
    compiled then as it was when they were measured."""
    wanted = {problem for lineup in lineups for problem in lineup.problems}
    gone = (
        record for fingerprint, record in measurements
        if record.status is Status.NOT_COMPILED and fingerprint.tools == tools
    )  # fmt: skip
    return without((each for each in problems if each.problem.digest in wanted), gone)


def holds(bundle: Bundle, problems: Sequence[ProblemTrials]) -> bool:
    """True where a bundle has all of the problems, each with at least these trials."""
    there = {(each.problem.digest, trial.candidate) for each in bundle.problems for trial in each.trials}
    return all((each.problem.digest, trial.candidate) in there for each in problems for trial in each.trials)


def medians_of(found: Iterable[Evidence], measurements: Iterable[Measurement]) -> dict[tuple[str, Candidate], float]:
    """Microseconds of each candidate, measured with the same as its problem's winner."""
    fingerprints = {each.problem: each.fingerprint for each in found}
    return {
        (record.problem, record.candidate): record.statistics.median
        for fingerprint, record in measurements
        if record.statistics is not None and fingerprints.get(record.problem) == fingerprint
    }


def playable(lineups: Iterable[EngineLineup], bundle: Bundle) -> tuple[EngineLineup, ...]:
    """The engines, each once, with those of their plans of which a bundle holds every problem."""
    there = {each.problem.digest for each in bundle.problems}
    by_table = {lineup.table: lineup for lineup in reversed(tuple(lineups))}
    return tuple(
        lineup.kept([table for table in lineup.tables if there.issuperset(table.problems)])
        for lineup in reversed(by_table.values())
        if there.issuperset(lineup.table.problems)
    )


def without_effect(adopted: Iterable[EngineMeasurement], chosen: Iterable[EngineEvidence]) -> tuple[Diagnostic, ...]:
    """Notes about engines that were played and are not those that the kernels of now give."""
    used = {(each.fingerprint, each.record) for each in chosen}
    hint = "tune again where the GPU is, or export another bundle: it holds the engine as it is chosen now"
    batches = sorted({record.batch for _, record in adopted} - {record.batch for _, record in used})
    return tuple(
        Diagnostic(
            "other-engine", f"the engine of batch {batch} that was played is not the one that the measurements give",
            hint=hint, severity="note",
        )
        for batch in batches
    )  # fmt: skip
