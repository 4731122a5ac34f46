"""What a compilation of candidates made, as a tuning tells it."""

from __future__ import annotations

from bolt_build.tuning.compile.candidates import Compiled
from bolt_build.tuning.outcome import CompileOutcome


def outcome_of(compiled: Compiled) -> CompileOutcome:
    fetched = sum(event.cached for event in compiled.finished)
    ended = {event.task: event.cached for event in (*compiled.finished, *compiled.refused)}
    # A unit whose task did not even run was there already; not so where the compilation was cut short.
    unseen = compiled.bundle is not None
    reused = sum(ended.get(task, unseen) for task in compiled.units)
    return CompileOutcome(
        len(compiled.units), reused, 0 if compiled.bundle is None else compiled.bundle.trials,
        len(compiled.finished) - fetched, fetched, compiled.not_compiled, compiled.refused, compiled.broken,
    )  # fmt: skip
