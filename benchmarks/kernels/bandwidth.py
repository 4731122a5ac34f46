"""How much of a GPU's memory bandwidth each kind of step reaches that only moves bytes: normalisations, movements,
reductions and generated chains, at sizes of real models.

    python benchmarks/kernels/bandwidth.py FOLDER build [--target h200]  # anywhere: engines of many small graphs
    python benchmarks/kernels/bandwidth.py FOLDER tune  # or on the GPU, which measures their kernels first
    python benchmarks/kernels/bandwidth.py FOLDER measure  # on the GPU: writes FOLDER/bandwidth_rows.json
    python benchmarks/kernels/bandwidth.py FOLDER close                      # anywhere: writes results/bandwidth.json
    python benchmarks/kernels/bandwidth.py FOLDER recount  # anywhere: counts the bytes of its rows anew, and no more

Where the GPU's machine cannot compile, the kernels are tuned through a bundle of each engine:

    python benchmarks/kernels/bandwidth.py FOLDER export               # anywhere: FOLDER/NAME.tar
    tar -xf NAME.tar && ./run                                          # on the GPU: writes results.jsonl
    python benchmarks/kernels/bandwidth.py FOLDER import  # where it was exported: takes FOLDER/NAME.jsonl, and builds

`--only norms` restricts all of it to one of the engines, the sets of `bandwidth_cases.py`: rows, images, norms, long,
planes, nets; of `bandwidth_odd_cases.py`: turns, parts, picks, logic, sums, chains, resizes; of
`bandwidth_further_cases.py`: indices, shapes, pieces; of `bandwidth_wide_cases.py`: lines, steps, grown, last, fp32,
bf16; of `bandwidth_line_cases.py`: edges, statistics; and of `bandwidth_asked_cases.py`: asked, asked_last. `--cases
keys top_300` restricts them to some of their cases, and leaves out those that have none.

Every step is timed alone, executions one after the other (`Context.step_seconds`). Its bytes are those of its inputs
and outputs, each once. Where a step leaves out parts of a tensor, they are those of the sectors of memory of which it
reads something (`moved_bytes.py`). What fits the L2 may stay there, as in an engine: the tensors of batch 32 do on an
H200, those of 256 mostly not; those of `norms` and later ones are larger.
`share` is of the target's bandwidth, launch included.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import bolt, build_one
from benchmarks.kernels.bandwidth_cases import SETS
from benchmarks.kernels.bandwidth_graphs import Engines
from benchmarks.kernels.moved_bytes import moved_bytes
from benchmarks.planning.problem_texts import text_of
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.families import load as load_families
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import PREDICTED
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named

CASES = tuple(case.name for of in SETS.values() for case in of.cases)
REPEATS = 50
PERIOD = (1 << 20) + 7
"""Random numbers that inputs repeat: to draw all of them takes longer than all else. No extent divides it."""


def write_recipe(folder: Path, name: str, of: Engines, arguments: argparse.Namespace) -> Path:
    """NAME.yaml, and NAME.onnx beside it."""
    path = folder / f"{name}.yaml"
    onnx.save(of.model(), path.with_suffix(".onnx"))
    layout = f", {of.layout}" if of.layout else ""
    path.write_text(
        f"bolt: 1\nmodel: {{onnx: {name}.onnx, batch: {list(arguments.batches or of.batches)}}}\n"
        f"targets: {{{arguments.target}: {{precision: {of.precision}}}}}\n"
        f"engine: {{io: {{dtype: {of.precision}{layout}}}}}\nverify: {{samples: 1}}\n"
        f"tuning: {{lock: {name}.lock, engine: false}}\n"
    )
    return path


def build(arguments: argparse.Namespace) -> int:
    """The engines, of kernels that are tuned first, or of a lock there; what became of each in `engines.json`."""
    folder, made = arguments.folder, {}
    for name in arguments.only:
        write_recipe(folder, name, SETS[name].having(arguments.cases), arguments)
        if arguments.stage == "tune":
            bolt(folder, "tune", f"{name}.yaml", "--target", arguments.target)
        if arguments.stage == "import":
            bolt(folder, "tune", f"{name}.yaml", "--target", arguments.target, "--import", f"{name}.jsonl")
        if arguments.stage == "export":
            bolt(folder, "tune", f"{name}.yaml", "--target", arguments.target, "--export", f"{name}.tar")
            print(f"{name}.tar", flush=True)
            continue
        made[name] = build_one(folder, f"{name}.yaml", "--target", arguments.target)
        print(f"{name}: {made[name]}", flush=True)
    if arguments.stage != "export":
        record.save(folder / "engines.json", made)
    return 1 if any("failed" in each for each in made.values()) else 0


def measured(directory: Path, plan: BatchPlan, name: str, peak: float) -> list[dict[str, Any]]:
    """A row for each step of one batch; steps of one case have its name in front of a slash."""
    kinds = {case.name: case.kind for of in SETS.values() for case in of.cases}
    random = np.random.RandomState(1)
    below = {key: most for of in SETS.values() for key, most in of.net().below.items()}
    normal = random.standard_normal(PERIOD).astype(np.float16)
    feeds = {
        port.name: np.resize(
            normal if port.operand.type.dtype.is_float else random.randint(0, below[port.name], PERIOD),
            port.operand.shape,
        )
        for port in plan.inputs
    }
    engine = Engine(directory / names.library(name))
    with engine.create(directory / names.weights(name)) as model, model.context(plan.batch) as context:
        ports = {port.name: port.numpy_dtype for port in context.inputs}
        inputs = {key: array.astype(ports[key]) for key, array in feeds.items()}
        seconds = context.step_seconds(inputs, REPEATS)
    rows = []
    for step, taken in zip(plan.steps, seconds, strict=True):
        if step.view:
            continue
        case, moved = step.name.partition("/")[0], moved_bytes(step.problem)
        rows.append({
            "case": case, "kind": kinds.get(case, "movement"), "step": step.name, "batch": plan.batch,
            "shape": list(step.problem.outputs[0].shape), "kernel": step.candidate.family, "bytes": moved,
            "problem": step.problem.digest, "what": describe_problem(step.problem),
            "candidate": text_of(step.candidate),
            "us": 1e6 * taken, "gigabytes_per_second": moved / taken / 1e9, "share": moved / taken / peak,
        })  # fmt: skip
    return rows


def measure(arguments: argparse.Namespace) -> int:
    """Every step of the engines on this machine's GPU."""
    engines = json.loads((arguments.folder / "engines.json").read_text())
    rows: list[dict[str, Any]] = []
    for name in arguments.only:
        directory = arguments.folder / engines[name]["directory"]
        plan = read_engine((directory / "engine.json").read_text())
        peak = target_named(plan.target).bandwidth
        for batch in plan.plans:
            rows += measured(directory, batch, name, peak)
            record.save(arguments.folder / "bandwidth_rows.json", record.environment() | {"peak": peak, "rows": rows})
    for row in rows:
        print(f"{row['share']:5.0%} {row['us']:8.2f} us  {row['batch']:4} {row['kind']:14} {row['step']}", flush=True)
    return 0


