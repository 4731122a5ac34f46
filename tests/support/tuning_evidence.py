"""Records made by hand, on devices made by hand, for tests of what follows from measurements."""

from __future__ import annotations

from collections.abc import Mapping

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Device, Fingerprint, TuningTools
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import TuningSet

H200 = Device("NVIDIA H200", 132, 150754820096, 700, "570.124.06")
A100 = Device("NVIDIA A100-SXM4-80GB", 108, 85899345920, 400, "570.124.06")
TOOLS = TuningTools("13.0.88", "4.2.0.0", "-O3 -DNDEBUG", "f00d" * 16)
ON_A100 = Fingerprint(A100, TOOLS)
ON_H200 = Fingerprint(H200, TOOLS)


def ok(problem: str, candidate: Candidate, median: float) -> Record:
    """A candidate that took so many microseconds."""
    statistics = Statistics(median, median * 0.99, median * 1.05, 0.002, 20, 50)
    return Record(problem, candidate, Status.OK, "", statistics, 0.25)


def failed(problem: str, candidate: Candidate, status: Status, message: str = "") -> Record:
    return Record(problem, candidate, status, message)


def timed(found: TuningSet, medians: Mapping[Candidate, float]) -> tuple[tuple[Fingerprint, Record], ...]:
    """A record on the A100 for each trial whose candidate has a median here, the same in every problem."""
    return tuple(
        (ON_A100, ok(each.problem.digest, trial.candidate, medians[trial.candidate]))
        for each in found.problems
        for trial in each.trials
        if trial.candidate in medians
    )
