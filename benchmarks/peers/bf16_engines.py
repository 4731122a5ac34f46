"""Engines in bf16 beside the same in fp16, on one GPU: verified layer by layer there, and timed.

    python benchmarks/peers/bf16_engines.py FOLDER build              # needs nvcc, no GPU
    python benchmarks/peers/bf16_engines.py FOLDER measure            # on the GPU: writes FOLDER/bf16_engines.json
    python benchmarks/peers/bf16_engines.py FOLDER close              # anywhere: writes results/bf16_engines.json

A row is a bundled recipe at batch 32, its kernels chosen by prediction: in fp16, in bf16, and in bf16 with some layers
kept in fp32. `measure` runs the recipes' verification and `bolt-build bench`; a row that departs is part of the result.
`close --head FILE` is for a FOLDER/bf16_engines.json that does not name its GPU: a row of `peer_rows.py` from that
machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.bolt_command import build_one
from benchmarks.peers.against_peers import load

BATCH = 32
SECONDS = 1.0


@dataclass(frozen=True)
class Row:
    """`wide`: a glob of the layers that the last form keeps in fp32; a convolution or product among them."""

    model: str
    wide: str

    def forms(self) -> dict[str, str]:
        """By the name of a form, its precision and what follows it in the recipe."""
        layers = f'layers: {{"{self.wide}": {{precision: fp32}}}}\n'
        return {"fp16": "", "bf16": "", "bf16_wide": layers}


ROWS = (
    Row("resnet50", "/layer4/1/conv2/*"), Row("mobilenet_v2", "/features/8/conv/2/*"),
    Row("bert_base", "/encoder/layer/11/*"),
)  # fmt: skip


def recipes_of(folder: Path, row: Row, target: str) -> list[Path]:
    """The recipes of a row's forms, in `folder`."""
    base, made = os.path.relpath(ROOT / "recipes" / f"{row.model}.yaml", folder), []
    for form, layers in row.forms().items():
        path = folder / f"{row.model}_{form}.yaml"
        precision = form.partition("_")[0]
        path.write_text(
            f"bolt: 1\nextend: {base}\nname: {path.stem}\n"
            f"targets: {{{target}: {{precision: {precision}, batch: {BATCH}}}}}\n"
            f"tuning: {{lock: null}}\nverify: {{samples: 1}}\n{layers}"
        )
        made.append(path)
    return made


def build(arguments: argparse.Namespace, recipe: Path) -> dict[str, Any]:
    words = ("--target", arguments.target, "-j", str(arguments.jobs))
    return {"recipe": recipe.stem, **build_one(arguments.folder, recipe.name, *words)}


def measure(arguments: argparse.Namespace, recipe: Path) -> dict[str, Any]:
    """Verification as the GPU has it, and times."""
    made = build(arguments, recipe)
    if "failed" in made:
        return made
    report = arguments.folder / "generated" / recipe.stem / arguments.target / "verify.json"
    (batch,) = json.loads(report.read_text())["batches"] if report.is_file() else (None,)
    layers = [] if batch is None else batch["layers"]
    judged = {
        "layers": len(layers), "ok": batch is not None and batch["ok"],
        "largest_used": max((each["largest"] / each["limit"] for each in layers), default=None),
        "largest_spread": max((each["spread"] for each in layers), default=None),
        "outputs": [] if batch is None else batch["outputs"],
    }  # fmt: skip
    words = ["--target", arguments.target, "--batch", str(BATCH), "--seconds", str(SECONDS)]
    return made | {"verification": judged, "bench": timed(arguments.folder, recipe.name, *words)}


def timed(folder: Path, *words: str) -> Any:
    """What `bolt-build bench` says."""
    command = [sys.executable, "-m", "bolt_build", "bench", *words, "--format", "json"]
    around = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    done = subprocess.run(command, cwd=folder, env=around, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"failed": f"ended with {done.returncode}: {done.stdout[-2000:]}"}


def closed(found: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    """The result of a GPU: a row an engine, without where it lay."""
    rows = [{key: each for key, each in row.items() if key != "directory"} for row in found["rows"]]
    command = "python benchmarks/peers/bf16_engines.py FOLDER build (then measure, close)"
    return {**found, "command": command, "gpu": gpu, "rows": rows}


def close(arguments: argparse.Namespace) -> int:
    found = load(arguments.folder / "bf16_engines.json")
    if found is None:
        sys.exit("close: nothing was measured in this folder")
    row = load(arguments.head) if arguments.head is not None else None
    gpu = found.get("gpu") or (row and row["bench"]["device"])
    if gpu is None:
        sys.exit("close: bf16_engines.json does not name its GPU, and --head names no row's file")
    print(record.write("bf16_engines", closed(found, gpu), arguments.out))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("build", "measure", "close"))
    parser.add_argument("--models", nargs="+", choices=[row.model for row in ROWS], default=[row.model for row in ROWS])
    parser.add_argument("--target", default="h200")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--head", type=Path, metavar="FILE", help="close: a row's file of the machine that measured")
    parser.add_argument("--out", type=Path, help="write here instead of results/bf16_engines.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.stage == "close":
        return close(arguments)
    rows = [row for row in ROWS if row.model in arguments.models]
    recipes = [path for row in rows for path in recipes_of(arguments.folder, row, arguments.target)]
    if arguments.stage == "build":
        made = [build(arguments, recipe) for recipe in recipes]
        print(json.dumps(made, indent=1))
        return int(any("failed" in each for each in made))
    head = {"gpu": record.gpu_name(), "batch": BATCH, "accumulator": "fp32"}
    result: dict[str, Any] = record.environment("onnxruntime") | head | {"rows": []}
    path = arguments.folder / "bf16_engines.json"
    for recipe in recipes:
        result["rows"].append(measure(arguments, recipe))
        print(json.dumps(result["rows"][-1])[:600], flush=True)
        record.save(path, result)
    print(path)
    return int(any("failed" in each or not each["verification"]["ok"] for each in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
