"""Engines of encoders on an H100, with the kernels of their locks for it, beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table
from .encoder_peers import NAMES

_PEERS = {
    "eager": "published",
    "eager in a CUDA graph": "published-graph",
    "torch.compile, frozen weights": "published-frozen",
}


@figures("encoder_peers_h100")
def encoder_peers_h100(data: Any) -> dict[str, str]:
    head = [
        f"ms, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}", "batch",
        "engine", *_PEERS, "fastest peer over engine", "run after run",
        "millijoules of an input, engine and fastest peer",
    ]  # fmt: skip
    summary, built = data["summary"]["all"], data["built"].values()
    name, _, batch = summary["least_row"].rpartition("_b")
    return {
        "encoder_peers_h100": table(head, map(_row, data["rows"])),
        "encoder_peers_h100.mean": f"{summary['geometric_mean']:.2f}",
        "encoder_peers_h100.least": f"{summary['least']:.2f} times ({NAMES[name]}, batch {batch})",
        "encoder_peers_h100.verified": f"{sum(each['verified'] is True for each in built)} of {len(built)}",
        "encoder_peers_h100.date": data["date"],
    }


def _row(row: Any) -> list[str]:
    ran = row["contestants"]
    times = [f"{ran[name]['median_ms']:.3f}" if name in ran else "not measured" for name in _PEERS.values()]
    loaded = ran["engine"]["sustained_images_per_second"] / max(
        each["sustained_images_per_second"] for name, each in ran.items() if name != "engine"
    )
    energy = " and ".join(f"{1e3 * ran[name]['joules_per_image']:.1f}" for name in ("engine", row["best_peer"]))
    return [
        NAMES[row["model"]], str(row["batch"]), f"{row['engine_ms']:.3f}", *times, f"{row['speedup']:.2f}",
        f"{loaded:.2f}", energy,
    ]  # fmt: skip
