"""What choosing kernels in the whole engine gains over choosing each alone, on a machine with the GPU.

    python benchmarks/gpu_whole_engine.py --work FOLDER [--model resnet50] [--batch 32,1]

In FOLDER, with a cache of its own: tunes each batch from nothing, builds the engine of the lock (`chosen`) and that of
the lock without its whole-engine choices (`alone`), and replays the two in turns. `tuned` is what the tuning said,
`engines` what the engines then took. Writes `results/gpu_whole_engine.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PAIRS = 100
TRIED = ("candidate", "status", "before", "after", "gain", "low", "high", "pairs", "kept")


def write_recipe(folder: Path, name: str, model: str, batch: int, target: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"bolt: 1\nname: {name}\nmodel: {{zoo: {model}, batch: {batch}}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        f"tuning: {{lock: {name}.lock}}\nverify: {{samples: 1}}\n"
    )
    return path


def bolt(folder: Path, *words: str) -> dict[str, Any]:
    """The last line of what bolt-build says in JSON. Ends the program where it fails."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bolt_build", *words, "--cache", "cache", "--format", "json"]
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    print(f"{' '.join(words)}: {time.monotonic() - started:.1f} s", flush=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"wall_seconds": round(time.monotonic() - started, 2)}


def without_engines(lock: Path, to: Path) -> None:
    """The lock with each problem's winner and nothing of whole engines, whose plans its covers may be."""
    from bolt_build.tuning.lock import Lock, load_lock, lock_text

    targets = tuple(replace(target, engines=(), covers=()) for target in load_lock(lock).targets)
    to.write_text(lock_text(Lock(targets)))


def in_turns(folder: Path, names: Sequence[str], batch: int, target: str) -> dict[str, Any]:
    """Milliseconds of a replay of each engine, and the part of the first's that the second saves: medians of pairs."""
    import numpy as np

    from bolt_build.bench.contestant import Effort, Setup
    from bolt_build.bench.device.cuda import CudaDevice
    from bolt_build.bench.peers.engine import LoadedEngine
    from bolt_build.runtime.loader import Engine

    device = CudaDevice()
    engines = []
    for name in names:
        built = folder / "generated" / name / target
        library = next(built.glob("lib*.so"))
        with Engine(library) as opened:
            random = np.random.RandomState(0)
            feeds = {port.name: random.standard_normal(port.shape) for port in opened.inputs(batch)}
        weights = next(built.glob("*.weights"))
        setup = Setup(
            "engine", "cuda", "fp16", batch, 0, "", (), str(library), str(weights), "", tuple(feeds), Effort()
        )  # fmt: skip
        engines.append(LoadedEngine(setup, feeds, device))

    def replay(engine: LoadedEngine) -> float:
        engine.run()
        return device.milliseconds(engine.run, engine.stream)

    for _ in range(20):
        for engine in engines:
            replay(engine)
    pairs = []
    for number in range(PAIRS):
        order = (0, 1) if number % 2 else (1, 0)
        found = {index: replay(engines[index]) for index in order}
        pairs.append((found[0], found[1]))
    low, middle, high = statistics.quantiles([(a - b) / a for a, b in pairs], n=4)
    return {
        "alone_ms": statistics.median(a for a, _ in pairs), "chosen_ms": statistics.median(b for _, b in pairs),
        "gain": middle, "gain_quartiles": [low, high], "pairs": PAIRS,
    }  # fmt: skip


def measured(folder: Path, model: str, batch: int, target: str) -> dict[str, Any]:
    """One batch: tuned, built twice, and both engines in turns."""
    name = f"{model}_b{batch}"
    recipe, other = (write_recipe(folder, each, model, batch, target) for each in (name, f"{name}_alone"))
    tuned = bolt(folder, "tune", recipe.name)
    without_engines(folder / f"{name}.lock", folder / f"{name}_alone.lock")
    (engine,) = tuned["engines"] or [None]
    built = [bolt(folder, "build", each.name, "--locked") for each in (other, recipe)]
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
    if arguments.out is None:
        print(record.write("gpu_whole_engine", result))
    else:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
