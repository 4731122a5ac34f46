"""The sources of an engine in memory: what the emit task writes, and what `--dry-run` compares."""

from __future__ import annotations

from bolt_build.emit.engine import emit, emit_runner
from bolt_build.emit.manifest import BuildFacts
from bolt_build.families import load
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.targets import target_named


def emitted_sources(plan: EnginePlan, facts: BuildFacts) -> tuple[tuple[str, str], ...]:
    """(path under the target's directory, text) of every generated source."""
    target = target_named(plan.target)
    files = (*emit(plan, target, load(target), facts), emit_runner(plan))
    return tuple((f"src/{file.path}", file.text) for file in files)
