"""What one GPU measures in one go, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bolt_build.tuning.lanes.progress import Progress

INTERRUPTED = 130
"""The exit status of a driver that was interrupted: its results hold what was measured until then."""


@dataclass(frozen=True)
class Work:
    """All candidates of some problems, by their places in `candidates.so`: so those of one are compared on one GPU. Or,
    where there is a text of `engines` (engines.tsv), the whole engine that it has."""

    problems: tuple[int, ...] = ()
    engines: str = ""

    @property
    def size(self) -> int:
        """How many problems, or engines."""
        return len(self.problems) or 1


def works_of(problems: int, lanes: int, most: int) -> list[Work]:
    """So many problems in works of at most `most`, and of fewer where there are few: each lane has several, so that all
    end at about the same time."""
    each = max(1, min(most, problems // (4 * max(1, lanes))))
    return [Work(tuple(range(at, min(at + each, problems)))) for at in range(0, problems, each)]


@dataclass(frozen=True)
class Answer:
    """What came of a work: the driver's exit status, the text of its results, which may lack its end, and its last
    line. `seconds` is what it measured for.

    `lost` says why the GPU measures nothing more. Nothing of the work counts then: what failed may be no fault of its
    candidates. `part`: it is what is finished, while the rest is still measured.
    """

    status: int = 0
    results: str = ""
    last_words: str = ""
    seconds: float = 0.0
    lost: str = ""
    part: bool = False


class Say(Protocol):
    def __call__(self, progress: Progress, worker: str = "") -> None: ...


Keep = Callable[[Answer], None]


class Lane(Protocol):
    """What measures one work at a time."""

    def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
        """Measure for at most `budget` seconds; `say` gets what is said meanwhile, with the `worker` of a fleet that
        says it ("": this machine), and `keep` what is finished before the rest is. Raises BoltError where nothing can
        be measured at all."""

    def stop(self) -> None:
        """End what this lane measures now, and all others of its lab: from another thread."""
