"""How much the pruning of candidates costs: every legal candidate measured, against the few that tuning would try.

    python benchmarks/tuning/pruning.py  # on the GPU: compiles every legal candidate of eleven 3x3 convolutions
    python benchmarks/tuning/pruning.py --again    # the analysis alone, with the times that results/pruning.json has

The convolutions (batch 32, fp16, fp32 accumulation, bias and ReLU in the epilogue) are those of ResNet-50, VGG-16 and
RepVGG-A0. For each: the fastest of all legal candidates, the fastest of those that the rules and the prediction leave
(`tuning.candidates` of the recipe's default), and what the fastest of the first k by prediction costs, beside the
expectation for k candidates drawn at random from the legal ones. Writes `results/pruning.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from bolt_build.families import load
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.plan_engine import search_spaces
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
from bolt_build.tuning.agenda import EVERY_CANDIDATE
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial, tuning_set

BATCH = 32
# Model, input height and width, stride, channels in and out.
LAYERS = (
    ("resnet50", 56, 1, 64, 64), ("resnet50", 56, 2, 128, 128), ("resnet50", 28, 1, 128, 128),
    ("resnet50", 14, 1, 256, 256), ("resnet50", 7, 1, 512, 512),
    ("vgg16", 112, 1, 64, 128), ("vgg16", 56, 1, 256, 256), ("vgg16", 28, 1, 512, 512),
    ("repvgg_a0", 56, 1, 48, 48), ("repvgg_a0", 28, 1, 96, 96), ("repvgg_a0", 14, 1, 192, 192),
)  # fmt: skip
COUNTS = (1, 2, 4, 6, 8, 12, 16, 24)


def name_of(layer: tuple[str, int, int, int, int]) -> str:
    model, size, stride, channels, filters = layer
    return f"{model}_{size}s{stride}_{channels}_{filters}"


def write_project(folder: Path, target: str) -> Path:
    """One convolution an input and an output; the tensors are what the kernels read and write, so that nothing else is
    measured. Returns the recipe."""
    random = np.random.default_rng(0)
    nodes, inputs, outputs, constants = [], [], [], []
    for layer in LAYERS:
        _, size, stride, channels, filters = layer
        name, out = name_of(layer), (size - 1) // stride + 1
        weights = (random.standard_normal((filters, channels, 3, 3)) / math.sqrt(9 * channels)).astype(np.float32)
        bias = random.standard_normal(filters).astype(np.float32)
        constants += [numpy_helper.from_array(weights, f"{name}.w"), numpy_helper.from_array(bias, f"{name}.b")]
        nodes.append(
            helper.make_node(
                "Conv", [f"{name}.x", f"{name}.w", f"{name}.b"], [f"{name}.c"], name=f"{name}.conv",
                strides=[stride, stride], pads=[1, 1, 1, 1],
            )
        )  # fmt: skip
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [f"{name}.y"], name=f"{name}.relu"))
        inputs.append(
            helper.make_tensor_value_info(f"{name}.x", TensorProto.FLOAT16, ["N", channels, size, size])
        )  # fmt: skip
        outputs.append(helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT16, ["N", filters, out, out]))
    half = [numpy_helper.from_array(numpy_helper.to_array(c).astype(np.float16), c.name) for c in constants]
    graph = helper.make_graph(nodes, "pruning", inputs, outputs, half)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "pruning.onnx"))
    recipe = folder / "pruning.yaml"
    recipe.write_text(
        f"bolt: 1\nname: pruning\nmodel: {{onnx: pruning.onnx, batch: {BATCH}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\n"
        "engine: {io: {layout: channels_last}}\ntuning: {lock: pruning.lock}\n"
    )
    return recipe


def problems(recipe_path: Path, target_name: str, limit: int | None) -> dict[str, ProblemTrials]:
    """The convolutions by layer, each with its trials; `limit` None is what a recipe without the key has."""
    recipe, target = load_recipe(recipe_path), target_named(target_name)
    (spec,) = recipe.targets
    families = load(target)
    graph = load_model(Path(str(recipe.model.onnx))).bind(BATCH, recipe.model.dims)
    spaces = search_spaces((graph,), recipe, spec, target, families)
    found = tuning_set(spaces, families, target, recipe.tuning.candidates if limit is None else limit)
    named = {}
    for trials in found.problems:
        if isinstance(trials.problem.op, Conv):
            (where,) = {place.rpartition("/")[2] for place in trials.occurs}
            named[where.rpartition(" ")[2].removesuffix(".conv").removesuffix(".relu")] = trials
    return named


def expected_best(times: list[float], count: int) -> float:
    """The mean, over all ways to draw `count` of the times, of the fastest drawn."""
    ordered, n = sorted(times), len(times)
    ways = math.comb(n, count)
    return sum(time * math.comb(n - 1 - place, count - 1) for place, time in enumerate(ordered)) / ways


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


Measured = dict[str, tuple[str, float | None]]
"""Status and median (microseconds) by the text of a candidate."""


def measured_in(
    folder: Path, exported: Path, every: dict[str, ProblemTrials]
) -> tuple[dict[str, Measured], dict[str, Any]]:
    """What a tuning exported, by layer, and on which GPU it was measured."""
    found: dict[str, Measured] = {name: {} for name in every}
    layers = {trials.problem.digest: name for name, trials in every.items()}
    device = ""
    with Records(folder / "records.sqlite") as store:
        store.load_export(json.loads(exported.read_text()), str(exported))
        for fingerprint, kept in store.all(layers):
            device = fingerprint.device.name
            time = kept.statistics.median if kept.status is Status.OK and kept.statistics is not None else None
            found[layers[kept.problem]][str(kept.candidate)] = (kept.status.value, time)
    return found, {"gpu": device, "measured": datetime.date.today().isoformat()}


def earlier() -> tuple[dict[str, Measured], dict[str, Any]]:
    """The same of the results that were written before."""
    data = json.loads((record.RESULTS / "pruning.json").read_text())
    found = {
        name: {row["candidate"]: (row["status"], row["measured"]) for row in layer["candidates"]}
        for name, layer in data["layers"].items()
    }
    return found, {key: data["summary"].get(key, data["date"]) for key in ("gpu", "measured")}


def analyse(every: ProblemTrials, pruned: ProblemTrials, measured: Measured) -> dict[str, Any]:
    """One layer's row: times in microseconds."""

    def time(trial: Trial) -> float | None:
        return measured.get(str(trial.candidate), ("missing", None))[1]

    ranked = [trial for trial in every.trials if trial.of is None]
    rows = [
        {
            "candidate": str(trial.candidate), "predicted": round(trial.predicted * 1e6, 2),
            "measured": time(trial), "status": measured.get(str(trial.candidate), ("missing", None))[0],
            "setting": trial.of is not None,
        }
        for trial in every.trials
    ]  # fmt: skip
    all_times = [found for trial in every.trials if (found := time(trial)) is not None]
    kept = [found for trial in pruned.trials if (found := time(trial)) is not None]
    times = [found for trial in ranked if (found := time(trial)) is not None]
    curve = {
        str(count): {
            "predicted": round(min(times[:count]), 3),
            "random": round(expected_best(times, count), 3),
        }
        for count in COUNTS
        if count <= len(times)
    }
    return {
        "legal": len(ranked), "settings": len(every.trials) - len(ranked), "tried_when_pruned": len(pruned.trials),
        "not_ok": sum(row["status"] not in ("ok", "missing") for row in rows),
        "exhaustive": min(all_times), "pruned": min(kept), "pruned_costs": min(kept) / min(all_times),
        "first_by_prediction": curve, "refusals": len(every.refusals), "candidates": rows,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--again", action="store_true", help="take the times of results/pruning.json, measure nothing")
    parser.add_argument("--out", type=Path, help="write here instead of results/pruning.json")
    parser.add_argument("-j", "--jobs", type=int, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        recipe = write_project(folder, arguments.target)
        exported = folder / "records.json"
        if not arguments.again:
            jobs = [] if arguments.jobs is None else ["-j", str(arguments.jobs)]
            command = [sys.executable, "-m", "bolt_build", "tune", str(recipe), "--all-candidates", *jobs]
            done = subprocess.run([*command, "--records-out", str(exported), "--output", str(folder)], check=False)
            if done.returncode != 0:
                return done.returncode
        every, pruned = (problems(recipe, arguments.target, limit) for limit in (EVERY_CANDIDATE, None))
        if arguments.again:
            measured, head = earlier()
        else:
            measured, head = measured_in(folder, exported, every)
    rows = {name: analyse(trials, pruned[name], measured[name]) for name, trials in every.items()}
    summary = {
        **head, "batch": BATCH, "dtype": "fp16", "accumulator": "fp32", "layers": len(rows),
        "least_legal": min(row["legal"] for row in rows.values()),
        "exhaustive_is_faster_by": geometric_mean([row["pruned_costs"] for row in rows.values()]) - 1,
        "first_by_prediction_over_exhaustive": {
            str(k): {
                way: geometric_mean(
                    [row["first_by_prediction"][str(k)][way] / row["exhaustive"] for row in rows.values()]
                )
                for way in ("predicted", "random")
            }
            for k in COUNTS
        },
    }  # fmt: skip
    result = {**record.environment("nvidia-cutlass", "onnx"), "summary": summary, "layers": rows}
    print(record.write("pruning", result, arguments.out))
    print(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
