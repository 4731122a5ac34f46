"""Engines of networks and encoders that no recipe names beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import figures, short_gpu, table
from .contestants import contestants_of

_PEERS = {"torch-graph": "eager in a CUDA graph", "torch-reduce-overhead": "torch.compile"}
_SOURCES = {"source-graph": "eager in a CUDA graph", "source-frozen": "torch.compile, frozen weights"}
_EAGER = {"source": "eager"}


@figures("other_networks")
def other_networks(data: Any) -> dict[str, str]:
    head = ["images a second, engine"]
    return _table("other_networks", data, _PEERS, "batch 32, ", head, lambda row: [_rate(row)])


@figures("other_encoders")
def other_encoders(data: Any) -> dict[str, str]:
    head = ["batch", "torch.compile took"]
    made = _table("other_encoders", data, _SOURCES, "", head, lambda row: [str(row["batch"]), _compiled(row)])
    apart = [f"{found['geometric_mean']:.2f} on an {short_gpu(gpu)} ({found['rows']} models)"
             for gpu, found in data["summary"].items() if gpu != "all"]  # fmt: skip
    eager = [f"{row['model']} {row['contestants']['source']['median_ms']:.1f} ms"
             for row in data["rows"] if row["speedup"] is None]  # fmt: skip
    return made | {
        "other_encoders.apart": " and ".join(apart) or "all on one GPU",
        "other_encoders.eager": ", ".join(eager) or "none",
    }


def _rate(row: Any) -> str:
    return f"{row['contestants']['engine']['images_per_second']:.0f}"


def _compiled(row: Any) -> str:
    found = row["contestants"].get("source-frozen")
    return "did not run" if found is None else f"{found['compile_seconds']:.0f} s"


def _table(
    name: str, data: Any, peers: dict[str, str], at: str, more: list[str], words: Callable[[Any], list[str]]
) -> dict[str, str]:
    """A row a network, the one with the slowest peers first, with the `words` of the columns `more`, its GPU and its
    date."""
    head = [
        f"ms, {at}{data['precision']}, {data['accumulator']} accumulation", "engine", *peers.values(),
        "fastest peer over engine", "steps alone, of their bound", *more, "GPU", "measured",
    ]  # fmt: skip
    rows = []
    for row in sorted(data["rows"], key=lambda each: -(each["speedup"] or 0)):
        ran = contestants_of(row)
        missing = {each: "did not run" if each in row["failed"] else "left out" for each in peers}
        times = [f"{ran[each]['median_ms']:.3f}" if each in ran else missing[each] for each in peers]
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        bound = f"{row['bound_us'] / row['steps']:.0%}" if "steps" in row else "not timed"
        origin = [short_gpu(row["gpu"]), row["date"]]
        rows.append([row["model"], f"{row['engine_ms']:.3f}", *times, speedup, bound, *words(row), *origin])
    summary = data["summary"]["all"]
    built = data["built"]
    return {
        name: table(head, rows),
        f"{name}.mean": f"{summary['geometric_mean']:.2f}",
        f"{name}.least": f"{summary['least']:.2f}",
        f"{name}.least_row": summary["least_row"].rpartition("_b")[0],
        f"{name}.compared": str(summary["rows"]),
        f"{name}.verified": f"{sum(each['verified'] is True for each in built.values())} of {len(built)}",
        f"{name}.departs": _departing(data, peers | _EAGER),
    }


def _departing(data: Any, peers: dict[str, str]) -> str:
    """For example "swin_v2_t: eager; mobilevitv2_050: torch.compile"."""
    found = ((row["model"], [peers[each] for each in row["departs"]]) for row in data["rows"])
    return "; ".join(f"{model}: {', '.join(names)}" for model, names in found if names) or "none"
