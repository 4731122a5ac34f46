"""A compilation as it is sent to another machine, and what comes back.

Sources go along, and results come back, as bytes: no file system is shared. What a task has of bolt-build and of tools
is there already, and is compared by its digest before anything runs. So a job gives what it would give here, or a
reason why it was not run.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.planning.plan_file import Places, place_of
from bolt_build.build.tasks import Task, ValueKind

REMOTE_RULES = ("compile",)
"""Rules of tasks that may run elsewhere. Others read what others made, and take less time than sending that."""

_PACKAGE = Path(__file__).resolve().parents[2]
_PLACE = re.compile(r"\$\{([\w.]+)\}")
_OWN = ("directory", "out", "python", "package")
"""Places that every machine has by itself."""


@dataclass(frozen=True)
class SentFile:
    """A file of the target's directory, by its name there."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Job:
    """`tools` are (name, digest) of all that it must find; `inside` are places (name, path) in bolt-build's own folder.
    `package` is the digest of that folder."""

    name: str
    argv: tuple[str, ...]
    files: tuple[SentFile, ...]
    outputs: tuple[str, ...]
    tools: tuple[tuple[str, str], ...]
    inside: tuple[tuple[str, str], ...]
    package: str


@dataclass(frozen=True)
class Answer:
    """What became of a job: its exit status, what it said, the outputs of one that succeeded, and the seconds that it
    took. `refused` says why it was not run, where it was not; it goes on behind the worker's address."""

    status: int
    log: bytes = b""
    outputs: tuple[SentFile, ...] = ()
    refused: str = ""
    seconds: float = 0.0


@functools.cache
def package_digest() -> str:
    """Digest of bolt-build's own folder: whoever has another one would make something else."""
    # Every build has this module in SCons's process, and few send jobs: that reads what packages are installed.
    from bolt_build.build.own_code.own_sources import tree_digest

    return tree_digest(_PACKAGE)


def job_of(task: Task, places: Places, directory: Path) -> Job | None:
    """The job of a task whose inputs are there; None for one that must run here: of another rule, or with files that
    only this machine has. Raises OSError."""
    if task.rule not in REMOTE_RULES:
        return None
    tools = tuple((value.name, value.content) for value in task.values if value.kind is ValueKind.TOOL)
    known, paths = {name for name, _ in tools}, dict(places.paths)
    inside: dict[str, str] = {}
    for name in {place for text in (*task.argv, *task.inputs) for place in _PLACE.findall(text)}:
        if name in _OWN or name.partition(".")[0] in known:
            continue
        path = Path(paths[name])
        if not path.is_relative_to(_PACKAGE):
            return None
        inside[name] = str(path.relative_to(_PACKAGE))
    sent = [name for name in task.inputs if not place_of(name)]
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in (*sent, *task.outputs)):
        return None
    files = tuple(SentFile(name, (directory / name).read_bytes()) for name in sent)
    return Job(task.name, task.argv, files, task.outputs, tools, tuple(sorted(inside.items())), package_digest())
