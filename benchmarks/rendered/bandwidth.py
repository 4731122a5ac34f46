"""What steps that only move bytes reach of a GPU's memory bandwidth."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("bandwidth")
def bandwidth(data: Any) -> dict[str, str]:
    """A row a case, its steps added up, with its largest batch and the one before it: sets of cases have others."""
    cases: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for row in data["rows"]:
        cases.setdefault((row["kind"], row["case"].partition(".")[0]), {}).setdefault(row["batch"], []).append(row)
    pairs = {tuple(sorted(found)[-2:]) for found in cases.values()}
    same = len(pairs) == 1
    rows = []
    for (kind, case), found in sorted(cases.items()):
        cells = [kind, case.replace("_", " ")]
        for batch in sorted(found)[-2:]:
            steps = found[batch]
            taken, moved = sum(step["us"] for step in steps), sum(step["bytes"] for step in steps)
            cells += [*([] if same else [str(batch)]), f"{taken:.1f}", f"{1e6 * moved / taken / data['peak']:.0%}"]
        rows.append(cells)
    width = max(map(len, rows))
    rows = [[*cells, *[""] * (width - len(cells))] for cells in rows]
    head, share = ["kind", "step"], f"of {data['peak'] / 1e12:.1f} TB/s"
    if same:
        for batch in next(iter(pairs)):
            head += [f"us, batch {batch}", share]
    else:
        head += ["batch", "us", share] * (width // 3)
    return {"bandwidth": table(head, rows)}
