"""Times a built host engine beside onnxruntime: same model, same inputs, one run, interleaved medians.

Each contestant lives in a process of its own that sleeps on a pipe while the other runs, so neither's waiting threads
disturb the other. A round is one warm-up and a few timed runs of each, in alternating order.

    bolt-build recipes/resnet50.yaml
    python benchmarks/host_resnet50.py                       # batch 1 and 32, one and two threads
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import record

from bolt_build.runtime.loader import Engine


def engine_worker(directory: Path, batch: int, threads: int) -> Any:
    """A callable that runs the engine once on seeded inputs and returns its first output."""
    name = plan_of(directory)["name"]
    engine = Engine(directory / f"lib{name}.so")
    model = engine.create(directory / f"{name}.weights", threads=threads)
    context = model.context(batch)
    feed = seeded({port.name: port.shape for port in engine.inputs(batch)})
    return lambda: next(iter(context.run(feed).values()))


def plan_of(directory: Path) -> Any:
    """The engine plan that the engine in `directory` was emitted from."""
    return json.loads((directory / "engine.json").read_text())


def onnxruntime_worker(onnx: Path, batch: int, threads: int) -> Any:
    """The same for an onnxruntime session with all its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    feed = seeded({port.name: (batch, *port.shape[1:]) for port in session.get_inputs()})
    return lambda: session.run(None, feed)[0]


def seeded(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    random = np.random.RandomState(7)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def work(arguments: argparse.Namespace) -> None:
    """Answers each line "N" on stdin with the seconds of N runs; the first answer holds the output's head."""
    if arguments.worker == "engine":
        call = engine_worker(arguments.engine, arguments.batch, arguments.threads)
    else:
        call = onnxruntime_worker(arguments.onnx, arguments.batch, arguments.threads)
    print(json.dumps(np.asarray(call(), np.float64).reshape(-1)[:1000].tolist()), flush=True)
    for line in sys.stdin:
        call()
        times = []
        for _ in range(int(line)):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        print(json.dumps(times), flush=True)


def contest(arguments: argparse.Namespace, batch: int, threads: int) -> dict[str, Any]:
    """One row: medians of both in milliseconds over all rounds, and their ratio."""
    names = ("engine", "onnxruntime")
    started = {name: start(arguments, name, batch, threads) for name in names}
    heads = {name: np.array(json.loads(read(process))) for name, process in started.items()}
    runs = max(1, arguments.runs // batch)
    times: dict[str, list[float]] = {name: [] for name in names}
    for index in range(arguments.rounds):
        for name in names if index % 2 == 0 else names[::-1]:
            process = started[name]
            assert process.stdin is not None
            process.stdin.write(f"{runs}\n")
            process.stdin.flush()
            times[name] += json.loads(read(process))
    for process in started.values():
        process.communicate()
    engine, peer = (statistics.median(times[name]) * 1e3 for name in names)
    difference = float(np.max(np.abs(heads["engine"] - heads["onnxruntime"])))
    return {
        "batch": batch,
        "threads": threads,
        "engine_ms": round(engine, 3),
        "onnxruntime_ms": round(peer, 3),
        "engine_over_onnxruntime": round(engine / peer, 4),
        "engine_min_ms": round(min(times["engine"]) * 1e3, 3),
        "onnxruntime_min_ms": round(min(times["onnxruntime"]) * 1e3, 3),
        "timed_runs": len(times["engine"]),
        "max_abs_difference": difference,
    }


def start(arguments: argparse.Namespace, worker: str, batch: int, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--worker", worker, "--batch", str(batch), "--threads", str(threads)]
    command += ["--engine", str(arguments.engine), "--onnx", str(arguments.onnx)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a worker died: see its message above")
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=Path("generated/resnet50/host"))
    parser.add_argument("--onnx", type=Path, default=Path("generated/resnet50/model.onnx"))
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--thread-counts", default="1,2")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=20, help="timed runs a round at batch 1; fewer at larger ones")
    parser.add_argument("--result", default="host_resnet50", help="name under benchmarks/results/")
    parser.add_argument("--worker", choices=("engine", "onnxruntime"), help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    precision = plan_of(arguments.engine)["precision"]
    result = {**record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"), "precision": precision}
    result["rows"] = []
    for threads in map(int, arguments.thread_counts.split(",")):
        for batch in map(int, arguments.batches.split(",")):
            row = contest(arguments, batch, threads)
            result["rows"].append(row)
            print(json.dumps(row), flush=True)
    print(record.write(arguments.result, result))


if __name__ == "__main__":
    main()
