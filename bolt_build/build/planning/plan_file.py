"""`plan.json`: the task graph of one target and what it was made from: made again only when that has changed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.files import FileStamp, read_text, stays_below, write_text
from bolt_build.build.own_code.facts import Facts
from bolt_build.build.tasks import Task, TaskGraph
from bolt_build.digest import UNSAID, decode, encode
from bolt_build.planner.kernel_sources import Declined, UsedProblem
from bolt_build.sizes import Sizes

PLAN_FILE_VERSION = 7

_NAME = re.compile(r"\$\{([\w.]+)\}")


def place_of(name: str) -> str:
    """What the place is called that a file's name begins with, empty for a file of the target's directory."""
    found = _NAME.match(name)
    return "" if found is None else found[1]


@dataclass(frozen=True)
class Places:
    """Absolute paths by the names that tasks call them (`${package}`), so that no task depends on where they are."""

    paths: tuple[tuple[str, str], ...]

    def expand(self, text: str, **more: str) -> str:
        """`text` with every `${name}` replaced. Raises KeyError for a name that is not known."""
        names = dict(self.paths) | more
        return _NAME.sub(lambda match: names[match[1]], text)


@dataclass(frozen=True)
class UnitSummary:
    """A kernel unit: its file, the megabytes that compiling it takes, and what people call it, if anything."""

    name: str
    memory_mb: int
    label: str = ""


@dataclass(frozen=True)
class EngineSummary:
    """What tasks must know of an engine plan, so that they can be made again without planning.

    `families` are the names of the kernel families of its steps, `packages` of the installed packages that it has
    operators, kernels or its target from. `sizes` are what its plans are for, where dimensions have several extents.
    """

    name: str
    sources: tuple[str, ...]
    units: tuple[UnitSummary, ...]
    batches: tuple[int, ...]
    layout_digest: str
    weight_bytes: int
    arena_bytes: int
    steps: int
    families: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    sizes: tuple[Sizes, ...] = field(default=(), metadata=UNSAID)

    @property
    def plans(self) -> tuple[Sizes, ...]:
        """What each of its plans is for."""
        return self.sizes or tuple(map(Sizes, self.batches))


@dataclass(frozen=True)
class TuningUse:
    """What planning would have taken from a lock: `asked` are digests of problems, `graphs` those of the optimised
    graphs. `used` are the problems of the engine's steps, `declined` what the lock says of whole batches, or lacks, and
    that planning did not take."""

    asked: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()
    used: tuple[UsedProblem, ...] = ()
    declined: tuple[Declined, ...] = ()


NOTHING_USED = TuningUse()


@dataclass(frozen=True)
class PlanFile:
    """`planning_key` covers what the planner read; `key` also what only tasks read (tools, verification).

    `made` are the files that planning wrote beside it and that tasks read."""

    version: int
    planning_key: str
    key: str
    facts: Facts
    places: Places
    model: tuple[FileStamp, ...]
    engine: EngineSummary
    graph: TaskGraph
    made: tuple[FileStamp, ...] = ()
    tuning: TuningUse = NOTHING_USED

    def task(self, name: str) -> Task:
        """The task called `name`. Raises KeyError."""
        for task in self.graph.tasks:
            if task.name == name:
                return task
        raise KeyError(name)


def load_plan_file(path: Path) -> PlanFile | None:
    """The plan file at `path`; None where there is none, or none of this version, or one that names
    files outside of its folder: it is then made anew."""
    try:
        data = json.loads(read_text(path))
        if data.get("version") != PLAN_FILE_VERSION:
            return None
        plan = decode(PlanFile, data)
    except (OSError, ValueError, AttributeError):
        return None
    names = (*(file.path for file in plan.made), *(name for task in plan.graph.tasks for name in task.outputs))
    return plan if all(map(stays_below, names)) else None


def save_plan_file(path: Path, plan: PlanFile) -> None:
    """Write a plan file whole. Raises OSError."""
    write_text(path, json.dumps(encode(plan), indent=1) + "\n")
