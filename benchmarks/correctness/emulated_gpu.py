"""Runs every trial of the GPU kernels on the emulated GPU (bolt_build/emulator), in order and in shuffled orders, and
says which were wrong. Needs nvcc and no GPU.

    python benchmarks/correctness/emulated_gpu.py FOLDER [--target a100] [--only grouped] [--seeds 3] [--out FILE]

FOLDER keeps what was compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record

FEW = 5
"""Multiprocessors in shuffled orders: each works through several tiles of most trials."""


def prepared(folder: Path, only: str | None) -> float:
    """Compiles what is not compiled yet, of all families or of one; seconds."""
    import emulated
    import gpu_harness
    import gpu_layers

    from bolt_build.toolchain import probe

    begun = time.monotonic()
    chain = probe(emulated.TARGET.tools)
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        raise SystemExit(" ".join(diagnostic.message for diagnostic in chain.diagnostics()))
    chosen = gpu_layers.trials() if emulated.TARGET.name == "h200" else gpu_layers.of_warps()
    chosen = [trial for trial in chosen if only in (None, trial.candidate.family)]
    gpu_harness.write([trial for trial in chosen if not trial.large], folder)
    runtime = emulated.link_flags()
    gpu_harness.compile_all(folder, Path(nvcc), Path(cutlass).parent, emulated.compile_flags(), runtime)
    return time.monotonic() - begun


def part(folder: Path, first: int, step: int) -> None:
    """Runs every `step`th trial and prints those that are wrong, and at last how many it ran. A kernel that stops the
    device ends the process; another goes on behind it."""
    import gpu_harness

    library = gpu_harness.Library(folder)
    for index in range(first, len(library.trials), step):
        outcome = library.run(index)
        wrong = outcome.message != "" or not outcome.error <= 1.0
        print(json.dumps({"index": index, "wrong": [outcome.label, outcome.error, outcome.message] if wrong else None}))
        if outcome.message:
            return


def run(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Every trial, on all processors."""
    begun = time.monotonic()
    step = len(os.sched_getaffinity(0))

    def worker(first: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            target = os.environ["BOLT_GPU_TARGET"]
            words = [str(folder), "--target", target, "--part", str(first), str(step)]
            command = [sys.executable, __file__, *words]
            around = {**os.environ, **environment}
            done = subprocess.run(command, env=around, stdout=subprocess.PIPE, text=True, check=False)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            found += lines
            if not lines or not (lines[-1]["wrong"] and lines[-1]["wrong"][2]):
                return found
            first = lines[-1]["index"] + step

    with ThreadPoolExecutor(step) as pool:
        lines = [line for found in pool.map(worker, range(step)) for line in found]
    wrong = [line["wrong"] for line in lines if line["wrong"]]
    return {"environment": environment, "trials": len(lines), "wrong": wrong, "seconds": time.monotonic() - begun}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="h200", help="whose kernels: those of earlier GPUs run from their PTX")
    parser.add_argument("--only", help="the kernels of this family alone")
    parser.add_argument("--seeds", type=int, default=3, help="shuffled orders")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["BOLT_GPU_TARGET"] = arguments.target
    sys.path[:0] = map(str, TESTS)
    if arguments.part:
        part(arguments.folder, *arguments.part)
        return 0
    compiled = prepared(arguments.folder, arguments.only)
    print(f"compiled in {compiled:.0f} s", flush=True)
    runs = []
    for seed in range(arguments.seeds + 1):
        shuffled = {"EMULATED_SEED": str(seed), "EMULATED_MULTIPROCESSORS": str(FEW)} if seed else {}
        runs.append(run(arguments.folder, shuffled))
        print(f"{shuffled or 'in order'}: {runs[-1]['trials']} trials, {len(runs[-1]['wrong'])} wrong", flush=True)
    facts = record.environment("nvidia-cuda-nvcc", "nvidia-cutlass")
    facts["command"] = facts["command"].replace(str(arguments.folder), "FOLDER")
    facts |= {"target": arguments.target, "only": arguments.only, "compile_s": compiled, "runs": runs}
    record.write("_".join(filter(None, ("emulated", arguments.only, arguments.target))), facts, arguments.out)
    return 1 if any(each["wrong"] for each in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
