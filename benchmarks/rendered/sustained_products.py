"""Long products, by a GPU that has rested and by one that its power limits."""

from __future__ import annotations

import re
from typing import Any

from . import figures, table
from .prologue_forms import mean

_CLUSTERS = (("blocks alone", 1), ("clusters of two", 2))


@figures("sustained_products")
def sustained_products(data: Any) -> dict[str, str]:
    gpu = data["gpu"].removeprefix("NVIDIA ")
    head = [
        f"us, fp16, fp32 accumulation, {gpu}", "", "cuBLAS, with a bias alone", "cuBLAS, with the residual or GELU",
        *(name for name, _ in _CLUSTERS),
    ]  # fmt: skip
    rows = []
    for name, row in data["rows"].items():
        for when, field in (("rested", "first_us"), ("run after run", "us")):
            least = [_least(row["kernels"], blocks, field) for _, blocks in _CLUSTERS]
            peers = [row[peer][field] for peer in ("cublas", "same")]
            rows.append([name, when, *(f"{us:.1f}" for us in (*peers, *least))])
    slower = [row["cublas"]["us"] / row["cublas"]["first_us"] for row in data["rows"].values()]
    ahead = {
        peer: [row[peer]["us"] / min(each["us"] for each in row["kernels"]) for row in data["rows"].values()]
        for peer in ("cublas", "same")
    }
    return {
        "sustained_products": table(head, rows), "sustained_products.date": data["date"],
        "sustained_products.seconds": data["command"].split("--seconds ")[1].split()[0],
        "sustained_products.alone": mean(ahead["cublas"]), "sustained_products.same": mean(ahead["same"]),
        "sustained_products.same_least": f"{min(ahead['same']):.2f}",
        "sustained_products.slower": f"{100 * (min(slower) - 1):.0f} to {100 * (max(slower) - 1):.0f}%",
    }  # fmt: skip


def _least(kernels: Any, blocks: int, field: str) -> float:
    return min(each[field] for each in kernels if _blocks(each["candidate"]) == blocks)


def _blocks(candidate: str) -> int:
    """Of a cluster."""
    found = re.search(r"cluster=(\d)x(\d)", candidate)
    return 1 if found is None else int(found[1]) * int(found[2])
