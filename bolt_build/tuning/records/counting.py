"""Which records say what about a tuning set: what need not be measured again, and which of several times counts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.targets import Target
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials

LEADERS = 2
NEAR = 1.10
"""The driver measures variants of the best `LEADERS` trials, and of those that take up to `NEAR` times the best."""

Measurement = tuple[Fingerprint, Record]


def unmeasured(
    problems: Sequence[ProblemTrials], measurements: Iterable[Measurement], here: Collection[Fingerprint]
) -> tuple[ProblemTrials, ...]:
    """The problems that the devices and tools `here` have not measured to the end: trials of the first stage without a
    record, or variants of leaders without one."""
    found: dict[tuple[str, str], list[Record]] = {}
    for fingerprint, record in measurements:
        found.setdefault((fingerprint.digest, record.problem), []).append(record)
    digests = {fingerprint.digest for fingerprint in here}
    return tuple(
        problem
        for problem in problems
        if not any(_is_measured(problem, found.get((digest, problem.problem.digest), [])) for digest in digests)
    )


def _is_measured(problem: ProblemTrials, records: Sequence[Record]) -> bool:
    known = {record.candidate: record for record in records}
    first = [(index, known.get(trial.candidate)) for index, trial in enumerate(problem.trials) if trial.of is None]
    if any(record is None for _, record in first):
        return False
    timed = sorted((_median(record), index) for index, record in first if record is not None and _is_timed(record))
    leaders = {
        index for place, (time, index) in enumerate(timed) if place < LEADERS or time <= NEAR * timed[0][0]
    }  # fmt: skip
    return all(trial.candidate in known for trial in problem.trials if trial.of in leaders)


def comparable(
    measurements: Iterable[Measurement], target: Target, tools: TuningTools | None, *, foreign: bool
) -> tuple[Measurement, ...]:
    """The measurements that may decide: those on the target's GPU (or on any, where `foreign`), and of each problem
    only those made with `tools` where there are any, then only those with the newest driver.

    So a new toolchain or driver is not held to older times, and machines without the tools choose as the others do.
    """
    by_problem: dict[str, list[Measurement]] = {}
    for fingerprint, record in measurements:
        if foreign or target.is_device(fingerprint.device.name):
            by_problem.setdefault(record.problem, []).append((fingerprint, record))
    return tuple(pair for found in by_problem.values() for pair in _newest(found, tools))


def _newest(found: Sequence[Measurement], tools: TuningTools | None) -> list[Measurement]:
    timed = [pair for pair in found if _is_timed(pair[1])]
    with_tools = [pair for pair in timed if pair[0].tools == tools]
    if with_tools:
        found = [pair for pair in found if pair[0].tools == tools]
        timed = with_tools
    if not timed:
        return list(found)
    newest = max(_numbers(fingerprint.device.driver) for fingerprint, _ in timed)
    return [pair for pair in found if _numbers(pair[0].device.driver) == newest]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _is_timed(record: Record) -> bool:
    return record.status is Status.OK and record.statistics is not None


def _median(record: Record) -> float:
    assert record.statistics is not None, "only records with a time are asked for it"
    return record.statistics.median
