"""The paper's Table 3: convolutions whose channels miss the alignment, padded against read as they are.

    python benchmarks/engines/padding.py --folder DIR                 # on a machine with the GPU and nvcc: everything
    python benchmarks/engines/padding.py --folder DIR --stage export  # one stage alone (repeatable), here or elsewhere

Stages: `export` compiles what tuning measures, `measure` runs it on the GPU, `build` chooses kernels and builds the
engines, `time` times them on the GPU. What a stage left in DIR is not done again.

Each row of the table is a recipe of one convolution (fp16, fp32 accumulation, channels last, bias and ReLU behind it),
built as `--set policy.padding.mode=never`: loads of 2 elements; and as `=always`: a kernel with whole loads behind a
copy of the input with padded channels. A second recipe has padded channels from the start, as from a producer that
stores them so: what it takes less than `always` is the cost of padding. Without measurements kernels are those
predicted, and the result says so.

Writes `results/padding.json`; times are microseconds of whole engines, in turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import CommandFailed, bolt, build_one
from bolt_build.bench.replays import Entrant, measured_in_turns
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.schema.load import load_recipe

UNPADDED, PADDED, FOLDED = "unpadded", "padded", "folded"
STAGES = ("export", "measure", "build", "time")
RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Row:
    """A row of the table, and the paper's figures on a T4: speed of padded against unpadded, cost of padding."""

    batch: int
    size: tuple[int, int]
    channels: int
    filters: int
    kernel: tuple[int, int]
    pads: tuple[int, int]
    paper: tuple[float, float]

    @property
    def name(self) -> str:
        height, width = self.size
        kernel, pads = ("x".join(map(str, pair)) for pair in (self.kernel, self.pads))
        return f"n{self.batch}_{height}x{width}_{self.channels}_{self.filters}_{kernel}_pad{pads}"

    @property
    def padded(self) -> int:
        return -(-self.channels // 8) * 8


ROWS = (
    Row(32, (20, 26), 46, 32, (3, 3), (1, 1), (1.62, 0.18)),
    Row(32, (20, 26), 46, 32, (5, 5), (2, 2), (1.95, 0.09)),
    Row(128, (14, 19), 46, 32, (5, 7), (0, 0), (1.77, 0.15)),
    Row(288, (11, 15), 46, 32, (5, 7), (0, 0), (1.71, 0.18)),
    Row(32, (20, 26), 174, 64, (3, 3), (1, 1), (1.60, 0.24)),
    Row(32, (20, 26), 174, 64, (5, 5), (2, 2), (1.99, 0.12)),
)


@dataclass(frozen=True)
class Built:
    """One of the three engines of a row: its recipe, and what is set on the command line."""

    row: Row
    form: str

    @property
    def name(self) -> str:
        return f"{self.row.name}.{self.form}"

    @property
    def channels(self) -> int:
        return self.row.padded if self.form == FOLDED else self.row.channels

    @property
    def recipe(self) -> str:
        return f"{self.row.name}@{self.channels}.yaml"

    def settings(self, folder: Path) -> tuple[str, ...]:
        mode = {UNPADDED: "never", PADDED: "always", FOLDED: "auto"}[self.form]
        lock = (folder / f"{self.name}.lock").resolve()
        values = {"name": self.name, "policy.padding.mode": mode, "tuning.lock": str(lock)}
        return tuple(word for key, value in values.items() for word in ("--set", f"{key}={value}"))


def engines(rows: Sequence[Row]) -> list[Built]:
    return [Built(row, form) for row in rows for form in (UNPADDED, PADDED, FOLDED)]


def write_recipe(folder: Path, each: Built, target: str) -> None:
    """The convolution of a row as ONNX, and its recipe; tensors are what kernels read and write, so that nothing else
    is measured."""
    row, channels = each.row, each.channels
    random = np.random.default_rng(0)
    out = [size + 2 * pad - k + 1 for size, pad, k in zip(row.size, row.pads, row.kernel, strict=True)]
    scale = 1 / math.sqrt(channels * math.prod(row.kernel))
    weights = (random.standard_normal((row.filters, channels, *row.kernel)) * scale).astype(np.float16)
    bias = random.standard_normal(row.filters).astype(np.float16)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[*row.pads, *row.pads]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["N", *shape])
        for name, shape in (("x", (channels, *row.size)), ("y", (row.filters, *out)))
    ]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "padding", ports[:1], ports[1:], constants)
    path = folder / each.recipe
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path.with_suffix(".onnx")
    )
    path.write_text(
        f"bolt: 1\nname: padding\nmodel: {{onnx: '{path.stem}.onnx', batch: {row.batch}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\nengine: {{io: {{layout: channels_last}}}}\n"
    )
    load_recipe(path)


