"""What steps that only move bytes reach of a GPU's memory bandwidth."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("bandwidth")
def bandwidth(data: Any) -> dict[str, str]:
    """A row a case at its largest batch, its steps added up."""
    cases: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for row in data["rows"]:
        cases.setdefault((row["kind"], row["case"].partition(".")[0]), {}).setdefault(row["batch"], []).append(row)
    rows = []
    for (kind, case), found in sorted(cases.items()):
        batch = max(found)
        taken, moved = (sum(step[what] for step in found[batch]) for what in ("us", "bytes"))
        share = f"{1e6 * moved / taken / data['peak']:.0%}"
        rows.append([kind, case.replace("_", " "), str(batch), f"{moved / 1e6:.1f}", f"{taken:.1f}", share])
    head = ["kind", "step", "batch", "MB", "us", f"of {data['peak'] / 1e12:.1f} TB/s"]
    return {"bandwidth": table(head, rows)}


@figures("bandwidth_h100")
def bandwidth_h100(data: Any) -> dict[str, str]:
    """What normalisations of images and long rows reach on an H100, at the largest batch."""
    most = max(row["batch"] for row in data["rows"])
    shares = [row["share"] for row in data["rows"] if row["batch"] == most]
    return {
        "bandwidth_h100.norms": f"{min(shares):.0%} to {max(shares):.0%}", "bandwidth_h100.cases": str(len(shares)),
        "bandwidth_h100.peak": f"{data['peak'] / 1e12:.2f} TB/s",
    }  # fmt: skip
