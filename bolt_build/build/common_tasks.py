"""Tasks that several targets of a session have in common: the same work by its key, done once.

One of them, the first, runs. The others wait for it and take what it has made: each target keeps files of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.tasks import Task, TaskGraph
from bolt_build.digest import digest_file


@dataclass(frozen=True)
class MadeTask:
    """What a task of the target `name` ("net/host") has made: name, file and digest of each output."""

    name: str
    outputs: tuple[tuple[str, Path, str], ...]


@dataclass
class MadeOnce:
    """What tasks of a session have made, by their keys. Thread-safe."""

    _made: dict[str, MadeTask] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def made(self, key: str, task: MadeTask) -> None:
        """Let others of the same key take it."""
        with self._lock:
            self._made.setdefault(key, task)

    def fetch(self, key: str, to: Path) -> str:
        """Copy the outputs of `key` under `to`; the target that made them, or "" where none did, or where they are not
        what it made any more. Raises OSError where `to` cannot be written."""
        with self._lock:
            made = self._made.get(key)
        if made is None:
            return ""
        for name, file, digest in made.outputs:
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(file, to / name)
            if not (to / name).is_file() or digest_file(to / name) != digest:
                for other, _, _ in made.outputs:
                    (to / other).unlink(missing_ok=True)
                return ""
        return made.name


def may_be_common(graph: TaskGraph) -> tuple[Task, ...]:
    """The tasks that may be another target's too: outputs follow from the key, and inputs, which no task makes, are
    known before the first task runs."""
    made = {output for task in graph.tasks for output in task.outputs}
    return tuple(task for task in graph.tasks if task.cached and made.isdisjoint(task.inputs))


@dataclass
class CommonTasks:
    """Which tasks wait for which, of those that would run and of which each is told once, in the order of targets."""

    _first: dict[str, tuple[str, str]] = field(default_factory=dict)

    def learn(self, name: str, task: str, key: str) -> tuple[str, str] | None:
        """The target and the task that this one of the target `name` waits for, None where it is the first of its
        key."""
        first = self._first.setdefault(key, (name, task))
        return None if first == (name, task) else first
