"""The paper's Table 3: convolutions whose channels miss the alignment, padded against read as they are.

    python benchmarks/padding.py            # on the GPU: compiles and measures every legal kernel of its six rows
    python benchmarks/padding.py --list     # anywhere: what would be measured
    python benchmarks/padding.py --export FOLDER    # padding<batch>.tar there, to be run on the GPU, each as
                                            # ./run --results results<batch>.jsonl; then --import FOLDER

Each row (fp16, fp32 accumulation, channels last, bias and ReLU in the epilogue) is measured in three ways, the fastest
kernel of each: unpadded (loads of 2 elements), padded with the copy of the input standing alone in front of the kernel,
and folded (the input comes padded, as from a producer that stores it so). Every candidate is compared with a plain
kernel before it is timed. "like for like" leaves out Hopper's warpgroup kernels, which take padded rows alone, so that
both sides run the same instructions. Writes `results/padding.json`; times are microseconds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import record
from onnx import TensorProto, helper, numpy_helper

from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.conv import Conv
from bolt_build.planner.plan_engine import search_spaces
from bolt_build.schema import load_recipe
from bolt_build.targets import target_named
from bolt_build.tuning.agenda import EVERY_CANDIDATE
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials, tuning_set


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


def write_project(folder: Path, batch: int, target: str) -> Path:
    """The rows of one batch, each with its channels and with padded ones; tensors are what kernels read and write, so
    that nothing else is measured. Returns the recipe."""
    random = np.random.default_rng(0)
    nodes, inputs, outputs, constants = [], [], [], []
    for row in (row for row in ROWS if row.batch == batch):
        out = [size + 2 * pad - k + 1 for size, pad, k in zip(row.size, row.pads, row.kernel, strict=True)]
        for channels in (row.channels, row.padded):
            name = f"{row.name}@{channels}"
            scale = 1 / math.sqrt(channels * math.prod(row.kernel))
            weights = (random.standard_normal((row.filters, channels, *row.kernel)) * scale).astype(np.float16)
            bias = random.standard_normal(row.filters).astype(np.float16)
            constants += [numpy_helper.from_array(weights, f"{name}.w"), numpy_helper.from_array(bias, f"{name}.b")]
            pads = [*row.pads, *row.pads]
            nodes.append(
                helper.make_node("Conv", [f"{name}.x", f"{name}.w", f"{name}.b"], [f"{name}.c"], name=name, pads=pads)
            )
            nodes.append(helper.make_node("Relu", [f"{name}.c"], [f"{name}.y"], name=f"{name}.relu"))
            shapes = ["N", channels, *row.size], ["N", row.filters, *out]
            inputs.append(helper.make_tensor_value_info(f"{name}.x", TensorProto.FLOAT16, shapes[0]))
            outputs.append(helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT16, shapes[1]))
    graph = helper.make_graph(nodes, "padding", inputs, outputs, constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(folder / f"padding{batch}.onnx"),
    )
    recipe = folder / f"padding{batch}.yaml"
    recipe.write_text(
        f"bolt: 1\nname: padding{batch}\nmodel: {{onnx: padding{batch}.onnx, batch: {batch}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\n"
        f"engine: {{io: {{layout: channels_last}}}}\ntuning: {{lock: padding{batch}.lock}}\n"
    )
    return recipe


def problems(recipe_path: Path, batch: int, target_name: str) -> dict[str, ProblemTrials]:
    """The convolutions by name ("row@channels"), each with all of its trials."""
    recipe, target = load_recipe(recipe_path), target_named(target_name)
    (spec,) = recipe.targets
    families = load(target)
    graph = load_model(Path(str(recipe.model.onnx))).bind(batch, recipe.model.dims)
    found = tuning_set(search_spaces((graph,), recipe, spec, target, families), families, target, EVERY_CANDIDATE)
    named = {}
    for trials in found.problems:
        if isinstance(trials.problem.op, Conv):
            (where,) = {place.removeprefix(f"batch {batch}: ") for place in trials.occurs}
            named[where.removesuffix(".relu")] = trials
    return named


@dataclass(frozen=True)
class Timed:
    """A candidate with its status and median, None where it has no time."""

    candidate: Candidate
    status: str
    median: float | None

    @property
    def loads(self) -> int:
        return int(dict(self.candidate.parameters).get("loads", 8))

    @property
    def of_warps(self) -> bool:
        """One of CUTLASS's kernels on instructions of one warp."""
        return self.candidate.family == "cutlass" and "warpgroups" not in dict(self.candidate.parameters)


def measured(folder: Path, exported: Path, every: dict[str, ProblemTrials]) -> tuple[dict[str, list[Timed]], str]:
    """What a tuning exported, by name, and the GPU's name."""
    names = {trials.problem.digest: name for name, trials in every.items()}
    found: dict[str, list[Timed]] = {name: [] for name in every}
    device = ""
    with Records(folder / f"{exported.stem}.sqlite") as store:
        store.load_export(json.loads(exported.read_text()), str(exported))
        for fingerprint, kept in store.all(names):
            device = fingerprint.device.name
            time = kept.statistics.median if kept.status is Status.OK and kept.statistics is not None else None
            found[names[kept.problem]].append(Timed(kept.candidate, kept.status.value, time))
    return found, device


