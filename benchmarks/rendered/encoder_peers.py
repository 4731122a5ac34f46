"""Engines of encoders beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table

_NAMES = {
    "bert_base": "BERT-base, 128", "bert_base_40": "BERT-base, 40", "bert_base_384": "BERT-base, 384",
    "bert_large": "BERT-large, 384", "distilbert": "DistilBERT, 128", "vit_b16": "ViT-B/16",
    "clip_vision": "CLIP ViT-B/32, images", "whisper_tiny_encoder": "Whisper-tiny, encoder",
}  # fmt: skip
_PEERS = {
    "published": "eager", "published-graph": "eager in a CUDA graph", "published-compiled": "torch.compile",
    "published-frozen": "with frozen weights",
}  # fmt: skip


@figures("encoder_peers")
def encoder_peers(data: Any) -> dict[str, str]:
    head = [
        f"ms, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}", "batch",
        "engine", *_PEERS.values(), "fastest peer over engine", "sequences a second, engine",
        "millijoules a sequence, engine and fastest peer",
    ]  # fmt: skip
    rows = []
    for row in data["rows"]:
        ran, best = row["contestants"], row["best_peer"]
        measured = [ran["engine"], *([ran[best]] if best in ran else [])]
        known = [each["joules_per_image"] for each in measured if each["joules_per_image"] is not None]
        energy = " and ".join(f"{1e3 * each:.1f}" for each in known)
        peers = [f"{ran[name]['median_ms']:.3f}" if name in ran else "fails" for name in _PEERS]
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        per_second = f"{ran['engine']['images_per_second']:.0f}"
        rows.append(
            [_NAMES[row["model"]], str(row["batch"]), f"{row['engine_ms']:.3f}", *peers, speedup, per_second, energy]
        )
    summary = data["summary"]["all"]
    return {
        "encoder_peers": table(head, rows), "encoder_peers.mean": f"{summary['geometric_mean']:.2f}",
        "encoder_peers.least": f"{summary['least']:.2f}",
    }  # fmt: skip
