"""Convolutions and the normalisation of their images: in one step, and in two."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean


@figures("moment_kernels")
def moment_kernels(data: Any) -> dict[str, str]:
    """A row a shape: the fastest of each way, and how many times as long both kernels take as the one step."""
    rows, gains = [], []
    for shape, found in data["shapes"].items():
        took = {way: min(each["us"] for each in found[way]) for way in ("moments", "conv", "norm")}
        apart = took["conv"] + took["norm"]
        gains.append(apart / took["moments"])
        rows.append([shape, *(f"{each:.1f}" for each in (took["moments"], apart, took["norm"])), f"{gains[-1]:.2f}"])
    head = [f"us, fp16, fp32 accumulation, {of_gpu(data)}", "in one step", "apart", "of it the norm", "apart over one"]
    return {
        "moments": table(head, rows), "moments.wrong": str(data["wrong"]), "moments.mean": mean(gains),
        "moments.least": f"{min(gains):.2f}", "moments.most": f"{max(gains):.2f}",
        "moments.faster": f"{sum(gain > 1.005 for gain in gains)} of {len(gains)}",
    }  # fmt: skip
