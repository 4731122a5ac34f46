"""Times the host engine of a model in half precision beside that of the same model in fp32, and onnxruntime on both.

Writes the half-precision model, builds both engines, and runs all contestants in turns, each in a process of its own.

    python benchmarks/host/half_models.py              # ResNet-50, batch 1, one thread
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.host.host_contest import plan_of, setups, times_of, write_inputs
from bolt_build.bench.contestant import Effort
from bolt_build.bench.turns import Entry, seated, take_turns

RECIPES = {
    "fp32": "bolt: 1\nname: fp32\nmodel: {zoo: ZOO, batch: BATCH}\ntargets: {host: {}}\n",
    "fp16": "bolt: 1\nname: fp16\nmodel: {onnx: fp16.onnx, batch: BATCH}\ntargets: {host: {}}\n",
}


def write_half(source: Path, to: Path) -> None:
    """The model at `source` with every fp32 tensor in fp16."""
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(model, to)


def build(folder: Path, zoo: str, batch: int) -> None:
    """Both engines, verified, under `folder`/generated. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in RECIPES.items():
        recipe = folder / f"{name}.yaml"
        recipe.write_text(text.replace("ZOO", zoo).replace("BATCH", str(batch)))
        if name == "fp16":
            write_half(folder / "generated/fp32/model.onnx", folder / "fp16.onnx")
        subprocess.run([sys.executable, "-m", "bolt_build", str(recipe), "--quiet"], cwd=folder, check=True)


def contest(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Medians over all rounds, and how far outputs are from those of the fp32 engine."""
    effort, built = Effort(arguments.rounds, 1), folder / "generated"
    models = {"fp32": built / "fp32/model.onnx", "fp16": folder / "fp16.onnx"}
    # Numbers that fp16 has exactly, so that rounding gives no contestant other ones.
    inputs = write_inputs(folder / "inputs.npz", plan_of(built / "fp16/host"), arguments.batch)
    entries = {
        f"{who}-{name}": Entry(setup)
        for name, model in models.items()
        for who, setup in setups(
            built / name / "host", model, inputs, arguments.batch, arguments.threads, effort
        ).items()
    }
    with seated(entries) as opponents:
        rounds = take_turns(opponents, effort.rounds)
        outputs = {name: next(iter(each.finish().values())) for name, each in opponents.items()}
    times = {name: times_of(each) for name, each in rounds.items()}
    ratios = [half / single for half, single in zip(times["engine-fp16"], times["engine-fp32"], strict=True)]
    return {
        **record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"),
        "model": arguments.zoo, "batch": arguments.batch, "threads": arguments.threads, "rounds": arguments.rounds,
        "load_average": round(os.getloadavg()[0], 2),
        "median_ms": {name: round(statistics.median(found), 3) for name, found in times.items()},
        "least_ms": {name: round(min(found), 3) for name, found in times.items()},
        "engine_fp16_over_fp32": round(statistics.median(ratios), 4),
        "max_abs_difference_from_fp32": {
            name: float(np.abs(output - outputs["engine-fp32"]).max())
            for name, output in outputs.items() if name != "engine-fp32"
        },
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where models and engines are kept (default: removed at the end)")
    parser.add_argument("--zoo", default="resnet50")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--out", type=Path, help="write here instead of benchmarks/results/half_models.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        build(folder, arguments.zoo, arguments.batch)
        result = contest(arguments, folder)
    print(json.dumps(result, indent=1))
    print(record.write("half_models", result, arguments.out))


if __name__ == "__main__":
    main()
