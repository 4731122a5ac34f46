"""What steps that only move bytes reach of a GPU's memory bandwidth."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("bandwidth")
def bandwidth(data: Any) -> dict[str, str]:
    """A row a case, its steps added up, with the largest batch and the one before it."""
    batches = sorted({row["batch"] for row in data["rows"]})[-2:]
    cases: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for row in data["rows"]:
        cases.setdefault((row["kind"], row["case"].partition(".")[0]), {}).setdefault(row["batch"], []).append(row)
    rows = []
    for (kind, case), found in sorted(cases.items()):
        cells = [kind, case.replace("_", " ")]
        for batch in batches:
            steps = found[batch]
            taken, moved = sum(step["us"] for step in steps), sum(step["bytes"] for step in steps)
            cells += [f"{taken:.1f}", f"{1e6 * moved / taken / data['peak']:.0%}"]
        rows.append(cells)
    head = ["kind", "step"]
    for batch in batches:
        head += [f"us, batch {batch}", f"of {data['peak'] / 1e12:.1f} TB/s"]
    return {"bandwidth": table(head, rows)}
