"""What the sources look like, counted."""

from __future__ import annotations

from typing import Any

from . import duration, figures, table

_ROWS = (
    "tests of kinds of tiles and chains", "answers to whether a result is stale",
    "places beside its row that state a GPU's facts", "imports inside functions", "of which say why",
    "modules in cycles", "files", "lines", "lines of Python",
)  # fmt: skip


@figures("house")
def house(data: Any) -> dict[str, str]:
    rows = [[name, *(_count(data[when][name]) for when in ("before", "now"))] for name in _ROWS]
    at = f"at {data['before']['commit']}"
    times = [
        [what, *("not measured" if time[when] is None else duration(time[when]) for when in ("before", "now"))]
        for what, time in data["times"].items()
    ]
    return {
        "house": table(["in bolt_build, without the emulator", at, "now"], rows),
        "house.times": table(["2 cores", at, "since"], times),
    }


@figures("engine_sources")
def sources(data: Any) -> dict[str, str]:
    return {
        "sources.before": data["before"],
        "sources.engines": f"{data['engines']} engines of {len(data['recipes'])} recipes",
        "sources.equal": f"{data['equal']} of {data['files']}",
        "sources.moved": str(len(data["only_before"]) + len(data["only_now"])),
    }


def _count(found: Any) -> str:
    return f"{len(found) if isinstance(found, list) else found:,}"
