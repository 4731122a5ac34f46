"""Depthwise convolutions that leave means: who adds up the sums of their tiles."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean

_WAYS = {"second": "a second kernel", "last": "the last block", "cluster": "a cluster"}


@figures("mean_kernels")
def mean_kernels(data: Any) -> dict[str, str]:
    """A row a layer; how many times as long the second kernel takes as the faster of the others; and how often a way is
    the fastest."""
    rows, gains = [], []
    fastest = dict.fromkeys(_WAYS, 0)
    for layer, found in data["layers"].items():
        times = {way: float(found["us"][way]) for way in _WAYS}
        gains.append(times["second"] / min(times["last"], times["cluster"]))
        fastest[min(times, key=times.__getitem__)] += 1
        rows.append([layer, *(f"{us:.1f}" for us in times.values()), f"{gains[-1]:.2f}"])
    head = [f"us, fp16, fp32 accumulation, {of_gpu(data)}", *_WAYS.values(), "gain"]
    tried = sum(len(found[way]) for found in data["layers"].values() for way in _WAYS)
    return {
        "means": table(head, rows), "means.tried": str(tried), "means.wrong": str(data["wrong"]),
        "means.mean": mean(gains), "means.least": f"{min(gains):.2f}",
        **{f"means.{way}": f"{count} of {len(rows)}" for way, count in fastest.items()},
    }  # fmt: skip
