"""Folders of bolt-build's own headers that compilations read, as they were when a build began.

A compilation's key names the digests that planning took of them. Where one is edited meanwhile, what was compiled may
be of the old file or of the new one: it must not be kept under that key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bolt_build.build.planning.plan_file import PlanFile, place_of
from bolt_build.build.tasks import Task

_INCLUDE = "-I"

State = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


@dataclass(frozen=True)
class HeaderFolders:
    """`states` of the files in each folder, by the folder's name as tasks call it, and then by their paths."""

    plan: PlanFile
    states: Mapping[str, Mapping[str, State]] = field(default_factory=dict)

    def changed(self, task: Task) -> str | None:
        """The path of a file that the task may have read and that is not what it was, or None."""
        for folder in _own(task):
            known, now = self.states.get(folder, {}), _states(self.plan.places.expand(folder))
            for path in sorted(known.keys() | now.keys()):
                if known.get(path) != now.get(path):
                    return path
        return None


def header_folders(plan: PlanFile) -> HeaderFolders:
    """The folders of all compilations of a plan, as they are now."""
    names = dict.fromkeys(folder for task in plan.graph.tasks for folder in _own(task))
    return HeaderFolders(plan, {name: _states(plan.places.expand(name)) for name in names})


def _own(task: Task) -> Iterator[str]:
    """The folders of headers that a task names by bolt-build's place or a family's: those of tools are the tools'."""
    for argument in task.argv:
        name = argument.removeprefix(_INCLUDE)
        if name != argument and place_of(name).partition(".")[0] in ("package", "family"):
            yield name


def _states(folder: str) -> dict[str, State]:
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            status = os.lstat(path)
            found[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found
