"""Runs an engine that was built for an older GPU on this one, through the PTX that lies in it: is it right, what does
the driver's translation cost, and what does it take beside the engine that was built for this GPU?

    bolt-build RECIPE                      (targets: {a100: {precision: fp16}, h200: {precision: fp16}})
    python benchmarks/correctness/gpu_ptx.py generated/NAME/a100 generated/NAME/h200 out.json

Needs torch and onnxruntime, as `gpu_checks.py` does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.correctness.gpu_checks import PreparedEngine, gpu_facts, run_worker


def first_run(directory: Path) -> dict[str, float]:
    """Seconds in this process, CUDA's own start apart: the model is created, and one run ends."""
    import numpy as np
    import torch

    torch.zeros(1, device="cuda")
    engine = PreparedEngine(directory)
    started = time.perf_counter()
    with engine.open() as model:
        created = time.perf_counter()
        with model.context(engine.batches[0]) as context:
            ports = context.inputs
            random = np.random.default_rng(1)
            context.run({p.name: random.standard_normal(p.shape).astype(p.numpy_dtype) for p in ports})
    return {"create_s": created - started, "first_run_s": time.perf_counter() - created}


def in_a_process(directory: Path, cache: Path) -> dict[str, Any]:
    """`first_run` with the driver's cache of translated kernels in `cache`."""
    environment = {**os.environ, "CUDA_CACHE_PATH": str(cache), "CUDA_CACHE_MAXSIZE": str(1 << 30)}
    command = [sys.executable, __file__, str(directory), "--first-run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"failed": done.stderr[-800:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def checked(directory: Path) -> dict[str, Any]:
    """The first run of a process with an empty cache, that of a second one, and the engine verified and timed."""
    PreparedEngine(directory)  # the model and the weights, which count nowhere
    with tempfile.TemporaryDirectory() as cache:
        translated = in_a_process(directory, Path(cache))
        cached = in_a_process(directory, Path(cache))
    return {"translated": translated, "cached": cached, **run_worker(directory, "verify,time")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=Path, nargs="+", help="target directories, and at last the JSON file to write")
    parser.add_argument("--first-run", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first_run:
        print(json.dumps(first_run(arguments.engines[0])))
        return 0
    *directories, out = arguments.engines
    found = {directory.name: checked(directory.resolve()) for directory in directories}
    facts = {**record.environment("torch", "onnxruntime", "numpy"), **gpu_facts()}
    out.write_text(json.dumps({**facts, "engines": found}, indent=1) + "\n")
    for name, each in found.items():
        print(name, each["verify"]["ok"], each["translated"], each["cached"])
    return 0 if all(each["verify"].get("ok") for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
