"""What encoders' layers take in the vendor's kernels alone."""

from __future__ import annotations

from typing import Any

from . import figures, table

_NAMES = {
    "bert_base_40_b32": "BERT-base, 40", "bert_base_b32": "BERT-base, 128", "bert_base_384_b32": "BERT-base, 384",
    "bert_large_b32": "BERT-large, 384", "vit_b16_b32": "ViT-B/16",
}  # fmt: skip


@figures("vendor_layers")
def vendor_layers(data: Any) -> dict[str, str]:
    gpu = data["gpu"].removeprefix("NVIDIA ")
    head = [
        f"ms, {data['dtype']}, {data['accumulator']} accumulation, batch 32, {gpu}", "kernels alone, added up",
        "all layers, first runs", "run after run", "watts then", "run after run over alone",
    ]  # fmt: skip
    rows = [
        [_NAMES[row["name"]], f"{row['apart_ms']:.3f}", f"{row['together_ms']:.3f}", f"{row['sustained_ms']:.3f}",
         "" if row["watts"] is None else f"{row['watts']:.0f}", f"{row['sustained_ms'] / row['apart_ms']:.2f}"]
        for row in data["rows"]
    ]  # fmt: skip
    return {"vendor_layers": table(head, rows), "vendor_layers.date": data["date"]}
