"""What a build tells while it runs: one JSON line an event, from SCons's process to the one that shows it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import IO

from bolt_build.digest import decode, encode


class EventKind(Enum):
    STARTED = "started"
    FINISHED = "finished"
    CURRENT = "current"
    """The task was asked for, but its receipt says that the outputs are what they should be."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The task was running when the build was interrupted."""
    NOTE = "note"
    """Something worth a line: `text`."""


@dataclass(frozen=True)
class TaskEvent:
    """`cached`: the outputs came from a cache; `shared`: from that which a team shares; `as_for` names the target
    ("net/host") whose same task of this build has made them, where they are taken from there. `text`: a note, or why it
    failed. `log`: the end of its output. `reasons` say why the task was not up to date.

    `command` is a line for a shell that repeats the task by hand. `recipe` is that of the target, "" where only one is
    built.
    """

    kind: EventKind
    target: str
    task: str
    label: str
    seconds: float = 0.0
    cached: bool = False
    text: str = ""
    log: str = ""
    log_file: str = ""
    command: str = ""
    reasons: tuple[str, ...] = ()
    shared: bool = False
    recipe: str = ""
    as_for: str = ""


@dataclass
class EventWriter:
    """Writes events to a descriptor. Thread-safe; a reader that went away is no error: its signal ends the build."""

    descriptor: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, event: TaskEvent) -> None:
        line = (json.dumps(encode(event)) + "\n").encode()
        with self._lock:
            try:
                while line:
                    line = line[os.write(self.descriptor, line) :]
            except BrokenPipeError:
                return


def read_events(stream: IO[str]) -> Iterator[TaskEvent]:
    """Events until the writer is gone; the piece of a line that a killed writer leaves is dropped."""
    for line in stream:
        try:
            yield decode(TaskEvent, json.loads(line))
        except ValueError:
            continue
