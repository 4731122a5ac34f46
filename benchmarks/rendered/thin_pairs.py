"""Two products of few channels in one kernel whose warps have rows of their own, beside other kernels."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean


@figures("thin_pairs")
def thin_pairs(data: Any) -> dict[str, str]:
    """A row a shape; and how many times as long two kernels, and the faster of the others, take as the thin one."""
    rows, apart, others = [], [], []
    for shape, found in data["shapes"].items():
        us = found["us"]
        thin, both, shared = us["thin"], us["both"], us["shared"]
        apart.append(both / thin)
        others.append(min(each for each in (both, shared) if each is not None) / thin)
        rows.append([shape, f"{thin:.1f}", "none" if shared is None else f"{shared:.1f}", f"{both:.1f}"])
    head = [f"us, fp16, fp32 accumulation, {of_gpu(data)}", "thin", "one kernel, shared tiles", "two kernels"]
    return {
        "thin": table(head, rows), "thin.wrong": str(data["wrong"]),
        "thin.mean": mean(apart), "thin.least": f"{min(others):.2f}", "thin.most": f"{max(others):.2f}",
        "thin.others": mean(others),
    }  # fmt: skip
