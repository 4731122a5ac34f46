"""What is done to heads around attention, and attention over channels, by the kernels that are for these."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean

_WAYS = ("direct", "pairs", "tensor_cores")


@figures("head_kernels")
def head_kernels(data: Any) -> dict[str, str]:
    """A row a layer; and how many times as long the plain kernel takes as that of pairs."""
    rows, gains = [], []
    for layer, found in data["layers"].items():
        plain, pairs, channels = (found["us"][way] for way in _WAYS)
        gain = "-"
        if plain is not None and pairs is not None:
            gains.append(plain / pairs)
            gain = f"{gains[-1]:.2f}"
        rows.append([layer, _us(plain), _us(pairs), gain, _us(channels)])
    head = [f"us, fp16, {of_gpu(data)}", "plain", "pairs", "gain", "attention over channels"]
    tried = sum(len(found[way]) for found in data["layers"].values() for way in _WAYS)
    return {
        "heads": table(head, rows), "heads.tried": str(tried), "heads.wrong": str(data["wrong"]),
        "heads.mean": mean(gains), "heads.least": f"{min(gains):.2f}", "heads.most": f"{max(gains):.2f}",
    }  # fmt: skip


def _us(time: float | None) -> str:
    return "-" if time is None else f"{time:.1f}"
