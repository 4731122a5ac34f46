"""Targets as rows of data: everything that planning and building must know of a machine.

A recipe names a row ("host"). Another package adds rows through the entry-point group `bolt_build.targets`
(each entry point names a `Target`). Only this file and `families/` know what kind of machine a row describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

from bolt_build.errors import BoltError, Diagnostic


@dataclass(frozen=True)
class Target:
    """One machine to build for.

    `where` is the memory that tensors live in ("cpu"; `bolt_where` of the engine's border). `families` are kernel
    families in order of preference. `tools` name what the toolchain probe must find. `queues` is the number of
    steps that may run at once: 1 makes the order of steps total, more leaves it partial. Bandwidth is in bytes/s,
    `flops` in operations/s per precision; both only rank alternatives where nothing was measured.
    """

    name: str
    description: str
    arch: str
    where: str
    precisions: tuple[str, ...]
    families: tuple[str, ...]
    tools: tuple[str, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    queues: int
    bandwidth: float
    flops: tuple[tuple[str, float], ...]
    launch_seconds: float
    runs_where_built: bool

    def rate(self, precision: str) -> float:
        """Peak operations/s for a precision name of `precisions`."""
        return dict(self.flops)[precision]


HOST = Target(
    name="host",
    description="this kind of CPU (x86-64-v3), through oneDNN",
    arch="x86-64-v3",
    where="cpu",
    precisions=("fp32", "bf16"),
    families=("onednn", "portable"),
    tools=("cxx", "onednn"),
    compile_flags=("-march=x86-64-v3", "-fopenmp", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    link_flags=("-ldnnl", "-fopenmp"),
    queues=1,
    bandwidth=20e9,
    flops=(("fp32", 200e9), ("bf16", 400e9)),
    launch_seconds=2e-6,
    runs_where_built=True,
)

_BUILT_IN = (HOST,)


def all_targets() -> tuple[Target, ...]:
    """Every known target, built in first, by name without repetition."""
    found = {target.name: target for target in _BUILT_IN}
    for entry in entry_points(group="bolt_build.targets"):
        target = entry.load()
        found.setdefault(target.name, target)
    return tuple(found.values())


def target_named(name: str) -> Target:
    """The row called `name`. Raises BoltError ("unknown-target") listing the known ones."""
    targets = all_targets()
    for target in targets:
        if target.name == name:
            return target
    known = ", ".join(t.name for t in targets)
    raise BoltError([Diagnostic("unknown-target", f"unknown target '{name}'", hint=f"known targets: {known}")])
