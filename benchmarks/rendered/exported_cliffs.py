"""Networks that exporters write, whose predicted steps were searched for cliffs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from . import figures, kind_words, percent, table

_REACHED, _SHARE, _SHOWN = 0.25, 0.03, 12
_FULL = "h200"


@figures("exported_cliffs")
def exported_cliffs(data: Any) -> dict[str, str]:
    plans = {name: row["plans"][_FULL] for name, row in data["networks"].items() if _FULL in row["plans"]}
    models = {name.split(" ")[0] for name in plans}
    slow: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    cliffs: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, float] = defaultdict(float)
    for name, plan in plans.items():
        for kind, found in plan["kinds"].items():
            if found["seconds"] > _SHARE * plan["seconds"] and found["bound"] < _REACHED * found["seconds"]:
                slow[kind].append((found["bound"] / found["seconds"], found["seconds"] / plan["seconds"], name))
        for cliff in plan["cliffs"]:
            cliffs[name].append(cliff["bound"] / cliff["seconds"])
        for what in ("moves", "elementwise"):
            for operator, (_, seconds) in plan[what].items():
                parts[operator] += seconds / plan["seconds"] / len(plans)
    bad = {name.split(" ")[0] for rows in slow.values() for _, _, name in rows}
    rows = [
        [kind_words(kind), str(len(found)), _worst(min(found)), percent(max(share for _, share, _ in found))]
        for kind, found in sorted(slow.items(), key=lambda item: -len(item[1]))
    ]
    more = len(rows) - _SHOWN
    if more > 0:
        rows = [*rows[:_SHOWN], [f"{more} others", str(sum(int(row[1]) for row in rows[_SHOWN:])), "", ""]]
    unplanned = sorted({name.split(" ")[0] for name, row in data["networks"].items() if row["said"] != "ok"})
    left_out = [name.split(".")[1] for name in data["left_out"]]
    left = [
        [name.replace(" ", ", batch "), str(len(found)), percent(min(found), 1)]
        for name, found in sorted(cliffs.items())
    ]
    others = {target for row in data["networks"].values() for target in row["plans"]} - {_FULL}
    return {
        "exported_cliffs": table(["kind", "slow in plans", "least of the bound", "most of an engine"], rows),
        "exported_cliffs.left": table(
            ["network", "steps under a twentieth", "least share"], left or [["none", "", ""]]
        ),
        "exported_cliffs.networks": str(len(models)),
        "exported_cliffs.plans": str(len(plans)),
        "exported_cliffs.steps": f"{sum(plan['steps'] for plan in plans.values()):,}",
        "exported_cliffs.clean": str(len(models - bad - {name.split(" ")[0] for name in cliffs})),
        "exported_cliffs.moves": ", ".join(
            f"{operator} {percent(part, 1)}"
            for operator, part in sorted(parts.items(), key=lambda item: -item[1]) if part >= 0.001
        ),
        "exported_cliffs.unplanned": ", ".join(unplanned) or "none",
        "exported_cliffs.left_out": ", ".join(left_out),
        "exported_cliffs.others": _others(data, sorted(others)),
    }  # fmt: skip


def _worst(found: tuple[float, float, str]) -> str:
    return f"{percent(found[0])}, {found[2].split('.')[1].replace(' ', ', batch ')}"


def _others(data: Any, targets: list[str]) -> str:
    """Of targets that plan some networks alone: how many steps under a twentieth."""
    counts = []
    for target in targets:
        plans = [row["plans"][target] for row in data["networks"].values() if target in row["plans"]]
        counts.append(f"{target}: {sum(len(plan['cliffs']) for plan in plans)} steps of {len(plans)} plans")
    return ", ".join(counts)
