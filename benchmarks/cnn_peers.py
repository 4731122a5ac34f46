"""Engines of CNNs beside what a PyTorch user would run, on one GPU, as `bolt-build bench --against` measures them.

    python benchmarks/cnn_peers.py FOLDER build                 # engines that read what the peers read, from the locks
    python benchmarks/cnn_peers.py FOLDER measure               # again until it says that no row is left
    python benchmarks/cnn_peers.py FOLDER close                 # anywhere: writes results/cnn_peers.json
    python benchmarks/cnn_peers.py FOLDER build --table dense_peers     # and so on: the README's models

The first table has CNNs with grouped, depthwise and dense blocks, the other those whose convolutions are dense.

A row is a model and a batch. Both sides read fp16 channels-last images, compute in fp16 with fp32 sums, and have the
same seeded weights: peers are the recipe's ONNX model in torch (`bolt-build bench --against`), run in turns with the
engine on the same inputs, and their outputs are compared. `measure` begins no row that may not be done within `--limit`
seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record
from against_peers import load
from bolt_command import ROOT, build_one

sys.path.insert(0, str(ROOT))
from bolt_build.bench.comparison import LEAST_COSINE, MOST_RMS

OVERHEAD, AUTOTUNE = "torch-reduce-overhead", "torch-compile"
PEERS = ("torch", "torch-graph", OVERHEAD)
SECONDS, ROUNDS = 0.5, 3
"""How long a contestant runs in a turn, and its turns."""


@dataclass(frozen=True)
class Row:
    """`wanted`: the engine's milliseconds at most, where an aim was set. `autotune`: max-autotune is a peer too."""

    model: str
    batch: int
    wanted: float | None = None
    autotune: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}_b{self.batch}"

    @property
    def peers(self) -> tuple[str, ...]:
        return (*PEERS, AUTOTUNE) if self.autotune else PEERS

    @property
    def limit(self) -> float:
        """Seconds that it may take: peers compile."""
        return 400 if self.autotune else 75


ROWS = (
    Row("mobilenet_v2", 32, 0.42), Row("efficientnet_b0", 32, 0.70), Row("resnext50_32x4d", 32, 0.95),
    Row("densenet121", 32, 1.25), Row("convnext_tiny", 32, 1.25), Row("mobilenet_v3_small", 32),
    Row("mobilenet_v2", 1), Row("efficientnet_b0", 1), Row("resnext50_32x4d", 1), Row("densenet121", 1),
    Row("convnext_tiny", 1), Row("mobilenet_v3_small", 1),
)  # fmt: skip

DENSE = (
    Row("resnet50", 1, autotune=True), Row("resnet50", 32, autotune=True), Row("resnet50", 128, autotune=True),
    Row("resnet18", 32, autotune=True), Row("vgg16", 32, autotune=True), Row("repvgg_a0", 32, autotune=True),
)  # fmt: skip
TABLES = {"cnn_peers": ROWS, "dense_peers": DENSE}


def recipe_of(folder: Path, model: str, rows: Sequence[Row], target: str) -> Path:
    """`folder`/<model>.yaml: the bundled recipe with its lock, for the rows' batches, reading what the peers read."""
    path = folder / f"{model}.yaml"
    base, lock = (os.path.relpath(ROOT / "recipes" / f"{model}.{kind}", folder) for kind in ("yaml", "lock"))
    kept = lock if (folder / lock).is_file() else "null"
    batches = sorted({row.batch for row in rows if row.model == model})
    path.write_text(
        f"bolt: 1\nextend: {base}\nname: {model}\ntargets: {{{target}: {{batch: {batches}}}}}\n"
        f"engine: {{io: {{dtype: fp16, layout: channels_last}}}}\ntuning: {{lock: {kept}}}\nverify: {{samples: 1}}\n"
    )
    return path


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Every engine of the rows, some at a time; what became of each in `engines.json`."""
    folder: Path = arguments.folder
    models = tuple(dict.fromkeys(row.model for row in rows))
    words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // arguments.builds))]
    if arguments.cache is not None:
        words += ["--cache", str(arguments.cache.resolve())]

    def made_of(model: str) -> dict[str, Any]:
        return build_one(folder, recipe_of(folder, model, rows, arguments.target).name, *words)

    with ThreadPoolExecutor(arguments.builds) as pool:
        made = dict(zip(models, pool.map(made_of, models), strict=True))
    record.save(folder / "engines.json", (load(folder / "engines.json") or {}) | made)
    for model, each in made.items():
        print(f"{model}: {each.get('failed') or each}", flush=True)
    return 1 if any("failed" in each for each in made.values()) else 0


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The rows that are not measured yet, as far as the time goes."""
    started, folder = time.monotonic(), arguments.folder
    for row in rows:
        path = folder / f"row_{row.name}.json"
        left = arguments.limit - (time.monotonic() - started)
        if path.is_file() or left < row.limit:
            continue
        words = [f"{row.model}.yaml", "--batch", str(row.batch), "--against", ",".join(row.peers)]
        words += ["--seconds", str(SECONDS), "--rounds", str(ROUNDS), "--target", arguments.target]
        found = bench(folder, *words)
        if found is None:
            continue
        record.save(path, {"environment": record.environment("torch"), "bench": found})
        print(json.dumps(line(row, found)), flush=True)
    missing = [row.name for row in rows if not (folder / f"row_{row.name}.json").is_file()]
    print(f"rows left: {', '.join(missing) or 'none'}", flush=True)
    return 0


