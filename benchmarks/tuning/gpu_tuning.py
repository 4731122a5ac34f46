"""How long tuning takes on a machine with the GPU, what it reuses, and whether it finds the same again.

    python benchmarks/tuning/gpu_tuning.py --work FOLDER

In FOLDER, with a cache of its own: ResNet-50 at batch 32 from nothing, the same again with everything compiled, the
same chosen from the records alone, and Wide ResNet-50-2 at batch 32, which shares kernels with it. Writes
`results/gpu_tuning.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

NEAR = 1.01
MODELS = ("resnet50", "wide_resnet50_2")


def write_recipe(folder: Path, model: str, target: str) -> Path:
    path = folder / f"{model}_b32.yaml"
    path.write_text(
        f"bolt: 1\nname: {model}_b32\nmodel: {{zoo: {model}, batch: 32}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        f"tuning: {{lock: {model}_b32.lock}}\n"
    )
    return path


def tune(folder: Path, recipe: Path, *options: str) -> dict[str, Any]:
    """The tuning's own result, and how long its process took. Ends the program where it fails."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [
        sys.executable,
        "-m",
        "bolt_build",
        "tune",
        recipe.name,
        "--cache",
        "cache",
        "--format",
        "json",
        *options,
    ]
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{recipe.stem} {' '.join(options) or 'measured'}: {seconds:.1f} s, {result['seconds']}", flush=True)
    return result | {"wall_seconds": round(seconds, 2)}


def figures(result: dict[str, Any]) -> dict[str, Any]:
    return {
        key: result[key] for key in ("wall_seconds", "seconds", "compile", "measured_now", "statuses")
    } | {"problems": len(result["problems"])}  # fmt: skip


def kernels(folder: Path, model: str, target: str) -> set[str]:
    """Names of the kernel units of a tuning: equal only for equal text."""
    return {path.name for path in (folder / "generated" / f"{model}_b32").glob(f"{target}*/src/**/k_*.cu")}


def compare(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Winners of two tunings: equal, near (another kernel, within 1 % in the first tuning's times), or different."""
    counts = {"equal": 0, "near": 0, "different": 0}
    rows = []
    for a, b in zip(one["problems"], other["problems"], strict=True):
        if a["winner"] == b["winner"]:
            counts["equal"] += 1
            continue
        times = {trial["digest"]: trial["median"] for trial in a["trials"]}
        there = None if b["winner"] is None else times.get(b["winner"]["digest"])
        kind = "near" if there is not None and there <= NEAR * a["median"] else "different"
        counts[kind] += 1
        rows.append(
            {"problem": a["what"], "first": short(a), "second": short(b), "second_in_first": there, "kind": kind}
        )
    return {"counts": counts, "rows": rows}


def short(problem: dict[str, Any]) -> dict[str, Any]:
    winner, other = problem["winner"], problem["runner_up"]
    return {
        "winner": winner and winner["candidate"], "median": problem["median"], "predicted": problem["predicted"],
        "runner_up": other and other["candidate"], "runner_up_median": problem["runner_up_median"],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="an empty folder")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/gpu_tuning.json")
    arguments = parser.parse_args()
    folder = arguments.work.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    recipes = {model: write_recipe(folder, model, arguments.target) for model in MODELS}
    recipe, lock = recipes["resnet50"], folder / "resnet50_b32.lock"

    nothing = tune(folder, recipe)
    first = lock.read_bytes()
    tune(folder, recipe, "--from-records")
    reproduced = lock.read_bytes() == first
    again = tune(folder, recipe, "--remeasure")
    other = tune(folder, recipes["wide_resnet50_2"])
    compiled = {model: kernels(folder, model, arguments.target) for model in MODELS}
    shared = compiled["wide_resnet50_2"] & compiled["resnet50"]
    result = {
        **record.environment("nvidia-cutlass", "scons"),
        "target": arguments.target, "batch": 32, "dtype": "fp16", "accumulator": "fp32",
        "from_nothing": figures(nothing), "again_with_warm_cache": figures(again),
        "records_reproduce_the_lock": reproduced, "two_tunings": compare(nothing, again),
        "wide_resnet50_2_afterwards": figures(other)
        | {"kernels": len(compiled["wide_resnet50_2"]), "kernels_shared": len(shared)},
        "winners": [{"what": problem["what"], **short(problem)} for problem in nothing["problems"]],
    }  # fmt: skip
    print(record.write("gpu_tuning", result, arguments.out))
    print(json.dumps({key: value for key, value in result.items() if key != "winners"}, indent=1)[:4000])
    return 0 if reproduced else 1


if __name__ == "__main__":
    sys.exit(main())
