"""Times the host engine of a model in half precision beside that of the same model in fp32, and onnxruntime on both.

Writes the half-precision model, builds both engines, and runs all contestants in turns, each in a process of its own
that sleeps on a pipe meanwhile (as host_resnet50.py does).

    python benchmarks/half_models.py              # ResNet-50, batch 1, one thread
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import record
from host_resnet50 import read, seeded
from onnx import numpy_helper

from bolt_build.runtime.loader import Engine

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


def contestant(arguments: argparse.Namespace) -> Any:
    """A callable that runs once on seeded inputs and returns the first output."""
    kind, name = arguments.worker.split("-")
    if kind == "engine":
        directory = arguments.folder / "generated" / name / "host"
        model = Engine(directory / f"lib{name}.so").create(directory / f"{name}.weights", threads=arguments.threads)
        context = model.context(arguments.batch)
        ports = context.inputs
        arrays = seeded({port.name: port.shape for port in ports})
        feed = {port.name: arrays[port.name].astype(port.numpy_dtype) for port in ports}
        return lambda: next(iter(context.run(feed).values()))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = arguments.threads, 3
    path = arguments.folder / ("fp16.onnx" if name == "fp16" else "generated/fp32/model.onnx")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = seeded({port.name: (arguments.batch, *port.shape[1:]) for port in session.get_inputs()})
    feed = {key: array.astype(f"float{name.removeprefix('fp')}") for key, array in arrays.items()}
    return lambda: session.run(None, feed)[0]


def work(arguments: argparse.Namespace) -> None:
    """Answers each line on stdin with the milliseconds of one run; the first answer is the output's head."""
    call = contestant(arguments)
    print(json.dumps(np.asarray(call(), np.float64).reshape(-1)[:1000].tolist()), flush=True)
    for _ in sys.stdin:
        call()
        started = time.perf_counter()
        call()
        print(json.dumps((time.perf_counter() - started) * 1e3), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where models and engines are kept (default: removed at the end)")
    parser.add_argument("--zoo", default="resnet50")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        build(folder, arguments.zoo, arguments.batch)
        result = contest(arguments, folder)
    print(json.dumps(result, indent=1))
    print(record.write("half_models", result))


def contest(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Medians over all rounds, and how far outputs are from those of the fp32 engine."""
    names = ("engine-fp32", "engine-fp16", "onnxruntime-fp32", "onnxruntime-fp16")
    common = [*sys.argv[1:], "--folder", str(folder), "--worker"]
    started = {
        name: subprocess.Popen(
            [sys.executable, __file__, *common, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    }
    heads = {name: np.array(json.loads(read(process))) for name, process in started.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    for index in range(arguments.rounds):
        for name in names if index % 2 == 0 else names[::-1]:
            stdin = started[name].stdin
            assert stdin is not None
            stdin.write("\n")
            stdin.flush()
            times[name].append(json.loads(read(started[name])))
    for process in started.values():
        process.communicate()
    ratios = [half / single for half, single in zip(times["engine-fp16"], times["engine-fp32"], strict=True)]
    return {
        **record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"),
        "model": arguments.zoo, "batch": arguments.batch, "threads": arguments.threads, "rounds": arguments.rounds,
        "load_average": round(os.getloadavg()[0], 2),
        "median_ms": {name: round(statistics.median(found), 3) for name, found in times.items()},
        "least_ms": {name: round(min(found), 3) for name, found in times.items()},
        "engine_fp16_over_fp32": round(statistics.median(ratios), 4),
        "max_abs_difference_from_fp32": {
            name: float(np.abs(heads[name] - heads["engine-fp32"]).max()) for name in names[1:]
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()
