"""Models with attention that `catalog.py` lists, on one GPU in fp16 and bf16: verified layer by layer there.

    python benchmarks/peers/attention_models.py FOLDER run --limit 500  # on a GPU, with torch and the models' packages
    python benchmarks/peers/attention_models.py FOLDER close  # anywhere: writes results/attention_models.json

Each model is exported, and built without a lock in fp16 and bf16; a model whose plan has no attention is left out. Then
the same engines get other weights, those of the same model with outliers: two of a normalisation's scales are twenty
times as large, so few channels are far larger than others, as in trained encoders. Where an engine departs,
`verify --widen` says which layers would have to stay in fp32. Models come in a random order of a fixed seed, and rows
that FOLDER has are kept: a run goes on where the last one ended. `--part 2/4` is every fourth model, for one of four
GPUs (`CUDA_VISIBLE_DEVICES`), and keeps its rows in a file of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.bolt_command import CommandFailed, bolt, build_one
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.graph.ops.attention.attention import Attention

EXPORTER = ROOT / "benchmarks" / "exporters" / "export_torch.py"
PRECISIONS = ("fp16", "bf16")
WEIGHTS = ("random", "outliers")
OUTLIERS, LARGER = 2, 20.0
"""So many scales of each normalisation, and how much larger they are."""
SECONDS = 60
"""The least that must be left for another model."""
PACKAGES = ("transformers.", "timm.", "torchvision.vit", "torchvision.swin", "torchvision.maxvit")


def with_outliers(source: Path, to: Path) -> int:
    """Writes the model with outliers in its normalisations' scales; how many normalisations have them."""
    model = onnx.load(source)
    constants = {each.name: each for each in model.graph.initializer}
    choose, changed = np.random.default_rng(1), 0
    for node in model.graph.node:
        scales = node.input[1:2] if node.op_type == "LayerNormalization" else ()
        if node.op_type == "Mul":  # an RMSNorm's last node
            scales = [name for name in node.input if name in constants]
        for name in scales:
            if name not in constants or len(constants[name].dims) != 1 or constants[name].dims[0] < 32:
                continue
            values = numpy_helper.to_array(constants[name]).copy()
            if values.dtype != np.float32:
                continue
            values[choose.choice(values.size, OUTLIERS, replace=False)] *= LARGER
            constants[name].CopyFrom(numpy_helper.from_array(values, name))
            changed += 1
    onnx.save(model, to)
    return changed


def recipe_of(folder: Path, file: Path, precision: str, target: str) -> Path:
    path = folder / f"{file.stem}_{precision}.yaml"
    path.write_text(
        f"bolt: 1\nmodel: {{onnx: {file.name}}}\ntargets: {{{target}: {{precision: {precision}}}}}\n"
        "verify: {samples: 1}\n"
    )
    return path


def judged(folder: Path, recipe: Path, target: str) -> dict[str, Any]:
    """What the engine's verification found, and how many of its steps are kernels of attention."""
    directory = folder / "generated" / recipe.stem / target
    (batch,) = json.loads((directory / "verify.json").read_text())["batches"]
    (plan,) = read_engine((directory / "engine.json").read_text()).plans
    kinds = Counter(
        dict(step.candidate.parameters).get("kind", step.candidate.family)
        for step in plan.steps
        if isinstance(step.problem.op, Attention)
    )
    layers = batch["layers"]
    return {
        "ok": batch["ok"], "layers": len(layers), "attention": dict(kinds),
        "largest_used": max((each["largest"] / each["limit"] for each in layers), default=None),
        "largest_spread": max((each["spread"] for each in layers), default=None),
    }  # fmt: skip


def widened(folder: Path, recipe: Path, target: str) -> Any:
    """What `verify --widen` proposes."""
    try:
        return bolt(folder, "verify", recipe.name, "--target", target, "--widen")
    except CommandFailed as error:
        return {"failed": str(error)[-1500:]}


