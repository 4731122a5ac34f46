"""What a tuning found, problem by problem and phase by phase: what reports are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.events import TaskEvent
from bolt_build.errors import Diagnostic, ExitCode
from bolt_build.families.base import Candidate, Refusal
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.problem_text import describe_problem
from bolt_build.tuning.choice.engines import EngineEvidence
from bolt_build.tuning.choice.winners import Evidence, evidence
from bolt_build.tuning.records.kernel_record import Record
from bolt_build.tuning.trials.tuning_set import ProblemTrials, TuningSet


@dataclass(frozen=True)
class ProblemOutcome:
    """A problem of the tuning set, the records that decide about it, and what they say; `evidence` is None where no
    candidate has a time."""

    trials: ProblemTrials
    records: tuple[Record, ...]
    evidence: Evidence | None

    @property
    def what(self) -> str:
        return describe_problem(self.trials.problem)

    @property
    def statuses(self) -> tuple[tuple[str, int], ...]:
        """How many trials ended how, by the words of `Status`."""
        return tuple(sorted(Counter(record.status.value for record in self.records).items()))

    @property
    def predicted(self) -> float | None:
        """Microseconds that the winner was predicted to take."""
        if self.evidence is None:
            return None
        winner = self.evidence.winner.candidate
        return next(1e6 * trial.predicted for trial in self.trials.trials if trial.candidate == winner)

    @property
    def margin(self) -> float | None:
        """By which part of the winner's time the runner-up is slower; negative for a near-tie that was decided."""
        other = self.evidence.runner_up if self.evidence is not None else None
        if self.evidence is None or other is None or other.statistics is None:
            return None
        return other.statistics.median / self.evidence.median - 1

    def record(self, candidate: Candidate) -> Record | None:
        """What became of a candidate; None where it was not measured."""
        return next((record for record in self.records if record.candidate == candidate), None)


@dataclass(frozen=True)
class CompileOutcome:
    """What a compilation made: `units` kernel units in all, `reused` of them compiled before, and `candidates` ready to
    be measured. `made` and `cached` count tasks of every kind that ran and that came from the cache.

    `refused` are tasks of kernels that did not compile, whose candidates are in `not_compiled`; `broken` what failed
    otherwise.
    """

    units: int
    reused: int
    candidates: int
    made: int
    cached: int
    not_compiled: tuple[Record, ...]
    refused: tuple[TaskEvent, ...]
    broken: tuple[TaskEvent, ...]


@dataclass(frozen=True)
class PhaseSeconds:
    """How long each part of a tuning took, its waiting included."""

    plan: float = 0.0
    compile: float = 0.0
    measure: float = 0.0
    engine: float = 0.0
    select: float = 0.0


@dataclass(frozen=True)
class TuneResult:
    """A finished tuning, whatever came of it. `target` is None where no target of the recipe is tuned; `untuned` are
    those for which there is nothing to tune. `left_out` says which problems were not worth measuring. `engines` are
    what is known of the whole engines that the winners make; `played_now` of those measurements are new. It took
    `seconds`, after it had `waited` so many seconds for another build."""

    recipe: str
    exit_code: ExitCode
    target: str | None = None
    untuned: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    problems: tuple[ProblemOutcome, ...] = ()
    measured_now: int = 0
    engines: tuple[EngineEvidence, ...] = ()
    played_now: int = 0
    compiled: CompileOutcome | None = None
    bundle: Path | None = None
    bundle_id: str | None = None
    lock: Path | None = None
    lock_changed: bool = False
    left_out: tuple[Refusal, ...] = ()
    phases: PhaseSeconds = PhaseSeconds()
    seconds: float = 0.0
    waited: float = 0.0


def outcomes(tuning_set: TuningSet, measurements: Iterable[tuple[Fingerprint, Record]]) -> tuple[ProblemOutcome, ...]:
    """Every problem of the set. The records shown of a problem are those that its choice rests on; where nothing has a
    time, all of them."""
    found = tuple(measurements)
    known = {each.problem: each for each in evidence(tuning_set, found)}
    return tuple(_outcome(problem, found, known.get(problem.problem.digest)) for problem in tuning_set.problems)


def _outcome(
    problem: ProblemTrials, measurements: Sequence[tuple[Fingerprint, Record]], known: Evidence | None
) -> ProblemOutcome:
    tried = {trial.candidate for trial in problem.trials}
    records: dict[Candidate, Record] = {}
    for fingerprint, record in measurements:
        wanted = known is None or fingerprint == known.fingerprint
        if record.problem == problem.problem.digest and record.candidate in tried and wanted:
            records.setdefault(record.candidate, record)
    ordered = (records.get(trial.candidate) for trial in problem.trials)
    return ProblemOutcome(problem, tuple(record for record in ordered if record is not None), known)
