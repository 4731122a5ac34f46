"""How long a first tuning and the build behind it take, from nothing, and its kernels beside those of an earlier one.

    python benchmarks/tuning/cold_tuning.py --work FOLDER

In FOLDER, with a cache of its own: tunes ResNet-50 at batch 32, and builds and verifies the engine. Winners are
compared with those of `results/gpu_tuning.json`, another run's. Writes `results/gpu_tuning_cold.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from math import exp, log
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import CommandFailed, bolt

MODEL, BATCH = "resnet50", 32
TORCH_COMPILE_SECONDS = (145.0, 185.0)
"""What torch.compile's max-autotune took on the same kind of machine in runs of before: the least at batch 1, and what
`against_peers.py` expects at batch 32."""


def write_recipe(folder: Path, target: str) -> Path:
    path = folder / "cold.yaml"
    path.write_text(
        f"bolt: 1\nname: cold\nmodel: {{zoo: {MODEL}, batch: {BATCH}}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        f"tuning: {{lock: cold.lock}}\nverify: {{samples: 1}}\n"
    )
    return path


def beside(tuned: dict[str, Any], earlier: Path) -> dict[str, Any]:
    """Medians of the winners, microseconds, beside those of an earlier tuning, where both have the problem."""
    before = {each["what"]: each for each in json.loads(earlier.read_text())["winners"]}
    rows = []
    for problem in tuned["problems"]:
        known = before.get(problem["what"])
        if known is None or problem["winner"] is None or known["median"] is None:
            continue
        rows.append(
            {
                "what": problem["what"], "winner": problem["winner"]["candidate"], "median": problem["median"],
                "winner_before": known["winner"], "median_before": known["median"],
                "ratio": round(problem["median"] / known["median"], 4),
            }
        )  # fmt: skip
    rows.sort(key=lambda row: -row["ratio"])
    ratios = [row["ratio"] for row in rows if row["winner"].startswith("cutlass")]
    mean = round(exp(sum(map(log, ratios)) / len(ratios)), 4) if ratios else None
    return {"earlier": earlier.name, "cutlass_problems": len(ratios), "geometric_mean_of_ratios": mean, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/gpu_tuning_cold.json")
    arguments = parser.parse_args()
    folder = arguments.work.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    recipe = write_recipe(folder, arguments.target)
    try:
        tuned = bolt(folder, "tune", recipe.name, "--cache", "cache")
        built = bolt(folder, "build", recipe.name, "--cache", "cache")
    except CommandFailed as error:
        sys.exit(str(error))
    both = tuned["wall_seconds"] + built["wall_seconds"]
    result = {
        **record.environment("nvidia-cutlass", "scons", "torch"),
        "target": arguments.target, "model": MODEL, "batch": BATCH,
        "tune": {key: tuned[key] for key in ("wall_seconds", "seconds", "compile", "measured_now", "statuses")}
        | {"problems": len(tuned["problems"]), "engines": tuned["engines"]},
        "build": {"wall_seconds": built["wall_seconds"]},
        "both_seconds": round(both, 2), "torch_compile_seconds": list(TORCH_COMPILE_SECONDS),
        "winners": beside(tuned, record.RESULTS / "gpu_tuning.json"),
    }  # fmt: skip
    print(record.write("gpu_tuning_cold", result, arguments.out))
    shown = {key: value for key, value in result["winners"].items() if key != "rows"}
    print(json.dumps({"tune": result["tune"]["seconds"], "both_seconds": result["both_seconds"], **shown}, indent=1))
    for row in result["winners"]["rows"]:
        times = f"{row['ratio']:.3f}  {row['median']:8.2f}  before {row['median_before']:8.2f}"
        print(f"{times}  {row['winner']}  {row['what'][:90]}")
    return 0 if both <= TORCH_COMPILE_SECONDS[0] else 1


if __name__ == "__main__":
    sys.exit(main())
