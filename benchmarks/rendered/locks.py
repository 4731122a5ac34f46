"""What choosing kernels in the whole engine gained, as the recipes' locks have it."""

from __future__ import annotations

from pathlib import Path

import yaml

from . import figures, percent, table

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@figures()
def locks() -> dict[str, str]:
    rows = []
    for path in sorted(RECIPES.glob("*.lock")):
        lock = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        for target, entry in lock["targets"].items():
            for engine in entry.get("engines", ()):
                times = (f"{engine['before'] / 1000:.3f}", f"{engine['after'] / 1000:.3f}")
                tried = (str(engine["tried"]), str(len(engine["swaps"])))
                rows.append([path.stem, target, str(engine["batch"]), *times, percent(engine["gain"], 1), *tried])
    head = ["lock", "target", "batch", "ms, kernels chosen alone", "ms, chosen in the engine", "saved", "swaps tried"]
    return {"locks": table([*head, "kept"], rows)}