def steps_now(arguments: argparse.Namespace) -> dict[str, Step]:
    """By the digests of their problems the steps of the sets, all of them, with the kernels that prediction chooses:
    what a step is called follows from the cases that it was measured with."""
    families, target, steps = load_families(target_named(arguments.target)), target_named(arguments.target), {}
    with tempfile.TemporaryDirectory() as name:
        for each, of in SETS.items():
            path = write_recipe(Path(name), each, of, arguments)
            recipe, model = load_recipe(path), load_model(path.with_suffix(".onnx"))
            (spec,) = recipe.targets
            graphs = model.graphs(recipe.batches(spec), recipe.model.dims, recipe.model.lengths)
            engine = plan_engine(graphs, recipe, spec, target, families, PREDICTED)
            steps |= {step.problem.digest: step for plan in engine.plan.plans for step in plan.steps}
    return steps


def counted(rows: Sequence[dict[str, Any]], steps: Mapping[str, Step], peak: float) -> list[dict[str, Any]]:
    """The rows with bytes and shares as they are counted now, of those whose problems the sets have still."""
    found = []
    for row in rows:
        step = steps.get(row["problem"])
        moved = row["bytes"] if step is None else moved_bytes(step.problem)
        rate = moved / row["us"] / 1e3
        found.append({**row, "bytes": moved, "gigabytes_per_second": rate, "share": 1e9 * rate / peak})
    return found


