"""Engines of networks that no recipe names beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table

_PEERS = {"torch-graph": "eager in a CUDA graph", "torch-reduce-overhead": "torch.compile"}


@figures("other_networks")
def other_networks(data: Any) -> dict[str, str]:
    head = [
        f"ms, batch 32, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}",
        "engine", *_PEERS.values(), "fastest peer over engine", "steps alone, of their bound",
        "images a second, engine",
    ]  # fmt: skip
    rows = []
    for row in sorted(data["rows"], key=lambda each: -(each["speedup"] or 0)):
        ran = row["contestants"]
        peers = [f"{ran[name]['median_ms']:.3f}" if name in ran else "has no such operator" for name in _PEERS]
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        rate = f"{ran['engine']['images_per_second']:.0f}"
        rows.append(
            [row["model"], f"{row['engine_ms']:.3f}", *peers, speedup, f"{row['bound_us'] / row['steps']:.0%}", rate]
        )
    summary = data["summary"]["all"]
    built = data["built"]
    return {
        "other_networks": table(head, rows),
        "other_networks.mean": f"{summary['geometric_mean']:.2f}",
        "other_networks.least": f"{summary['least']:.2f}",
        "other_networks.compared": str(summary["rows"]),
        "other_networks.verified": f"{sum(each['verified'] is True for each in built.values())} of {len(built)}",
    }
