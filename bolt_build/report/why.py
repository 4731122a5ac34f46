"""Shows why tasks would run, and why those that are up to date ran last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bolt_build.build.last_runs import LastRun
from bolt_build.build.staleness.changes import NEVER_BUILT, NEVER_VERIFIED
from bolt_build.build.staleness.staleness import StaleTask
from bolt_build.build.why import ExplainedTask
from bolt_build.report.printable import printable

_PAST = {NEVER_BUILT: "not built before", NEVER_VERIFIED: "not verified before"}


def why_text(found: Sequence[ExplainedTask]) -> str:
    """A line a task: those that would run, and where none would, or tasks were asked for by name, also the others."""
    return "".join(
        f"{each.recipe}/{each.target}: {printable(each.task.label)}: {printable(_why(each))}\n" for each in found
    )


def why_data(found: Sequence[ExplainedTask]) -> list[dict[str, Any]]:
    """The same as JSON data."""
    return [
        {
            "recipe": each.recipe, "target": each.target, "task": each.task.name, "label": each.task.label,
            "would_run": each.stale is not None, "reasons": [] if each.stale is None else list(each.stale.reasons),
            "certain": each.stale is not None and each.stale.certain,
            "from_cache": each.stale is not None and each.stale.from_cache,
            "as_for": "" if each.stale is None else each.stale.as_for,
            "last": None if each.last is None else _last_data(each.last),
        }
        for each in found
    ]  # fmt: skip


def _last_data(last: LastRun) -> dict[str, Any]:
    return {"reasons": list(last.reasons), "seconds": last.seconds, "cached": last.cached, "as_for": last.as_for}


def _why(each: ExplainedTask) -> str:
    if each.stale is not None:
        return f"would {_how(each.stale)}: {'; '.join(each.stale.reasons)}"
    if each.last is None or not each.last.reasons:
        return "up to date; why it ran last is not known"
    how = "came from the cache" if each.last.cached else f"ran {each.last.seconds:.1f} s"
    how = f"was taken from {each.last.as_for}" if each.last.as_for else how
    reasons = (_PAST.get(reason, reason) for reason in each.last.reasons)
    return f"up to date; {how} last: {'; '.join(reasons)}"


def _how(stale: StaleTask) -> str:
    if stale.as_for:
        return f"be taken from {stale.as_for}"
    if stale.from_cache:
        return "come from the cache"
    return "run" if stale.certain else "run if what it reads changes"