def bench(folder: Path, *words: str) -> dict[str, Any] | None:
    """What `bolt-build bench` found, None where it found nothing. Peers that fail or depart are part of it."""
    command = [sys.executable, "-m", "bolt_build", "bench", *words, "--format", "json"]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        (found,) = json.loads(done.stdout)
    except ValueError:
        print(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}", flush=True)
        return None
    return dict(found)


def line(row: Row, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table. `speedup`: the fastest peer's time over the engine's."""
    kept = (
        "median_ms", "images_per_second", "sustained_images_per_second", "joules_per_image", "compile_seconds", "form",
        "library",
    )  # fmt: skip
    ran = {each["name"]: each for each in found["results"] if "median_ms" in each}
    failed = {each["name"]: each["reason"] for each in found["results"] if "median_ms" not in each}
    peers = [name for name in ran if name != "engine"]
    engine = ran.get("engine", {}).get("median_ms")
    best = min(peers, key=lambda name: ran[name]["median_ms"], default=None)
    speedup = None if best is None or engine is None else ran[best]["median_ms"] / engine
    return {
        "model": row.model, "batch": row.batch, "wanted_ms": row.wanted, "engine_ms": engine,
        "reached": None if row.wanted is None or engine is None else engine <= row.wanted,
        "best_peer": best, "speedup": speedup, "failed": failed,
        "departs": [name for name in peers if ran[name].get("wrong") or not all(map(agrees, ran[name]["agreement"]))],
        "contestants": {name: {key: each.get(key) for key in kept} for name, each in ran.items()},
    }  # fmt: skip


def agrees(output: Mapping[str, Any]) -> bool:
    """As `bench` judges it: 16-bit arithmetic alone stays well within."""
    return output["cosine"] >= LEAST_COSINE and output["rms"] <= MOST_RMS and not output["not_finite"]


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The table of all rows that are measured, with the geometric mean of each batch's."""
    found = {row: load(arguments.folder / f"row_{row.name}.json") for row in rows}
    first = next(each for each in found.values() if each is not None)
    before = load(record.RESULTS / f"{arguments.table}.json") if arguments.keep else None
    lines = []
    for row, each in found.items():
        if each is not None:
            lines.append(line(row, each["bench"]) | {"date": each["environment"]["date"]})
        elif before is not None:
            kept = [old for old in before["rows"] if (old["model"], old["batch"]) == (row.model, row.batch)]
            lines += [{"date": before["date"], **old} for old in kept]
    missing = [row.name for row in rows if (row.model, row.batch) not in {(r["model"], r["batch"]) for r in lines}]
    engines = load(arguments.folder / "engines.json") or {}
    result = first["environment"] | {
        "gpu": first["bench"]["device"], "precision": first["bench"]["precision"], "accumulator": "fp32",
        "summary": {"all": summary(lines)} | {
            f"b{batch}": summary([each for each in lines if each["batch"] == batch])
            for batch in sorted({each["batch"] for each in lines})
        },
        "rows_missing": missing,
        "built": {name: {key: each.get(key) for key in ("verified", "failed")} for name, each in engines.items()},
        "rows": lines,
    }  # fmt: skip
    print(json.dumps(result["summary"], indent=1))
    print(record.write(arguments.table, result, arguments.out))
    return 1 if result["rows_missing"] else 0


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ratios of the fastest peer's time to the engine's: their geometric mean, and the least row."""
    ratios = {f"{each['model']}_b{each['batch']}": each["speedup"] for each in lines if each["speedup"] is not None}
    if not ratios:
        return {}
    least = min(ratios, key=lambda name: ratios[name])
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    return {"geometric_mean": mean, "least": ratios[least], "least_row": least, "rows": len(ratios)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("build", "measure", "close"))
    parser.add_argument("--table", choices=tuple(TABLES), default="cnn_peers")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these, resnet50_b32 say")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--limit", type=float, default=570, help="seconds of one `measure`")
    parser.add_argument("--keep", action="store_true", help="keep rows of the result before that FOLDER has not")
    parser.add_argument("--out", type=Path, help="write here instead of results/")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in TABLES[arguments.table] if arguments.rows is None or row.name in arguments.rows]
    return {"build": build, "measure": measure, "close": close}[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())
