"""What the sources look like, counted."""

from __future__ import annotations

from typing import Any

from . import figures, table

_ROWS = (
    "tests of kinds of tiles and chains", "answers to whether a result is stale",
    "places beside its row that state a GPU's facts", "imports inside functions", "of which say why",
    "modules in cycles", "files", "lines", "lines of Python",
)  # fmt: skip


@figures("house")
def house(data: Any) -> dict[str, str]:
    rows = [[name, *(_count(data[when][name]) for when in ("before", "now"))] for name in _ROWS]
    return {"house": table(["in bolt_build, without the emulator", f"at {data['before']['commit']}", "now"], rows)}


def _count(found: Any) -> str:
    return f"{len(found) if isinstance(found, list) else found:,}"
