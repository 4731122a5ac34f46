"""A table by layer of engines that `gpu_checks.py` has timed: each step alone, its share of the roofline, its kernel.
And the sum of the steps against the whole engine, which is what launches and gaps cost (below 0: launches overlap).

Needs no GPU, but the checkout whose recipes and locks the engines were built from.

    python benchmarks/engines/layers.py gpu_checks.json recipes/resnet50.yaml recipes/vgg16.yaml [--batch 32]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record


def explanation(recipe: Path, target: str) -> dict[str, Any]:
    """What `bolt-build explain` says of a recipe's engine."""
    command = [sys.executable, "-m", "bolt_build", "explain", str(recipe), "--target", target, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def table(timed: dict[str, Any], explained: dict[str, Any]) -> dict[str, Any]:
    """One batch: microseconds of each step alone, of its bound, and what they add up to."""
    layers = {layer["name"]: layer for layer in explained["layers"]}
    rows = []
    for step in timed["steps"]:
        layer = layers.get(step["step"])
        roofline = (layer or {}).get("roofline") or {}
        alone = 1e3 * step["ms"]
        bound = roofline.get("bound")
        kernel = " ".join([step["kernel"], *(f"{name}={value}" for name, value in step["parameters"].items())])
        rows.append(
            {
                "layer": step["step"], "kernel": kernel,
                "what": (layer or {}).get("words", ""), "alone_us": alone, "bound_us": bound, "by": roofline.get("by"),
                "share": None if bound is None else bound / alone,
            }
        )  # fmt: skip
    alone = sum(row["alone_us"] for row in rows)
    replay = 1e3 * timed["replay_ms"]
    bounds = sum(row["bound_us"] or 0.0 for row in rows)
    return {
        "rows": rows, "alone_us": alone, "bound_us": bounds, "engine_us": replay, "between_us": replay - alone,
        "share": bounds / replay,
    }  # fmt: skip


def show(name: str, batch: str, found: dict[str, Any]) -> None:
    print(f"\n{name}, batch {batch}: engine {found['engine_us']:.1f} us; its steps alone {found['alone_us']:.1f},")
    print(
        f"between them {found['between_us']:+.1f}; bounds {found['bound_us']:.1f}, {found['share']:.0%} of the engine"
    )
    for row in found["rows"]:
        share = "" if row["share"] is None else f"{row['share']:4.0%} {row['by']}"
        print(f"{row['alone_us']:9.2f} us {share:16} {row['layer']:34} {row['kernel']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timed", type=Path, help="what gpu_checks.py wrote")
    parser.add_argument("recipes", type=Path, nargs="+")
    parser.add_argument("--batch", action="append", help="only this batch (repeatable)")
    parser.add_argument("--target", default="h200")
    arguments = parser.parse_args()
    timed = json.loads(arguments.timed.read_text(encoding="utf-8"))
    result: dict[str, Any] = {key: timed[key] for key in ("gpu", "driver", "date") if key in timed}
    for recipe in arguments.recipes:
        explained = explanation(recipe.resolve(), arguments.target)
        batches = {str(batch["batch"]): batch for batch in explained["batches"]}
        times = timed["engines"][f"{recipe.stem}/{arguments.target}"]["time"]
        for batch, each in times.items():
            if arguments.batch is None or batch in arguments.batch:
                found = table(each, batches[batch])
                result.setdefault(recipe.stem, {})[batch] = found
                show(recipe.stem, batch, found)
    record.write("layers", {**record.environment(), **result})


if __name__ == "__main__":
    main()
