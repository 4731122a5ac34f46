"""How long tasks will take, by how long they took when they ran last in their directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bolt_build.build.last_runs import LastRuns
from bolt_build.build.staleness.staleness import Forecast

WORTH_SAYING = 10.0
"""Seconds from which on a person wants to know."""


@dataclass(frozen=True)
class Outlook:
    """What is about to run: so many `tasks` of `recipes`. `known` are seconds of tasks, by (recipe, target, name), as
    they took last; `seconds` those of the wall for all, None where a task never ran here."""

    recipes: tuple[str, ...]
    tasks: int
    seconds: float | None = None
    known: Mapping[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def worth_saying(self) -> bool:
        return self.seconds is not None and self.seconds >= WORTH_SAYING

    @property
    def text(self) -> str:
        """What is said before the first task."""
        tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        return f"{tasks}, {about(self.seconds or 0.0)} by what they took last"


def outlook(recipes: tuple[str, ...], found: Iterable[tuple[str, Forecast, LastRuns]], jobs: int) -> Outlook:
    """What is about to run on `jobs` CPUs of targets: recipe's name, forecast, and how tasks ran last.

    All takes no less than the longest task, and no less than all of them shared out evenly. Tasks from the cache, and
    those that take what another target's has made, count nothing.
    """
    tasks, known, unknown = 0, {}, False
    for recipe, forecast, runs in found:
        for stale in forecast.stale:
            tasks += 1
            if stale.from_cache or stale.as_for:
                continue
            last = runs.of(stale.task.name)
            if last is None or last.cached:
                unknown = True
            else:
                known[recipe, forecast.target, stale.task.name] = last.seconds
    seconds = max(max(known.values()), sum(known.values()) / jobs) if known else 0.0
    return Outlook(recipes, tasks, None if unknown else seconds, known)


def about(seconds: float) -> str:
    """A time that is expected, in minutes."""
    return f"about {minutes(seconds)}"


def minutes(seconds: float) -> str:
    """Minutes and seconds, 1:05 say."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
