"""Convolutions of engines beside cuDNN's."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from . import figures, kind_words, table

_LESS = 3
"""Kinds with fewer different steps stand together."""


@figures("cudnn_convolutions")
def convolutions(data: Any) -> dict[str, str]:
    """A row a kind of step, what is there most often first."""
    head = [f"{data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}"]
    rows: dict[str, list[str]] = {}
    for batch in ("b32", "b1"):
        head += [f"steps, batch {batch[1:]}", "cuDNN over kernel", "least"]
        for kind, ratios in _by_kind(data, batch).items():
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            cells = rows.setdefault(kind, ["", "", ""] if batch == "b1" else [])
            cells += [str(len(ratios)), f"{mean:.2f}", f"{min(ratios):.2f}"]
    made = {
        "convolutions": table(head, [[kind, *cells, *[""] * (6 - len(cells))] for kind, cells in rows.items()]),
        "convolutions.date": str(data["date"]),
        "convolutions.cudnn": f"{data['cudnn'] // 10000}.{data['cudnn'] // 100 % 100}",
    }
    for batch, each in data["summary"].items():
        made |= {
            f"convolutions.{batch}.mean": f"{each['all']['geometric_mean']:.2f}",
            f"convolutions.{batch}.least": f"{each['all']['least']:.2f}",
            f"convolutions.{batch}.sum": f"{each['cudnn_us'] / each['us']:.2f}",
            f"convolutions.{batch}.rows": str(each["all"]["rows"]),
        }
    return made


def _by_kind(data: Any, batch: str) -> dict[str, list[float]]:
    kinds = defaultdict(list)
    for name, row in data["rows"].items():
        if name.endswith(f"_{batch}"):
            for step in row["steps"]:
                kinds[kind_words(step["kind"])].append(sum(step["cudnn_us"]) / step["us"])
    many = {kind: ratios for kind, ratios in kinds.items() if len(ratios) >= _LESS}
    others = [ratio for kind, ratios in kinds.items() if kind not in many for ratio in ratios]
    return dict(sorted(many.items(), key=lambda item: -len(item[1]))) | {"others": others}
