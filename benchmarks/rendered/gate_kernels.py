"""1x1 convolutions that multiply by gates as they store, beside a pass behind them."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean


@figures("gate_kernels")
def gate_kernels(data: Any) -> dict[str, str]:
    """A row a shape; and how many times as long both kernels take as the one, and the one as that of a sum alone."""
    rows, gains, over = [], [], []
    for shape, found in data["layers"].items():
        us = {way: float(time) for way, time in found["us"].items()}
        apart = us["alone"] + us["pass"]
        gains.append(apart / us["gated"])
        over.append(us["gated"] / us["sum"])
        batch, extent, channels, filters = shape.split()
        name = f"{batch} {extent}x{extent} {channels} to {filters}"
        rows.append([name, f"{us['gated']:.1f}", f"{apart:.1f}", f"{us['sum']:.1f}"])
    head = [f"us, fp16, fp32 accumulation, {of_gpu(data)}", "in one kernel", "apart", "one kernel without the gate"]
    return {
        "gates": table(head, rows), "gates.wrong": str(data["wrong"]),
        "gates.mean": mean(gains), "gates.least": f"{min(gains):.2f}", "gates.most": f"{max(gains):.2f}",
        "gates.over": mean(over), "gates.over_most": f"{max(over):.2f}",
    }  # fmt: skip
