"""What a results file says of whole engines: a line a swap that was tried, and one for what came of each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bolt_build.tuning.exchange import result_fields as fields
from bolt_build.tuning.exchange.result_fields import DamagedError
from bolt_build.tuning.records.engine_record import Gain
from bolt_build.tuning.records.kernel_record import Statistics, Status


@dataclass(frozen=True)
class SwapRow:
    """A candidate that was tried in the place of another in a whole engine (the digest of its table); `first` and
    `second` are the engine's times without and with it."""

    engine: str
    problem: str
    candidate: str
    device: int
    status: Status
    message: str
    first: Statistics | None
    second: Statistics | None
    gain: Gain | None
    kept: bool


@dataclass(frozen=True)
class PlanRow:
    """Another plan (the digest of its table) that was tried in place of an engine's own."""

    engine: str
    plan: str
    device: int
    status: Status
    message: str
    first: Statistics | None
    second: Statistics | None
    gain: Gain | None
    kept: bool


@dataclass(frozen=True)
class EngineRow:
    """What came of one engine: `plan` is what it ended with, `base` and `chosen` are candidates' digests by those of
    the problems of all of its plans, `first` and `second` its times as it began and as it ended; `tried` counts swaps,
    `plans` other plans."""

    engine: str
    batch: int
    plan: str
    device: int
    status: Status
    message: str
    first: Statistics | None
    second: Statistics | None
    gain: Gain | None
    threshold: float
    tried: int
    plans: int
    complete: bool
    base: tuple[tuple[str, str], ...]
    chosen: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Unplayed:
    """An engine that was not played; `message` says why."""

    engine: str
    batch: int
    message: str


def comparison_data(row: SwapRow | PlanRow | EngineRow) -> dict[str, Any]:
    gain = Gain(0.0, 0.0, 0.0, 0) if row.gain is None else row.gain
    return {
        "status": row.status.value, "first": None if row.first is None else vars(row.first),
        "second": None if row.second is None else vars(row.second), "gain": gain.median, "low": gain.low,
        "high": gain.high, "pairs": gain.pairs,
    }  # fmt: skip


_Times = tuple[Statistics, Statistics, Gain] | tuple[None, None, None]


def _compared(data: Mapping[str, Any], status: Status) -> _Times:
    """The times and the gain of a comparison."""
    there = [data.get(name) is not None for name in ("first", "second")]
    if any(found != (status is Status.OK) for found in there):
        raise DamagedError("a comparison has times where, and only where, its status is ok")
    if status is not Status.OK:
        return None, None, None
    gain = Gain(
        fields.part(data, "gain"), fields.part(data, "low"), fields.part(data, "high"), fields.whole(data, "pairs")
    )
    if not gain.low <= gain.median <= gain.high:
        raise DamagedError('"gain" does not lie between "low" and "high"')
    return fields.statistics(fields.get(data, "first", dict)), fields.statistics(fields.get(data, "second", dict)), gain


def swap_row(data: Mapping[str, Any], devices: int) -> SwapRow:
    status = fields.status_of(data)
    first, second, gain = _compared(data, status)
    kept = fields.flag(data, "kept")
    if kept and status is not Status.OK:
        raise DamagedError("a swap that failed cannot have been kept")
    engine, problem, candidate = (fields.text(data, name) for name in ("engine", "problem", "candidate"))
    device, message = fields.device_of(data, devices), fields.text(data, "message")
    return SwapRow(engine, problem, candidate, device, status, message, first, second, gain, kept)


def plan_row(data: Mapping[str, Any], devices: int) -> PlanRow:
    status = fields.status_of(data)
    first, second, gain = _compared(data, status)
    kept = fields.flag(data, "kept")
    if kept and status is not Status.OK:
        raise DamagedError("a plan that failed cannot have been kept")
    device, message = fields.device_of(data, devices), fields.text(data, "message")
    names = fields.text(data, "engine"), fields.text(data, "plan")
    return PlanRow(*names, device, status, message, first, second, gain, kept)


def engine_row(data: Mapping[str, Any], devices: int) -> EngineRow:
    status = fields.status_of(data)
    first, second, gain = _compared(data, status)
    base, chosen = _kernels(data, "base"), _kernels(data, "chosen")
    if [problem for problem, _ in base] != [problem for problem, _ in chosen]:
        raise DamagedError('"base" and "chosen" are not of the same problems')
    engine, plan = fields.text(data, "engine"), fields.text(data, "plan")
    if (base, engine) != (chosen, plan) and (gain is None or gain.low <= 0):
        raise DamagedError("another engine was chosen without a gain")
    threshold, counts = fields.number(data, "threshold"), (fields.whole(data, "tried"), fields.whole(data, "plans"))
    return EngineRow(
        engine, fields.whole(data, "batch"), plan, fields.device_of(data, devices), status,
        fields.text(data, "message"), first, second, gain, threshold, *counts, fields.flag(data, "complete"), base,
        chosen,
    )  # fmt: skip


def _kernels(data: Mapping[str, Any], key: str) -> tuple[tuple[str, str], ...]:
    found = fields.get(data, key, dict)
    return tuple(sorted((fields.whole_text(problem, key), fields.text(found, problem)) for problem in found))
