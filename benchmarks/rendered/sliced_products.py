"""Products of few tiles whose depth the blocks of a cluster share."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean

_WAYS = ("clusters", "two kernels", "whole")


@figures("sliced_products")
def sliced_products(data: Any) -> dict[str, str]:
    """A row a shape, and how many times as long the faster of the others takes as the clusters."""
    rows, gains = [], []
    for shape, found in data["shapes"].items():
        times = [found["best"][way] for way in _WAYS]
        gains.append(float(found["gain"]))
        rows.append([shape, *("-" if us is None else f"{us:.1f}" for us in times), f"{gains[-1]:.2f}"])
    head = [f"us, fp16, fp32 accumulation, {of_gpu(data)}", "in clusters", "in two kernels", "whole", "gain"]
    tried = sum(len(found[way]) for found in data["shapes"].values() for way in _WAYS)
    return {
        "sliced": table(head, rows), "sliced.tried": str(tried), "sliced.wrong": str(data["wrong"]),
        "sliced.mean": mean(gains), "sliced.least": f"{min(gains):.2f}",
        "sliced.faster": f"{sum(gain > 1 for gain in gains)} of {len(gains)}",
    }  # fmt: skip
