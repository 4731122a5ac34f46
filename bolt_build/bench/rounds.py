"""What one contestant measures when its turn has come."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from bolt_build.bench.contestant import LEAST_RUNS, Contestant, Effort
from bolt_build.bench.device import Device, DeviceState

WARM_UP_RUNS = 10
_LEAST_WARM_UP_RUNS = 2
_PIECE_MS = 50.0
"""Runs back to back are queued in pieces of about so long, so that the queue stays short."""


@dataclass(frozen=True)
class Sustained:
    """Runs back to back: how many, in how many seconds, and the energy that the device used meanwhile."""

    runs: int
    seconds: float
    joules: float | None


@dataclass(frozen=True)
class Round:
    """One turn: milliseconds of each timed run, and the device's state before the first."""

    times_ms: tuple[float, ...]
    state: DeviceState
    sustained: Sustained | None


def warm_up(contestant: Contestant, device: Device, effort: Effort) -> None:
    """Some runs that do not count: fewer where they take long."""
    _timed(contestant, device, WARM_UP_RUNS, _LEAST_WARM_UP_RUNS, effort.seconds / 2)


def measure_round(contestant: Contestant, device: Device, effort: Effort) -> Round:
    """Warms up, times run by run, and then, on a device that queues work, runs back to back."""
    warm_up(contestant, device, effort)
    state = device.state()
    times = _timed(contestant, device, effort.runs, min(LEAST_RUNS, effort.runs), effort.seconds)
    sustained = None
    if device.queues:
        sustained = _sustained(contestant, device, effort.seconds, statistics.median(times))
    return Round(tuple(times), state, sustained)


def _timed(contestant: Contestant, device: Device, most: int, least: int, seconds: float) -> list[float]:
    times: list[float] = []
    device.wait()
    end = time.monotonic() + seconds
    while len(times) < least or (len(times) < most and time.monotonic() < end):
        times.append(device.milliseconds(contestant.run, contestant.stream))
    return times


def _sustained(contestant: Contestant, device: Device, seconds: float, median_ms: float) -> Sustained:
    piece = max(1, round(_PIECE_MS / max(median_ms, 1e-3)))
    device.wait()
    before, begun, runs = device.joules(), time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        for _ in range(piece):
            contestant.run()
        device.wait()
        runs += piece
    took, after = time.monotonic() - begun, device.joules()
    return Sustained(runs, took, after - before if before is not None and after is not None else None)
