"""Engines of CNNs with depthwise and grouped convolutions beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table
from .contestants import contestants_of

_NAMES = {
    "mobilenet_v2": "MobileNetV2", "efficientnet_b0": "EfficientNet-B0", "resnext50_32x4d": "ResNeXt-50 32x4d",
    "densenet121": "DenseNet-121", "convnext_tiny": "ConvNeXt-Tiny", "mobilenet_v3_small": "MobileNetV3-Small",
}  # fmt: skip
_PEERS = {"torch": "eager", "torch-graph": "eager in a CUDA graph", "torch-reduce-overhead": "torch.compile"}


@figures("cnn_peers")
def cnn_peers(data: Any) -> dict[str, str]:
    head = [
        f"ms, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}", "batch",
        "engine", *_PEERS.values(), "it compiled for", "fastest peer over engine", "images a second, engine",
        "millijoules an image, engine and torch.compile", "measured",
    ]  # fmt: skip
    rows = []
    for row in data["rows"]:
        ran = contestants_of(row)
        compiled = ran["torch-reduce-overhead"]
        measured = row["contestants"].get("torch-reduce-overhead", compiled)  # the fastest run may have none
        joules = [each.get("joules_per_image") for each in (ran["engine"], measured)]
        energy = " and ".join("not measured" if each is None else f"{1e3 * each:.1f}" for each in joules)
        rows.append(
            [
                _NAMES[row["model"]], str(row["batch"]), f"{row['engine_ms']:.3f}",
                *(f"{ran[name]['median_ms']:.3f}" for name in _PEERS), f"{compiled['compile_seconds']:.0f} s",
                f"{row['speedup']:.2f}", f"{ran['engine']['images_per_second']:.0f}", energy,
                row.get("date", data["date"]),
            ]
        )  # fmt: skip
    autotuned = " and ".join(
        _autotuned(row, ran["torch-compile"]) for row in data["rows"] if "torch-compile" in (ran := contestants_of(row))
    )
    return {
        "cnn_peers": table(head, rows), "cnn_peers.autotune": autotuned,
        "cnn_peers.torch": ".".join(data["versions"]["torch"].split(".")[:2]),
    }  # fmt: skip


def _autotuned(row: Any, found: Any) -> str:
    """What max-autotune, the default mode of `bench --against torch-compile`, took and compiled for."""
    took = f"{found['median_ms']:.3f} ms after {found['compile_seconds']:.0f} s"
    return f"{_NAMES[row['model']]} at batch {row['batch']} takes {took}"
