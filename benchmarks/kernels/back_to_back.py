"""The paper's Tables 1 and 2: products that follow each other, in one kernel against the best two kernels apart.

    python benchmarks/kernels/back_to_back.py            # on the GPU: tunes the ten rows, compares, splits the gain
    python benchmarks/kernels/back_to_back.py --list     # anywhere: what would be measured
    # table1.tar and table2.tar there, to be run on the GPU, both
    python benchmarks/kernels/back_to_back.py --export FOLDER
                                                 # ./run --results table1.jsonl and --results
                                                 # table1.waiting.jsonl --stage kernels --no-overlap; then
                                                 # --import FOLDER

Each row (fp16, fp32 accumulation; convolutions channels last, with a bias; a ReLU behind every product) is a pair of
its own in one model, so that `tune` measures its kernel, and both apart, in the same run: each candidate is compared
with plain kernels, then timed from a replayed graph, its launches overlapped as an engine's are; then the fastest ones
are found again with launches that wait for each other (`without_overlap`). The first row of Table 1 is padded to 8
columns, as outputs are 16 bytes wide at least. Writes `results/back_to_back.json`; times are us.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from bolt_build.build.builder import BuildOptions
from bolt_build.build.layout import RecipeDirectory
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.chains import ShownChain
from bolt_build.report.explained.explainer import explain
from bolt_build.report.explained.explanation import Explanation
from bolt_build.schema.load import load_recipe
from bolt_build.tuning.exchange.bundle import RUN
from bolt_build.tuning.exchange.results import read_results
from bolt_build.workflows.evidence import Evidence, gather

BATCH = 32


@dataclass(frozen=True)
class Row:
    """A row of a table: `x` is the input without its batch, `first` and `second` weights as ONNX has them; and the
    paper's gain on a T4."""

    table: int
    name: str
    x: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    paper: float
    stride: int = 1


