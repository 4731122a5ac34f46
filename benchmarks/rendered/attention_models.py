"""Models with attention, verified on a GPU in both half precisions."""

from __future__ import annotations

from typing import Any

from . import figures

_WEIGHTS = {"random": "weights at random", "outliers": "outliers"}


@figures("attention_models")
def attention_models(data: Any) -> dict[str, str]:
    engines = [(row, engine) for row in data["rows"] for engine in row.get("engines", ()) if "ok" in engine]
    departs = [
        f"{row['model'].partition('.')[2]} in {engine['precision']} with {_WEIGHTS[engine['weights']]}"
        + (f", where `verify --widen` names {len(engine['widen'])} layers" if engine.get("widen") else "")
        for row, engine in engines if not engine["ok"]
    ]  # fmt: skip
    return {
        "attention_models.models": str(data["models"]),
        "attention_models.engines": str(data["engines"]),
        "attention_models.right": str(data["right"]),
        "attention_models.departs": "; ".join(departs) or "none",
        "attention_models.gpu": data["gpu"].removeprefix("NVIDIA "),
    }
