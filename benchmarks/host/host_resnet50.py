"""Times a built host engine beside onnxruntime: same model, same inputs, in turns, each in a process of its own.

bolt-build recipes/resnet50.yaml
python benchmarks/host/host_resnet50.py                       # batch 1 and 32, one and two threads
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.host.host_contest import plan_of, setups, times_of, write_inputs
from bolt_build.bench.contestant import Effort
from bolt_build.bench.turns import Entry, seated, take_turns


def contest(arguments: argparse.Namespace, inputs: Path, batch: int, threads: int) -> dict[str, Any]:
    """One row: medians of both in milliseconds over all rounds, and their ratio."""
    effort = Effort(arguments.rounds, max(1, arguments.runs // batch))
    found = setups(arguments.engine, arguments.onnx, inputs, batch, threads, effort)
    with seated({name: Entry(setup) for name, setup in found.items()}) as opponents:
        rounds = take_turns(opponents, effort.rounds)
        outputs = {name: next(iter(each.finish().values())) for name, each in opponents.items()}
    times = {name: times_of(each) for name, each in rounds.items()}
    engine, peer = (statistics.median(times[name]) for name in ("engine", "onnxruntime"))
    return {
        "batch": batch,
        "threads": threads,
        "engine_ms": round(engine, 3),
        "onnxruntime_ms": round(peer, 3),
        "engine_over_onnxruntime": round(engine / peer, 4),
        "engine_min_ms": round(min(times["engine"]), 3),
        "onnxruntime_min_ms": round(min(times["onnxruntime"]), 3),
        "timed_runs": len(times["engine"]),
        "max_abs_difference": float(np.abs(outputs["engine"] - outputs["onnxruntime"]).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=Path("generated/resnet50/host"))
    parser.add_argument("--onnx", type=Path, default=Path("generated/resnet50/model.onnx"))
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--thread-counts", default="1,2")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=20, help="timed runs a round at batch 1; fewer at larger ones")
    parser.add_argument("--result", default="host_resnet50", help="name under benchmarks/results/")
    parser.add_argument("--out", type=Path, help="write here instead")
    arguments = parser.parse_args()
    plan = plan_of(arguments.engine)
    result = {**record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"), "precision": plan.precision}
    result["rows"] = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in map(int, arguments.thread_counts.split(",")):
            for batch in map(int, arguments.batches.split(",")):
                inputs = write_inputs(Path(folder) / f"{batch}.npz", plan, batch)
                row = contest(arguments, inputs, batch, threads)
                result["rows"].append(row)
                print(json.dumps(row), flush=True)
    print(record.write(arguments.result, result, arguments.out))


if __name__ == "__main__":
    main()
