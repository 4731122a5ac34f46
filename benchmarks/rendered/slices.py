"""Networks with split channels, before and after slices were views."""

from __future__ import annotations

from collections import Counter
from typing import Any

from . import figures, table


@figures("slices")
def slices(data: Any) -> dict[str, str]:
    rows = []
    for name, after in data["after"].items():
        before = data["before"][name]
        cells = [str(sum(each["kinds"].values())) for each in (before, after)]
        cells += [f"{each['moving'] * 1e6:.0f}" for each in (before, after)]
        cells += [f"{each['seconds'] * 1e6:.0f}" for each in (before, after)]
        rows.append([name, *cells, _most(after["kinds"])])
    times = ("steps that move", "their us", "engine's us")
    head = ["network", *(f"{each}, {when}" for each in times for when in ("before", "after")), "what still moves"]
    return {"slices": table(head, rows)}


def _most(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common()) or "nothing"
