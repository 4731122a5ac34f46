"""What choosing kernels in the whole engine gains over choosing each alone, on a machine with the GPU.

    python benchmarks/tuning/gpu_whole_engine.py --work FOLDER [--model resnet50] [--batch 32,1]

In FOLDER, with a cache of its own: tunes each batch from nothing, builds the engine of the lock (`chosen`) and that of
the lock without its whole-engine choices (`alone`), and replays the two in turns. `tuned` is what the tuning said,
`engines` what the engines then took. Writes `results/gpu_whole_engine.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import bolt
from bolt_build.bench.replays import Entrant, measured_in_turns

PAIRS = 100
CACHE = ("--cache", "cache")
TRIED = ("candidate", "status", "before", "after", "gain", "low", "high", "pairs", "kept")


def write_recipe(folder: Path, name: str, model: str, batch: int, target: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"bolt: 1\nname: {name}\nmodel: {{zoo: {model}, batch: {batch}}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        f"tuning: {{lock: {name}.lock}}\nverify: {{samples: 1}}\n"
    )
    return path


def without_engines(lock: Path, to: Path) -> None:
    """The lock with each problem's winner and nothing of whole engines, whose plans its covers may be."""
    from bolt_build.lockfile.reading import Lock, load_lock, lock_text

    targets = tuple(replace(target, engines=(), covers=()) for target in load_lock(lock).targets)
    to.write_text(lock_text(Lock(targets)))


def in_turns(folder: Path, names: Sequence[str], batch: int, target: str) -> dict[str, Any]:
    """Milliseconds of a replay of each engine, and the part of the first's that the second saves: medians of pairs."""
    engines = [Entrant(name, str(folder / "generated" / name / target)) for name in names]
    turns = measured_in_turns(engines, batch, rounds=PAIRS)
    alone, chosen = names
    left = turns.ratio(chosen, alone)
    return {
        "alone_ms": turns.median(alone), "chosen_ms": turns.median(chosen), "gain": 1 - left["median"],
        "gain_quartiles": [1 - left["high"], 1 - left["low"]], "pairs": PAIRS,
    }  # fmt: skip


def measured(folder: Path, model: str, batch: int, target: str) -> dict[str, Any]:
    """One batch: tuned, built twice, and both engines in turns."""
    name = f"{model}_b{batch}"
    recipe, other = (write_recipe(folder, each, model, batch, target) for each in (name, f"{name}_alone"))
    tuned = bolt(folder, "tune", recipe.name, *CACHE)
    without_engines(folder / f"{name}.lock", folder / f"{name}_alone.lock")
    (engine,) = tuned["engines"] or [None]
    # A lock without covers is not the whole of a plan.
    built = [bolt(folder, "build", *words, *CACHE) for words in ((other.name,), (recipe.name, "--locked"))]
    found = in_turns(folder, (f"{name}_alone", name), batch, target)
    problems = {problem["problem"]: problem["what"] for problem in tuned["problems"]}
    winners = {problem["problem"]: problem for problem in tuned["problems"]}
    swaps = [] if engine is None else engine["swaps"]
    result = {
        "model": model, "batch": batch, "tune_wall_seconds": tuned["wall_seconds"], "tune_seconds": tuned["seconds"],
        "diagnostics": tuned["diagnostics"],
        "tuned": engine and {key: value for key, value in engine.items() if key not in ("swaps", "tried", "plans")},
        "plans": [] if engine is None else engine["plans"],
        "swaps": [
            {
                "what": problems[swap["problem"]], "kernel": swap["candidate"], "alone_us": swap["alone"],
                "in_place_of": winners[swap["problem"]]["winner"]["candidate"],
                "which_takes_us": winners[swap["problem"]]["median"],
            }
            for swap in swaps
        ],
        "tried": [] if engine is None else [
            {"what": problems[swap["problem"]], **{key: swap[key] for key in TRIED}} for swap in engine["tried"]
        ],
        "engines": found, "verified": [each["targets"][0]["verified"] for each in built],
    }  # fmt: skip
    print(json.dumps({key: value for key, value in result.items() if key != "tried"}, indent=1), flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    parser.add_argument("--model", default="resnet50", help="a model of the zoo")
    parser.add_argument("--batch", default="32", help="batches between commas")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/gpu_whole_engine.json")
    arguments = parser.parse_args()
    folder = arguments.work.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    batches = [int(word) for word in arguments.batch.split(",")]
    rows = [measured(folder, arguments.model, batch, arguments.target) for batch in batches]
    result = {
        **record.environment("nvidia-cutlass", "scons"), "target": arguments.target, "dtype": "fp16",
        "accumulator": "fp32", "rows": rows,
    }  # fmt: skip
    print(record.write("gpu_whole_engine", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
