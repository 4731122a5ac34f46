"""Engines of networks and encoders that no recipe names beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import figures, table

_PEERS = {"torch-graph": "eager in a CUDA graph", "torch-reduce-overhead": "torch.compile"}
_SOURCES = {"source-graph": "eager in a CUDA graph", "source-frozen": "torch.compile, frozen weights"}


@figures("other_networks")
def other_networks(data: Any) -> dict[str, str]:
    head = ["images a second, engine"]
    return _table("other_networks", data, _PEERS, "batch 32, ", head, lambda row: [_rate(row)])


@figures("other_encoders")
def other_encoders(data: Any) -> dict[str, str]:
    head = ["batch", "torch.compile took"]
    return _table("other_encoders", data, _SOURCES, "", head, lambda row: [str(row["batch"]), _compiled(row)])


def _rate(row: Any) -> str:
    return f"{row['contestants']['engine']['images_per_second']:.0f}"


def _compiled(row: Any) -> str:
    return f"{row['contestants']['source-frozen']['compile_seconds']:.0f} s"


def _table(
    name: str, data: Any, peers: dict[str, str], at: str, more: list[str], words: Callable[[Any], list[str]]
) -> dict[str, str]:
    """A row a network, the one with the slowest peers first, with the `words` of the columns `more`."""
    gpu = data["gpu"].removeprefix("NVIDIA ").split()[0]
    head = [
        f"ms, {at}{data['precision']}, {data['accumulator']} accumulation, {gpu}", "engine", *peers.values(),
        "fastest peer over engine", "steps alone, of their bound", *more,
    ]  # fmt: skip
    rows = []
    for row in sorted(data["rows"], key=lambda each: -(each["speedup"] or 0)):
        ran = row["contestants"]
        times = [f"{ran[each]['median_ms']:.3f}" if each in ran else "did not run" for each in peers]
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        bound = f"{row['bound_us'] / row['steps']:.0%}"
        rows.append([row["model"], f"{row['engine_ms']:.3f}", *times, speedup, bound, *words(row)])
    summary = data["summary"]["all"]
    built = data["built"]
    return {
        name: table(head, rows),
        f"{name}.mean": f"{summary['geometric_mean']:.2f}",
        f"{name}.least": f"{summary['least']:.2f}",
        f"{name}.compared": str(summary["rows"]),
        f"{name}.verified": f"{sum(each['verified'] is True for each in built.values())} of {len(built)}",
    }
