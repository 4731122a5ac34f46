"""RepVGG as system-friendly models: each activation, and each size deepened with 1x1 convolutions, on one device.

The figures of Bolt's tables 4 to 6 in form: images a second, parameters, and what a variant costs against its base. All
engines are built for one batch, by default with kernels chosen by prediction (so that no model is better tuned than
another), or with `--tune` each with kernels measured for it. Engines are built several at a time, then timed by
`bolt-build explore`.

    python benchmarks/engines/explore_models.py FOLDER  # repvgg_a0, a1, b0 on an H200, batch 32
    python benchmarks/engines/explore_models.py FOLDER --persistent never --result explore_models_never
    python benchmarks/engines/explore_models.py FOLDER --target host --batch 1 --recipes repvgg_a0
    python benchmarks/engines/explore_models.py FOLDER --recipes repvgg_a0 --variants hardswish --seconds 1 --out FILE
    # what `bolt-build explore --format json` said elsewhere
    python benchmarks/engines/explore_models.py FOLDER --said FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.schema.load import load_recipe

RECIPES = ("repvgg_a0", "repvgg_a1", "repvgg_b0")
NOTEWORTHY = 0.08
"""Bolt has no activation that costs more."""


def write_recipes(arguments: argparse.Namespace) -> dict[str, Path]:
    """Recipes for one target and batch, by name, in the folder."""
    found = {}
    for name in arguments.recipes:
        path = arguments.folder / f"{name}.yaml"
        lock = f"{name}.lock" if arguments.tune else "null"
        base = os.path.relpath(ROOT / "recipes" / f"{name}.yaml", arguments.folder)
        path.write_text(
            f"bolt: 1\nextend: {base}\n"
            f"targets: {{{arguments.target}: {{batch: {arguments.batch}}}}}\n"
            f"policy: {{fusion: {{persistent: {arguments.persistent}}}}}\n"
            f"tuning: {{lock: {lock}}}\n"
        )
        if arguments.variants is not None:
            # What a recipe extends keeps its variants, so this one says all by itself.
            whole = yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text()) | yaml.safe_load(path.read_text())
            whole["variants"] = {key: each for key, each in whole["variants"].items() if key in arguments.variants}
            path.write_text(yaml.safe_dump({key: each for key, each in whole.items() if key != "extend"}))
        found[name] = path
    return found


def bolt(arguments: argparse.Namespace, *words: str) -> subprocess.CompletedProcess[str]:
    """bolt-build in the folder, for the target alone."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bolt_build", *words, "--target", arguments.target]
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=arguments.folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )


def prepare(arguments: argparse.Namespace, paths: dict[str, Path]) -> None:
    """Tunes every model where that is asked for, and builds all of them, several at a time."""
    models = [
        f"{path.name}{variant}"
        for path in paths.values()
        for variant in ("", *(f"@{each.name}" for each in load_recipe(path).variants))
    ]
    for model in models if arguments.tune else ():
        done = bolt(arguments, "tune", model, "-q")
        if done.returncode != 0:
            sys.exit(f"tuning {model} ended with {done.returncode}: {done.stdout[-2000:]}")
    jobs = max(1, arguments.jobs // arguments.builds)
    with ThreadPoolExecutor(arguments.builds) as pool:
        for model, done in zip(
            models, pool.map(lambda m: bolt(arguments, "build", m, "-q", "-j", str(jobs)), models), strict=True
        ):
            print(f"{model}: exit code {done.returncode}", file=sys.stderr, flush=True)


def summary(exploration: dict[str, Any], paths: dict[str, Path]) -> dict[str, Any]:
    """Of each recipe the spread over its activations, and what deepening costs, alone and on average."""
    variants = {f"{name}@{each.name}": each for name, path in paths.items() for each in load_recipe(path).variants}
    swapped, deepened = {}, {}
    for row in exploration["rows"]:
        variant = variants.get(row["model"])
        if variant is None or row["cost"] is None:
            continue
        if variant.deepen is None and variant.activation is not None:
            swapped[row["model"]] = row["cost"]
        if variant.deepen is not None and variant.activation is None:
            deepened[row["model"]] = row["cost"]
    return {
        "activation_costs": swapped,
        "activations_over_8_percent": [model for model, cost in swapped.items() if cost > NOTEWORTHY],
        "deepening_costs": deepened,
        "mean_deepening_cost": mean(deepened.values()) if deepened else None,
    }


def taken(arguments: argparse.Namespace) -> int:
    """The result of an `explore` that ran by itself, on another machine say: paths of models left out."""
    said = json.loads(arguments.said.read_text().splitlines()[-1])
    (exploration,) = said["explorations"]
    for row in exploration["rows"]:
        del row["onnx"]
    result = record.environment() | {
        "device": exploration["device"], "command": "python benchmarks/engines/explore_models.py FOLDER --said FILE",
        "exit_code": said["exit_code"], "exploration": exploration,
    }  # fmt: skip
    print(record.write(arguments.result, result, arguments.out))
    return int(said["exit_code"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="of each recipe these alone")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--persistent", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--tune", action="store_true", help="measure the kernels of every model first")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--said", type=Path, metavar="FILE", help="build and time nothing: what explore said")
    parser.add_argument("--result", default="explore_models")
    parser.add_argument("--out", type=Path, help="write here instead of results/")
    arguments = parser.parse_args()
    if arguments.said is not None:
        return taken(arguments)
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    paths = write_recipes(arguments)
    prepare(arguments, paths)
    words = ("--seconds", str(arguments.seconds), "--rounds", str(arguments.rounds), "--format", "json")
    done = bolt(arguments, "explore", *(path.name for path in paths.values()), *words)
    said = json.loads(done.stdout.splitlines()[-1])
    (exploration,) = said["explorations"]
    result = record.environment("onnxruntime", "onnx", "nvidia-cutlass") | {
        "persistent": arguments.persistent, "tuned": arguments.tune, "exit_code": said["exit_code"],
        "summary": summary(exploration, paths), "exploration": exploration,
    }  # fmt: skip
    for row in exploration["rows"]:
        cost = "" if row["cost"] is None else f"  cost {row['cost']:6.1%}"
        print(f"{row['model']:28} {row['images_per_second']:10.1f} images/s  {row['parameters'] / 1e6:6.2f} M{cost}")
    print(json.dumps(result["summary"], indent=1))
    print(record.write(arguments.result, result, arguments.out))
    return int(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
