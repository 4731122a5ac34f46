"""The task graph: what SCons will run, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One action: files in, files out, both relative to the target's build directory unless absolute.

    `rule` names the kind of action ("compile", "link", "copy", "manifest", "verify"); `label` is
    its line in the output; `argv` the child process. `values` are (name, digest or text) pairs that the result
    depends on beside its files (tool versions, flags, digests of the emitter's sources). `reads` are dotted recipe keys
    that reach it, for reasons in the recipe's words. `memory_mb` is its peak, for admission. `cached` says whether its
    outputs may come from the cache.
    """

    name: str
    rule: str
    label: str
    argv: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()
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