def fastest(timed: Iterable[Timed], suits: Callable[[Timed], bool]) -> dict[str, Any]:
    """The fastest of those that suit: its text and median. Raises ValueError where none was measured."""
    found = [(each.median, str(each.candidate)) for each in timed if each.median is not None and suits(each)]
    time, kernel = min(found)
    return {"kernel": kernel, "us": time, "of": len(found)}


def compare(unpadded: float, padded: float, folded: float) -> dict[str, float]:
    """Speeds against unpadded, and the part of the padded time that the copy takes."""
    return {
        "speed_padded": unpadded / padded, "speed_folded": unpadded / folded, "cost_of_padding": 1 - folded / padded,
    }  # fmt: skip


def analyse(row: Row, own: list[Timed], wide: list[Timed]) -> dict[str, Any]:
    """One row of the table. `own` are kernels of its channels, `wide` those of the padded ones."""
    unpadded = fastest(own, lambda each: each.loads < 8)
    padded = fastest(own, lambda each: each.loads == 8 and each.candidate.family == "cutlass")
    folded = fastest(wide, lambda each: each.candidate.family == "cutlass")
    alike = [fastest(own, lambda each: each.loads == 8 and each.of_warps), fastest(wide, lambda each: each.of_warps)]
    both = [*own, *wide]
    return {
        "row": row.name, "unpadded": unpadded, "padded": padded, "folded": folded,
        **compare(unpadded["us"], padded["us"], folded["us"]),
        "like_for_like": {
            "padded": alike[0], "folded": alike[1],
            **compare(unpadded["us"], alike[0]["us"], alike[1]["us"]),
        },
        "paper_t4": {"speed_padded": row.paper[0], "cost_of_padding": row.paper[1]},
        "chosen": "unpadded" if unpadded["us"] < padded["us"] else "padded",
        "not_ok": sorted({f"{each.candidate}: {each.status}" for each in both if each.status != "ok"}),
    }  # fmt: skip


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the rows: geometric of speeds, arithmetic of costs."""
    like = [row["like_for_like"] for row in rows]
    means = {}
    for name, each in (("", rows), ("like_for_like_", like)):
        for key in ("speed_padded", "speed_folded"):
            means[f"{name}{key}"] = geometric_mean(row[key] for row in each)
        means[f"{name}cost_of_padding"] = sum(row["cost_of_padding"] for row in each) / len(each)
    return means


def tune(recipe: Path, jobs: int | None, *words: str) -> int:
    """`tune` with every candidate; returns the exit code."""
    command = [sys.executable, "-m", "bolt_build", "tune", str(recipe), "--all-candidates"]
    command += ["--output", str(recipe.parent / "generated"), *([] if jobs is None else ["-j", str(jobs)])]
    return subprocess.run([*command, *words], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--list", action="store_true", help="say what would be measured, measure nothing")
    parser.add_argument("--out", type=Path, help="write here instead of results/padding.json")
    parser.add_argument("-j", "--jobs", type=int, default=None)
    elsewhere = parser.add_mutually_exclusive_group()
    elsewhere.add_argument("--export", type=Path, metavar="FOLDER", help="make bundles there, which need no compiler")
    elsewhere.add_argument(
        "--import", type=Path, metavar="FOLDER", dest="results",
        help="with results<batch>.jsonl there, of the runs of those bundles",
    )  # fmt: skip
    arguments = parser.parse_args()
    rows, device = [], ""
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.export or arguments.results or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for batch in dict.fromkeys(row.batch for row in ROWS):
            recipe = write_project(folder, batch, arguments.target)
            every = problems(recipe, batch, arguments.target)
            if arguments.list:
                for name, trials in every.items():
                    narrow = sum("loads" in dict(trial.candidate.parameters) for trial in trials.trials)
                    print(f"{name}: {len(trials.trials)} kernels, {narrow} of them without padding")
                continue
            if arguments.export is not None:
                if (code := tune(recipe, arguments.jobs, "--export", str(folder / f"padding{batch}.tar"))) != 0:
                    return code
                continue
            exported = folder / f"records{batch}.json"
            words = ["--records-out", str(exported)]
            if arguments.results is not None:
                words += ["--import", str(folder / f"results{batch}.jsonl")]
            if (code := tune(recipe, arguments.jobs, *words)) != 0:
                return code
            found, device = measured(folder, exported, every)
            for row in (row for row in ROWS if row.batch == batch):
                rows.append(analyse(row, found[f"{row.name}@{row.channels}"], found[f"{row.name}@{row.padded}"]))
                print(json.dumps(rows[-1], indent=1), flush=True)
    if arguments.list or arguments.export is not None:
        return 0
    head = {"gpu": device, "measured": datetime.date.today().isoformat(), "dtype": "fp16", "accumulator": "fp32"}
    result = {**record.environment("nvidia-cutlass", "onnx"), "summary": {**head, **summary(rows)}, "rows": rows}
    print(record.write("padding", result, arguments.out))
    print(json.dumps(result["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
