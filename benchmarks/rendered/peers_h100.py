"""Engines of bundled recipes beside PyTorch's on an H100, with the locks' kernels for it."""

from __future__ import annotations

import math
from typing import Any

from . import figures, table
from .cnn_peers import NAMES as CNNS
from .encoder_peers import NAMES as ENCODERS

_DENSE = {"resnet50": "ResNet-50", "resnet18": "ResNet-18", "vgg16": "VGG-16", "repvgg_a0": "RepVGG-A0"}
_NAMES = _DENSE | CNNS | ENCODERS
_COMPILED = ("torch-reduce-overhead", "torch-compile", "published-compiled", "published-frozen")
_PEERS = {
    "eager": ("torch", "published"),
    "eager in a CUDA graph": ("torch-graph", "published-graph"),
    "torch.compile": _COMPILED,
}


@figures("dense_peers_h100", "cnn_peers_h100", "encoder_peers_h100")
def peers_h100(dense: Any, cnns: Any, encoders: Any) -> dict[str, str]:
    head = [
        f"ms, {dense['precision']}, {dense['accumulator']} accumulation, {dense['gpu'].removeprefix('NVIDIA ')}",
        "batch", "engine", *_PEERS, "fastest peer over engine", "run after run",
        "millijoules of an input, engine and fastest peer",
    ]  # fmt: skip
    groups = {"dense": dense, "cnns": cnns, "encoders": encoders}
    made = {"peers_h100": table(head, [_row(row) for data in groups.values() for row in data["rows"]])}
    for name, data in groups.items():
        rows = {f"{_NAMES[row['model']]} at batch {row['batch']}": row["speedup"] for row in data["rows"]}
        least = min(rows, key=lambda row: rows[row])
        made |= {
            f"peers_h100.{name}.mean": f"{math.exp(sum(map(math.log, rows.values())) / len(rows)):.2f}",
            f"peers_h100.{name}.least": f"{rows[least]:.2f} times ({least})",
            f"peers_h100.{name}.rows": str(len(rows)),
        }
    built = [each for data in groups.values() for each in data["built"].values()]
    missing = [name for data in groups.values() for name in data["rows_missing"]]
    return made | {
        "peers_h100.verified": f"{sum(each['verified'] is True for each in built)} of {len(built)}",
        "peers_h100.date": dense["date"],
        "peers_h100.torch": ".".join(dense["versions"]["torch"].split(".")[:2]),
        "peers_h100.missing": ", ".join(missing) or "none",
    }


def _row(row: Any) -> list[str]:
    ran = row["contestants"]
    times = []
    for names in _PEERS.values():
        found = [ran[name]["median_ms"] for name in names if name in ran]
        times.append(f"{min(found):.3f}" if found else "not measured")
    best = ran[row["best_peer"]]
    loaded = ran["engine"]["sustained_images_per_second"] / max(
        each["sustained_images_per_second"] for name, each in ran.items() if name != "engine"
    )
    energy = " and ".join(f"{1e3 * each['joules_per_image']:.1f}" for each in (ran["engine"], best))
    return [
        _NAMES[row["model"]], str(row["batch"]), f"{row['engine_ms']:.3f}", *times, f"{row['speedup']:.2f}",
        f"{loaded:.2f}", energy,
    ]  # fmt: skip
