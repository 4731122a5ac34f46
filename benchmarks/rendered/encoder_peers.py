"""Engines of encoders beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table
from .contestants import contestants_of

NAMES = {
    "bert_base": "BERT-base, 128", "bert_base_40": "BERT-base, 40", "bert_base_384": "BERT-base, 384",
    "bert_large": "BERT-large, 384", "distilbert": "DistilBERT, 128", "vit_b16": "ViT-B/16",
    "clip_vision": "CLIP ViT-B/32, images", "whisper_tiny_encoder": "Whisper-tiny, encoder",
}  # fmt: skip
_PEERS = {
    "published": "eager", "published-graph": "eager in a CUDA graph", "published-compiled": "torch.compile",
    "published-frozen": "with frozen weights",
}  # fmt: skip


def _time(row: Any, name: str) -> str:
    if name in (ran := contestants_of(row)):
        return f"{ran[name]['median_ms']:.3f}"
    return "fails" if name in row["failed"] else "not measured"


def _dates(data: Any) -> str:
    """Of the first row and of the last that were measured."""
    dates = sorted({row.get("date", data["date"]) for row in data["rows"]})
    return dates[0] if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"


@figures("encoder_peers")
def encoder_peers(data: Any) -> dict[str, str]:
    head = [
        f"ms, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}", "batch",
        "engine", *_PEERS.values(), "fastest peer over engine", "sequences a second, run after run: engine",
        "fastest peer", "the engine over it",
    ]  # fmt: skip
    rows = []
    for row in data["rows"]:
        ran = contestants_of(row)
        peers = [_time(row, name) for name in _PEERS]
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        own = ran["engine"]["sustained_images_per_second"]
        loaded = [f"{own:.0f}", "", ""]
        if row["speedup"] is not None:
            known = (ran[name].get("sustained_images_per_second") for name in _PEERS if name in ran)
            other = max(each for each in known if each is not None)
            loaded[1:] = [f"{other:.0f}", f"{own / other:.2f}"]
        rows.append([NAMES[row["model"]], str(row["batch"]), f"{row['engine_ms']:.3f}", *peers, speedup, *loaded])
    summary, built = data["summary"]["all"], data["built"]
    left = [(name, batch) for name, _, batch in (each.rpartition("_b") for each in data["rows_missing"])]
    verified = sum(each["verified"] is True for each in built.values())
    return {
        "encoder_peers": table(head, rows), "encoder_peers.mean": f"{summary['geometric_mean']:.2f}",
        "encoder_peers.least": f"{summary['least']:.2f}", "encoder_peers.rows": str(summary["rows"]),
        "encoder_peers.date": _dates(data), "encoder_peers.verified": f"{verified} of {len(built)}",
        "encoder_peers.missing": ", ".join(f"{NAMES[name]} at batch {batch}" for name, batch in left) or "none",
    }  # fmt: skip