def row_of(name: str, form: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One model: exported, built and verified in both precisions, with both kinds of weights."""
    folder = arguments.folder / name
    folder.mkdir(exist_ok=True)
    file, begun = folder / "model.onnx", time.monotonic()
    words = [arguments.python, str(EXPORTER), name, form, str(file), str(arguments.batch)]
    try:
        said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=False).stdout
    except subprocess.TimeoutExpired:
        return {"model": name, "form": form, "left_out": "the export takes long"}
    if not file.is_file():
        return {
            "model": name,
            "form": form,
            "left_out": f"not exported: {said.decode(errors='replace').strip()[-200:]}",
        }
    row: dict[str, Any] = {"model": name, "form": form, "engines": []}
    for weights in WEIGHTS:
        given = file if weights == "random" else file.with_name("outliers.onnx")
        if weights == "outliers":
            row["normalisations"] = with_outliers(file, given)
        for precision in PRECISIONS:
            recipe = recipe_of(folder, given, precision, arguments.target)
            words = ["--target", arguments.target, "-j", str(arguments.jobs)]
            made = build_one(folder, recipe.name, *words)
            engine = {"precision": precision, "weights": weights}
            try:
                engine |= judged(folder, recipe, arguments.target)
            except (OSError, ValueError):
                row["engines"].append(engine | {"failed": str(made.get("failed"))[-1500:]})
                continue
            if not engine["attention"]:
                return {"model": name, "form": form, "left_out": "no attention is recognised"}
            if not engine["ok"]:
                engine["widen"] = widened(folder, recipe, arguments.target)
            row["engines"].append(engine)
    return row | {"seconds": round(time.monotonic() - begun, 1)}


def chosen(python: str) -> list[tuple[str, str]]:
    """The listed models of the packages, each in its one form or traced, in a random order that is always the same."""
    code = "import json; from benchmarks.exporters.torch_models.catalog import MODELS, ONE_FORM"
    said = "print(json.dumps([list(MODELS), ONE_FORM]))"
    found = subprocess.run([python, "-c", f"{code}; {said}"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    names, forms = json.loads(found.splitlines()[-1])
    models = [(name, forms.get(name, "ts17")) for name in sorted(names) if name.startswith(PACKAGES)]
    random.Random(2).shuffle(models)
    return models


def run(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.limit
    part, parts = (int(each) for each in arguments.part.split("/"))
    kept = arguments.folder / ("rows.json" if parts == 1 else f"rows.{part}.json")
    done = {row["model"] for row in kept_rows(arguments.folder)}
    rows = {row["model"]: row for row in (json.loads(kept.read_text())["rows"] if kept.is_file() else [])}
    head = record.environment("torch", "transformers", "timm", "onnx") | {"gpu": record.gpu_name()}

    def one(model: tuple[str, str]) -> None:
        if model[0] in done or time.monotonic() + SECONDS > deadline:
            return
        row = row_of(*model, arguments)
        rows[model[0]] = row
        record.save(kept, head | {"target": arguments.target, "batch": arguments.batch, "rows": list(rows.values())})
        print(json.dumps(row)[:400], flush=True)

    wanted = [each for each in chosen(arguments.python) if arguments.only is None or each[0] in arguments.only]
    if arguments.only is not None:
        wanted.sort(key=lambda each: arguments.only.index(each[0]))
    wanted = wanted[part - 1 :: parts]
    with ThreadPoolExecutor(arguments.builds) as pool:
        list(pool.map(one, wanted))
    print(f"{len(rows)} of {len(wanted)} models")
    return 0


def kept_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of all parts: of a model its last one in which all engines were built, or else its last one."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("rows*.json")):
        for row in json.loads(file.read_text())["rows"]:
            if row["model"] not in found or not any("failed" in engine for engine in row.get("engines", ())):
                found[row["model"]] = row
    return list(found.values())


def close(arguments: argparse.Namespace) -> int:
    newest = max(arguments.folder.glob("rows*.json"), key=lambda file: json.loads(file.read_text())["date"])
    found = json.loads(newest.read_text())
    rows = [
        row if "left_out" in row else row | {"engines": [shortened(e) for e in row["engines"]]}
        for row in kept_rows(arguments.folder)
    ]
    engines = [engine for row in rows for engine in row.get("engines", ()) if "ok" in engine]
    found |= {
        "rows": rows, "command": "python benchmarks/peers/attention_models.py FOLDER run (then close)",
        "accumulator": "fp32", "models": sum(any("ok" in engine for engine in row.get("engines", ())) for row in rows),
        "engines": len(engines), "right": sum(engine["ok"] for engine in engines),
    }  # fmt: skip
    print(record.write("attention_models", found, arguments.out))
    return 0


def shortened(engine: dict[str, Any]) -> dict[str, Any]:
    """What is known of an engine; of `verify --widen` the layers that it names."""
    if "failed" in engine:
        return engine | {"failed": engine["failed"][-300:]}
    if "widen" not in engine:
        return engine
    said = engine["widen"] if isinstance(engine["widen"], str) else json.dumps(engine["widen"])
    named = re.search(r'"keys": \[(.*?)\]', said.replace("\\n", " ").replace('\\"', '"'), re.DOTALL)
    return engine | {"widen": [] if named is None else re.findall(r'"(.*?)"', named[1])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("run", "close"))
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--builds", type=int, default=8, help="models at once")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // 8), help="of each of them")
    parser.add_argument("--limit", type=float, default=570, help="seconds")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="these, in this order")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every N-th of them")
    parser.add_argument("--python", default=sys.executable, help="the exporters' interpreter")
    parser.add_argument("--out", type=Path, help="write here instead of results/attention_models.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return {"run": run, "close": close}[arguments.stage](arguments)


if __name__ == "__main__":
    sys.exit(main())