def gemm(m: int, n0: int, k: int, n1: int, paper: float, name: str = "") -> Row:
    return Row(1, name or f"gemm_{m}_{n0}_{k}_then_{n1}", (m // BATCH, k), (k, n0), (n0, n1), paper)


def conv(extent: int, channels: int, filters: int, stride: int, paper: float) -> Row:
    name = f"conv_{extent}s{stride}_{channels}_{filters}_then_{filters}"
    weights = (filters, channels, 3, 3), (filters, filters, 1, 1)
    return Row(2, name, (channels, extent, extent), *weights, paper, stride)


ROWS = (
    gemm(2464, 8, 8, 8, 1.24, "gemm_2464_1_4_then_4_padded_to_8"), gemm(16384, 64, 256, 16, 1.34),
    gemm(32768, 128, 576, 64, 1.28), gemm(128320, 32, 96, 96, 1.46),
    conv(224, 3, 48, 2, 1.10), conv(112, 48, 48, 2, 1.41), conv(56, 48, 48, 1, 1.87),
    conv(224, 3, 64, 2, 1.24), conv(112, 64, 64, 2, 1.12), conv(56, 64, 64, 1, 2.02),
)  # fmt: skip


def write_project(folder: Path, table: int, target: str, candidates: int) -> Path:
    """The rows of one table, each with an input and an output of its own. Returns the recipe."""
    random = np.random.default_rng(0)
    nodes, inputs, outputs, constants = [], [], [], []
    for row in (row for row in ROWS if row.table == table):
        value = f"{row.name}.x"
        inputs.append(helper.make_tensor_value_info(value, TensorProto.FLOAT16, ["N", *row.x]))
        for which, shape in (("first", row.first), ("second", row.second)):
            name = f"{row.name}.{which}"
            depth = shape[0] if table == 1 else math.prod(shape[1:])
            weights = (random.standard_normal(shape) * math.sqrt(2 / depth)).astype(np.float16)
            constants.append(numpy_helper.from_array(weights, f"{name}.w"))
            if table == 1:
                nodes.append(helper.make_node("MatMul", [value, f"{name}.w"], [f"{name}.p"], name=name))
            else:
                bias = (random.standard_normal(shape[0]) * 0.1).astype(np.float16)
                constants.append(numpy_helper.from_array(bias, f"{name}.b"))
                step = row.stride if which == "first" else 1
                around = {"pads": [shape[-1] // 2] * 4, "strides": [step, step]}
                operands = [value, f"{name}.w", f"{name}.b"]
                nodes.append(helper.make_node("Conv", operands, [f"{name}.p"], name=name, **around))
            value = f"{row.name}.y" if which == "second" else f"{name}.r"
            nodes.append(helper.make_node("Relu", [f"{name}.p"], [value], name=f"{name}.relu"))
        outputs.append(helper.make_tensor_value_info(value, TensorProto.FLOAT16, None))
    graph = helper.make_graph(nodes, f"table{table}", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(folder / f"table{table}.onnx"))
    recipe = folder / f"table{table}.yaml"
    recipe.write_text(
        f"bolt: 1\nmodel: {{onnx: table{table}.onnx, batch: {BATCH}}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        f"engine: {{io: {{layout: {'channels_last' if table == 2 else 'row'}}}}}\n"
        f"tuning: {{lock: table{table}.lock, candidates: {candidates}}}\n"
    )
    return recipe


def tune(recipe: Path, jobs: int | None, *words: str) -> int:
    """Compiles and measures; returns the exit code."""
    command = [sys.executable, "-m", "bolt_build", "tune", str(recipe), "--output", str(recipe.parent / "generated")]
    return subprocess.run([*command, *([] if jobs is None else ["-j", str(jobs)]), *words], check=False).returncode


def explained(recipe_path: Path) -> tuple[Evidence, Explanation]:
    recipe = load_recipe(recipe_path)
    options = BuildOptions(output=recipe_path.parent / "generated")
    (spec,) = recipe.targets
    evidence = gather(recipe, spec, options, lambda text: print(text, file=sys.stderr))
    return evidence, explain(evidence)


def times_apart(recipe: Path, target: str, *, here: bool) -> dict[str, float]:
    """What was compiled, measured again with launches that wait for each other: the least time of each problem, us."""
    directory = RecipeDirectory(recipe.parent / "generated" / recipe.stem).tuning(target)
    results = recipe.with_suffix(".waiting.jsonl")
    command = [str(directory.path / RUN), "--stage", "kernels", "--no-overlap", "--results", str(results)]
    if here:
        subprocess.run(command, check=True)
    measured = read_results(results)
    if measured.overlap:
        raise SystemExit(f"{results} was measured without --no-overlap: its launches did not wait for each other")
    found: dict[str, float] = {}
    for line in measured.rows:
        if line.statistics is not None:
            found[line.problem] = min(found.get(line.problem, math.inf), line.statistics.median)
    return found


def analyse(row: Row, evidence: Evidence, chain: ShownChain, waiting: dict[str, float]) -> dict[str, Any]:
    """One row: the times with their kernels, the gain and its split, and the times of launches that wait."""
    outcome = next(each for each in evidence.engine.chains if each.chain.region == chain.nodes)
    entries = {entry.problem: entry for entry in evidence.lock.entries} if evidence.lock is not None else {}
    digests = [problem.digest for problem in (outcome.chain.problem, *outcome.chain.apart)]
    found = [entries.get(digest) for digest in digests]
    kernels = [None if entry is None else {"kernel": str(entry.winner), "us": entry.median} for entry in found]
    apart = sum(time for time in chain.apart if time is not None)
    alone, *both = (waiting[digest] for digest in digests)
    return {
        "row": row.name, "table": row.table, "fused": kernels[0], "apart": kernels[1:],
        "all_measured": all(chain.measured), "speed": apart / chain.together,
        "chosen": "fused" if chain.fused else "apart",
        "split_us": None if chain.split is None else asdict(chain.split), "paper_t4": row.paper,
        "without_overlap": {"fused_us": alone, "apart_us": both, "speed": sum(both) / alone},
    }  # fmt: skip


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--candidates", type=int, default=6, help="kernels to measure of each problem")
    parser.add_argument("--list", action="store_true", help="say what would be measured, measure nothing")
    parser.add_argument("--out", type=Path, help="write here instead of results/back_to_back.json")
    parser.add_argument("-j", "--jobs", type=int, default=None)
    elsewhere = parser.add_mutually_exclusive_group()
    elsewhere.add_argument("--export", type=Path, metavar="FOLDER", help="make bundles there, which need no compiler")
    elsewhere.add_argument(
        "--import", type=Path, metavar="FOLDER", dest="results", help="with the bundles' results there"
    )
    arguments = parser.parse_args()
    rows, devices = [], ""
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.export or arguments.results or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for table in (1, 2):
            recipe = write_project(folder, table, arguments.target, arguments.candidates)
            words = ["--export", str(folder / f"table{table}.tar")] if arguments.export is not None else []
            words += ["--import", str(folder / f"table{table}.jsonl")] if arguments.results is not None else []
            if not arguments.list and (code := tune(recipe, arguments.jobs, *words)) != 0:
                return code
            if arguments.export is not None:
                continue
            here = arguments.results is None
            waiting = {} if arguments.list else times_apart(recipe, arguments.target, here=here)
            evidence, explanation = explained(recipe)
            chains = explanation.batches[0].chains
            legal = {each.nodes: each for each in chains.legal} if chains is not None else {}
            if arguments.list:
                for trials in evidence.problems.problems:
                    print(f"{len(trials.trials)} trials of {describe_problem(trials.problem)}")
                continue
            for row in (row for row in ROWS if row.table == table):
                rows.append(analyse(row, evidence, legal[f"{row.name}.first.relu", f"{row.name}.second.relu"], waiting))
                print(json.dumps(rows[-1], indent=1), flush=True)
            if evidence.lock is not None:
                devices = ", ".join(sorted({each.device.name for _, each in evidence.lock.fingerprints}))
    if arguments.list or arguments.export is not None:
        return 0
    speeds = [row["speed"] for row in rows]
    head = {"gpu": devices, "measured": datetime.date.today().isoformat(), "dtype": "fp16", "accumulator": "fp32"}
    waited = [row["without_overlap"]["speed"] for row in rows]
    summary = {
        **head, "geometric_mean": geometric_mean(speeds), "least": min(speeds),
        "without_overlap": {"geometric_mean": geometric_mean(waited), "least": min(waited)},
    }  # fmt: skip
    result = {**record.environment("nvidia-cutlass", "onnx"), "summary": summary, "rows": rows}
    print(record.write("back_to_back", result, arguments.out))
    print(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
