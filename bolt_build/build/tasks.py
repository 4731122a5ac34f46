"""The task graph: what SCons will run, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ValueKind(Enum):
    """What a task's result depends on beside its files: bolt-build's own files, an installed package that adds to it,
    or a tool."""

    SOURCE = "source"
    PACKAGE = "package"
    TOOL = "tool"


@dataclass(frozen=True)
class Value:
    """Which files of ours (`name`), which package or tool; and what it is now, as a digest or text."""

    kind: ValueKind
    name: str
    content: str


@dataclass(frozen=True)
class Task:
    """One action: files in, files out, both relative to the target's build directory unless absolute.

    `rule` names the kind of action ("compile", "link", "copy", "manifest", "verify"); `label` is
    its line in the output; `argv` the child process. `values` are what the result
    depends on beside its files (tools, digests of the code that makes it). `reads` are dotted recipe keys
    that reach it, for reasons in the recipe's words. `memory_mb` is its peak, for admission. `cached` says whether its
    outputs may come from the cache.
    """

    name: str
    rule: str
    label: str
    argv: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[Value, ...] = ()
    reads: tuple[str, ...] = ()
    memory_mb: int = 200
    cached: bool = True


@dataclass(frozen=True)
class TaskGraph:
    """Tasks of one target in an order in which each stands behind what it needs; `artifacts` are the final files."""

    recipe: str
    target: str
    directory: str
    tasks: tuple[Task, ...]
    artifacts: tuple[str, ...]
