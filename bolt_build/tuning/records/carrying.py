"""Which measurements still hold where headers have changed since: those of kernels that include none that did.

A record names the toolchain of its whole tuning, headers of all families among it. What was measured of one family's
kernels is not touched by an edit of another family's headers: it counts as measured with the headers of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord


def carried(found: Sequence[Measurement], tools: TuningTools) -> tuple[Measurement, ...]:
    """The measurements, and behind them those of kernels that `tools` would compile from the same headers, as made with
    `tools`. Where such a kernel was measured with `tools` itself, that stands alone."""
    there = {(fingerprint, record.problem, record.candidate) for fingerprint, record in found}
    more: dict[tuple[Fingerprint, str, Candidate], Measurement] = {}
    for fingerprint, record in found:
        if _same_kernels(fingerprint.tools, tools, (record.candidate,)):
            now = replace(fingerprint, tools=tools)
            key = (now, record.problem, record.candidate)
            if key not in there:
                more.setdefault(key, (now, record))
    return (*found, *more.values())


def carried_engines(found: Sequence[EngineMeasurement], tools: TuningTools) -> tuple[EngineMeasurement, ...]:
    """The same of whole engines: those of which no kernel, neither chosen nor tried, has other headers now."""
    there = {(fingerprint, record.table, record.key) for fingerprint, record in found}
    more: dict[tuple[Fingerprint, str, str], EngineMeasurement] = {}
    for fingerprint, record in found:
        if _same_kernels(fingerprint.tools, tools, _kernels(record)):
            now = replace(fingerprint, tools=tools)
            key = (now, record.table, record.key)
            if key not in there:
                more.setdefault(key, (now, record))
    return (*found, *more.values())


def _kernels(record: EngineRecord) -> tuple[Candidate, ...]:
    return (
        *(candidate for _, candidate in (*record.base, *record.chosen)), *(swap.candidate for swap in record.tried),
    )  # fmt: skip


def _same_kernels(before: TuningTools, now: TuningTools, candidates: Iterable[Candidate]) -> bool:
    """True where headers are others, but not those of the candidates, and all else is the same."""
    if before == now or (before.cuda, before.cutlass, before.flags) != (now.cuda, now.cutlass, now.flags):
        return False
    old, new = dict(before.families), dict(now.families)
    return all(family in old and old[family] == new.get(family) for family in {each.family for each in candidates})