def joined(
    rows: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]], steps: Mapping[str, Step]
) -> list[dict[str, Any]]:
    """Of each case and batch the rows of this run, or those of before where these alone have the kernels that are
    chosen now. Rows of kernels that are not are `other_kernel`."""
    runs: dict[tuple[str, int], list[list[dict[str, Any]]]] = {}
    for run in (rows, before):
        cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in run:
            plain = {name: value for name, value in row.items() if name != "other_kernel"}
            step = steps.get(row["problem"])
            same = step is None or row["candidate"] == text_of(step.candidate)
            cases.setdefault((row["case"], row["batch"]), []).append(plain if same else plain | {"other_kernel": True})
        for case, found in cases.items():
            runs.setdefault(case, []).append(found)
    chosen = (min(found, key=lambda each: any("other_kernel" in row for row in each)) for found in runs.values())
    return [row for found in chosen for row in found]


def close(arguments: argparse.Namespace) -> int:
    """The table by kind of step: each case at the largest batch, and the least share of a kind."""
    found = json.loads((arguments.folder / "bandwidth_rows.json").read_text())
    for folder in arguments.merge:
        found["rows"] += json.loads((folder / "bandwidth_rows.json").read_text())["rows"]
    before: list[dict[str, Any]] = []
    if arguments.keep:
        earlier = json.loads((record.RESULTS / "bandwidth.json").read_text())
        before = [{"date": earlier["date"], **row} for row in earlier["rows"]]
    steps, peak = steps_now(arguments), target_named(arguments.target).bandwidth
    rows = counted(joined(found["rows"], before, steps), steps, peak)
    least = least_shares(rows)
    print(json.dumps(least, indent=1))
    facts = {
        "rows": rows,
        "peak": peak,
        "command": "python benchmarks/kernels/bandwidth.py FOLDER build (then measure, close)",
        "target": arguments.target,
    }
    print(record.write("bandwidth", found | facts | {"least_share": least}, arguments.out))
    return 0


def least_shares(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of each kind, of each case at the largest batch."""
    batches: dict[str, int] = {}
    for row in rows:
        batches[row["case"]] = max(row["batch"], batches.get(row["case"], 0))
    largest = [row for row in rows if row["batch"] == batches[row["case"]]]
    kinds = sorted({row["kind"] for row in largest})
    return {kind: min(row["share"] for row in largest if row["kind"] == kind) for kind in kinds}


def recount(arguments: argparse.Namespace) -> int:
    """The results as they are, with their bytes counted anew: what was measured, and when, stays."""
    found = json.loads((record.RESULTS / "bandwidth.json").read_text())
    rows = counted(found["rows"], steps_now(arguments), found["peak"])
    for row, old in zip(rows, found["rows"], strict=True):
        if row["bytes"] != old["bytes"]:
            print(f"{row['step']}, batch {row['batch']}: {old['bytes']:,} -> {row['bytes']:,} bytes")
    print(record.write("bandwidth", found | {"rows": rows, "least_share": least_shares(rows)}, arguments.out))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("export", "import", "tune", "build", "measure", "close", "recount"))
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batches", type=int, nargs="+", help="instead of each engine's own")
    parser.add_argument("--only", nargs="+", choices=tuple(SETS), default=list(SETS), help="engines")
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help="these cases of the engines alone")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="close: rows of these folders too")
    parser.add_argument(
        "--keep", action="store_true", help="close: cases of before that FOLDER lacks, or has with other kernels"
    )
    parser.add_argument("--out", type=Path, help="write here instead of results/bandwidth.json")
    arguments = parser.parse_args()
    if arguments.cases:
        arguments.only = [name for name in arguments.only if SETS[name].having(arguments.cases).cases]
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    stages = dict.fromkeys(("export", "import", "tune", "build"), build)
    return (stages | {"measure": measure, "close": close, "recount": recount})[arguments.stage](arguments)


if __name__ == "__main__":
    sys.exit(main())
