"""Why each task of a target ran last: kept beside its logs, so that `why` can say it when all is up to date."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.events import TaskEvent
from bolt_build.build.files import read_text, write_text
from bolt_build.build.layout import TargetDirectory
from bolt_build.digest import UNSAID, decode, encode

PLANNING = "planning"
"""What planning the target is called among its tasks."""


@dataclass(frozen=True)
class LastRun:
    """When `task` ran last: for which `reasons`, how long, and whether its outputs came from the cache. Those of the
    same task of another target (`as_for`) count as `cached` too."""

    task: str
    reasons: tuple[str, ...]
    seconds: float
    cached: bool
    as_for: str = field(default="", metadata=UNSAID)


@dataclass(frozen=True)
class LastRuns:
    """One for each task that ran since the file was begun."""

    runs: tuple[LastRun, ...] = ()

    def of(self, task: str) -> LastRun | None:
        return next((run for run in self.runs if run.task == task), None)


def load_last_runs(directory: TargetDirectory) -> LastRuns:
    """What is known; nothing where the file is not there or cannot be read: it decides nothing."""
    try:
        return decode(LastRuns, json.loads(read_text(directory.reasons)))
    except (OSError, ValueError):
        return LastRuns()


def note_runs(directory: TargetDirectory, finished: Iterable[TaskEvent], planning: float | None = None) -> None:
    """Put what has just run over what is known, and how many seconds planning took where it ran. Raises OSError."""
    now = {event.task: _run(event) for event in finished}
    if planning is not None:
        now[PLANNING] = LastRun(PLANNING, (), round(planning, 3), cached=False)
    if not now:
        return
    before = {run.task: run for run in load_last_runs(directory).runs}
    _folder(directory.reasons)
    runs = LastRuns(tuple(run for _, run in sorted((before | now).items())))
    write_text(directory.reasons, json.dumps(encode(runs), indent=1) + "\n")


def _run(event: TaskEvent) -> LastRun:
    return LastRun(event.task, event.reasons, event.seconds, event.cached, event.as_for)


def _folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
