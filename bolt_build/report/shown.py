"""What a terminal shows of a build while it goes on, as data and as words."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.build.staleness.estimate import about, minutes


@dataclass(frozen=True)
class Running:
    """A task or a stage that began at `since`, and is `expected` to take so many seconds, as it took last."""

    label: str
    since: float
    expected: float | None = None


@dataclass(frozen=True)
class Whole:
    """All tasks: how many are done, since when, and how many seconds they are expected to take."""

    done: int
    total: int
    since: float
    expected: float | None = None


@dataclass(frozen=True)
class Shown:
    """What runs, and, while tasks do, how far all of them are."""

    running: tuple[Running, ...]
    whole: Whole | None = None


def how_long(now: float, since: float, expected: float | None) -> str:
    """Elapsed time and estimate: "0:12", "0:12 of about 0:40"; one that takes longer says so."""
    elapsed = now - since
    if expected is None or expected < 1:
        return minutes(elapsed)
    longer = elapsed > 1.1 * expected + 1
    return f"{minutes(elapsed)}, {minutes(expected)} last" if longer else f"{minutes(elapsed)} of {about(expected)}"
