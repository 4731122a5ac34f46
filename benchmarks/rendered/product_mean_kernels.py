"""Convolutions on tensor cores that leave means: in one kernel, and in two."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import fastest, mean


@figures("product_mean_kernels")
def product_mean_kernels(data: Any) -> dict[str, str]:
    """A row a shape, with a dash where no tile has whole images; and how many times as long both kernels take as the
    one, and one that is no more as the faster of these."""
    rows, gains, waited = [], [], []
    for shape, found in data["shapes"].items():
        both, whole = float(found["us"]["both"]), fastest(found["whole"])
        rows.append([shape, "-" if whole is None else f"{whole:.1f}", f"{both:.1f}"])
        if whole is not None:
            gains.append(both / whole)
        if (last := fastest(found.get("last", ()))) is not None:
            waited.append(last / (both if whole is None else min(both, whole)))
    faster = sum(gain > 1.005 for gain in gains)
    made = {
        "product_means": table([f"us, fp16, fp32 accumulation, {of_gpu(data)}", "in one kernel", "apart"], rows),
        "product_means.wrong": str(data["wrong"]), "product_means.faster": f"{faster} of {len(gains)}",
        "product_means.mean": mean(gains), "product_means.least": f"{min(gains):.2f}",
        "product_means.most": f"{max(gains):.2f}",
    }  # fmt: skip
    if waited:
        made["product_means.waited"] = f"{min(waited):.2f} to {max(waited):.2f}"
    return made