def export(folder: Path, each: Built, jobs: int) -> None:
    """Compiles the kernels that tuning measures of an engine into a bundle. Raises CommandFailed."""
    own = folder / each.name
    if not (own / "bundle.tar").exists():
        options = ("--export", "bundle.tar", "-j", str(jobs))
        bolt(own, "tune", each.recipe, *each.settings(own), *options)


def measure(folder: Path, each: Built) -> None:
    """Runs the bundle of an engine on the GPU. Raises CalledProcessError."""
    own = folder / each.name
    if not (own / RESULTS).exists():
        with tarfile.open(own / "bundle.tar") as bundle:
            bundle.extractall(own / "bundle", filter="data")
        (run,) = (own / "bundle").rglob("run")
        subprocess.run([str(run), "--results", "measured.jsonl"], cwd=run.parent, check=True)
        (run.parent / "measured.jsonl").rename(own / RESULTS)


def build(folder: Path, each: Built, jobs: int) -> dict[str, Any]:
    """Chooses from what was measured, if it was, and builds: what `build` says, and the steps' kernels. Raises
    CommandFailed."""
    own = folder / each.name
    measured = (own / RESULTS).exists()
    if measured:
        bolt(own, "tune", each.recipe, *each.settings(own), "--import", RESULTS)
    found = build_one(own, each.recipe, *each.settings(own), "-j", str(jobs))
    if "failed" in found:
        raise CommandFailed(found["failed"])
    found["directory"] = str(own / found["directory"])
    (plan,) = read_engine((Path(found["directory"]) / "engine.json").read_text()).plans
    steps = [str(step.candidate) for step in plan.steps]
    return found | {"name": each.name, "kernels_chosen": "measured" if measured else "predicted", "steps": steps}


def timed(folder: Path, row: Row, rounds: int) -> dict[str, Any]:
    """One row of the table, from the engines that were built of it."""
    built = {each["name"]: each for each in json.loads((folder / "built.json").read_text())}
    forms = (UNPADDED, PADDED, FOLDED)
    found = {form: built[f"{row.name}.{form}"] for form in forms}
    entrants = [Entrant(form, found[form]["directory"]) for form in forms]
    turns = measured_in_turns(entrants, row.batch, rounds=rounds)
    us = {form: 1e3 * turns.median(form) for form in forms}
    return {
        "row": row.name, "device": turns.device, "us": us,
        "kernels": {form: {key: found[form][key] for key in ("kernels_chosen", "steps")} for form in forms},
        "speed_padded": us[UNPADDED] / us[PADDED], "speed_folded": us[UNPADDED] / us[FOLDED],
        "cost_of_padding": 1 - us[FOLDED] / us[PADDED],
        "paper_t4": {"speed_padded": row.paper[0], "cost_of_padding": row.paper[1]},
    }  # fmt: skip


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the rows: geometric of speeds, arithmetic of costs."""
    return {
        "gpu": rows[0]["device"], "measured": datetime.date.today().isoformat(), "dtype": "fp16", "accumulator": "fp32",
        "speed_padded": geometric_mean(row["speed_padded"] for row in rows),
        "speed_folded": geometric_mean(row["speed_folded"] for row in rows),
        "cost_of_padding": sum(row["cost_of_padding"] for row in rows) / len(rows),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where recipes, locks and engines are kept")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--rows", type=int, default=len(ROWS), metavar="N", help="the first N rows of the table alone")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this (repeatable; default: all)")
    parser.add_argument("--out", type=Path, help="write here instead of results/padding.json")
    arguments = parser.parse_args()
    folder, rows, stages = arguments.folder.resolve(), ROWS[: arguments.rows], arguments.stage or STAGES
    every = engines(rows)
    for each in every:
        own = folder / each.name
        own.mkdir(parents=True, exist_ok=True)
        write_recipe(own, each, arguments.target)
    at_once = min(len(every), max(1, arguments.jobs // 2))
    jobs = max(1, arguments.jobs // at_once)
    with ThreadPoolExecutor(at_once) as pool:
        if "export" in stages:
            list(pool.map(lambda each: export(folder, each, jobs), every))
        if "measure" in stages:
            for each in every:
                measure(folder, each)
        if "build" in stages:
            record.save(folder / "built.json", list(pool.map(lambda each: build(folder, each, jobs), every)))
    if "time" not in stages:
        return 0
    found = [timed(folder, row, arguments.rounds) for row in rows]
    result = {**record.environment("nvidia-cutlass", "onnx"), "summary": summary(found), "rows": found}
    print(record.write("padding", result, arguments.out))
    print(json.dumps(result["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
