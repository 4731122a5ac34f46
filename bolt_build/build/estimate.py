"""How long tasks will take, by how long they took when they ran last in their directories."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.build.last_runs import LastRuns
from bolt_build.build.staleness import Forecast

WORTH_SAYING = 10.0
"""Seconds from which on a person wants to know."""


def estimated_seconds(forecasts: Iterable[tuple[Forecast, LastRuns]], jobs: int) -> float | None:
    """Seconds of the wall on `jobs` CPUs: no less than the longest task, no less than all of them shared out evenly.
    Tasks from the cache count nothing. None where one never ran here."""
    seconds = []
    for forecast, runs in forecasts:
        for stale in forecast.stale:
            if stale.from_cache:
                continue
            last = runs.of(stale.task.name)
            if last is None or last.cached:
                return None
            seconds.append(last.seconds)
    return max(max(seconds), sum(seconds) / jobs) if seconds else 0.0


def estimate_text(tasks: int, seconds: float) -> str:
    """What is said before the first task."""
    return f"{tasks} tasks, about {int(seconds) // 60}:{int(seconds) % 60:02} by what they took last"
