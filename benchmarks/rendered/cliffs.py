"""Networks whose predicted steps were searched for cliffs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from . import figures, percent, table

_REACHED, _SHARE, _CLIFF = 0.25, 0.03, 0.05


@figures("cliffs")
def cliffs(data: Any) -> dict[str, str]:
    plans = {tuple(name.split(" ")): plan for name, plan in data["plans"].items()}
    models = dict.fromkeys(model for model, _, _ in plans)
    targets = list(dict.fromkeys(target for _, target, _ in plans))
    by_kind: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    engines: dict[str, list[float]] = {target: [] for target in targets}
    slow: dict[tuple[str, str], list[str]] = defaultdict(list)
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    steps = 0
    for (model, target, batch), plan in plans.items():
        engines[target].append(sum(kind["bound"] for kind in plan["kinds"].values()) / plan["seconds"])
        for name, kind in plan["kinds"].items():
            steps += kind["steps"]
            share = kind["seconds"] / plan["seconds"]
            # A network counts as much as another, whatever its batch or size.
            sums = by_kind[name][target]
            sums[0] += share / (len(plans) / len(targets))
            sums[1] += share
            sums[2] += share * kind["bound"] / kind["seconds"]
            if share > _SHARE and kind["bound"] < _REACHED * kind["seconds"]:
                slow[name, target].append(f"{model} {batch}")
        for cliff in plan["cliffs"]:
            found[model, target, cliff["what"].split("[")[0]].append(f"{cliff['bound'] / cliff['seconds']:.1%}")
    head = ["family and operator", *(f"{target}: part of engines, of the bound" for target in targets), "slow engines"]
    first = targets[0]
    rows = []
    for name in sorted(by_kind, key=lambda name: -by_kind[name][first][0]):
        cells = [_of(by_kind[name][target]) for target in targets]
        if max(by_kind[name][target][0] for target in targets) >= 0.005:
            rows.append([name, *cells, str(sum(len(slow[name, target]) for target in targets))])
    left = [
        [model, target, f"{len(shares)}", min(shares, key=lambda share: float(share[:-1]))]
        for (model, target, _), shares in found.items()
    ]
    return {
        "cliffs": table(head, rows),
        "cliffs.left": table(
            ["network", "target", "steps in all batches", "least share"], left or [["none", "", "", ""]]
        ),
        "cliffs.networks": str(len(models)),
        "cliffs.plans": str(len(plans)),
        "cliffs.steps": str(steps),
        "cliffs.count": str(sum(len(plan["cliffs"]) for plan in data["plans"].values())),
        "cliffs.least": ", ".join(f"{percent(min(shares))} on {target}" for target, shares in engines.items()),
    }


def _of(sums: list[float]) -> str:
    """How much of engines, and what of the bound where there is any."""
    return f"{percent(sums[0])}, {percent(sums[2] / sums[1])}" if sums[1] else ""
