"""Products of encoders as long as a GPU's power lasts: every kernel runs for so many seconds without a pause, and the
second half of them is timed. In fp16 with fp32 accumulation, beside cuBLAS's products: with a bias alone, and with what
cuBLAS has of the residual or the GELU behind them. cuBLAS adds a residual instead of a bias.

    python benchmarks/kernels/sustained_products.py FOLDER --prepare     # anywhere with nvcc
    python benchmarks/kernels/sustained_products.py FOLDER --out FILE    # on an H200

`us` is one launch, `first_us` the same as tuning would see it: a few replays of a GPU that has rested. Every kernel's
result is compared with that of the first of its product (`error`, the norm of the difference).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.wave_tiles import FAMILY, TARGET, Encoder
from bolt_build.families.base import ProposedStep

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with

ENCODERS = (Encoder("BERT-large 384 b32", 32, 384, 1024), Encoder("BERT-base 384 b32", 32, 384))
SIZES = {(128, 128, "pingpong"), (128, 256, "cooperative"), (256, 128, "cooperative")}
"""Rows, columns and schedules of tiles, in steps of 64."""
LAUNCHES, REST, SETS = 64, 0.3, 3
"""Launches of one graph of cuBLAS's, seconds of rest in front of its first runs, and sets of buffers."""


def trials_of(layer: Layer) -> list[gpu_harness.Trial]:
    """Every legal tile of these sizes, in clusters and without."""
    graph, node = graph_with(layer)
    problem = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0].problem
    step = ProposedStep(problem, tuple(f"x{index}" for index in range(len(problem.inputs))), ("y",))
    found = []
    for each in FAMILY.candidates(problem, TARGET)[0]:
        have = dict(each.parameters)
        size = (have.get("m"), have.get("n"), have.get("warpgroups"))
        if size in SIZES and have.get("k") == 64 and "partial" not in have:
            found.append(gpu_harness.Trial(layer, step, each, timed=True, large=True))
    return found


def planned_of(arguments: argparse.Namespace) -> list[gpu_harness.Trial]:
    """All kernels; those of a product are compared with its first."""
    planned: list[gpu_harness.Trial] = []
    for layer in (layer for encoder in ENCODERS if encoder.name.startswith(arguments.only) for layer in encoder.layers):
        first, found = len(planned), trials_of(layer)[: arguments.count]
        planned += [replace(trial, reference=first if index else None) for index, trial in enumerate(found)]
    return planned


def vendor(layer: Layer, rows: int, depth: int, columns: int, seconds: float) -> dict[str, dict[str, float]]:
    """cuBLAS's product with its bias, and the `same` with what is behind it, over buffers in turns."""
    import torch

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.float16)

    bias = random(columns)
    sets = [
        (random(rows, depth), (random(columns, depth) * depth**-0.5).t(), random(rows, columns)) for _ in range(SETS)
    ]
    left = [torch.empty_like(residual) for *_, residual in sets]
    alone = [(lambda i=i: torch.addmm(bias, *sets[i][:2], out=left[i])) for i in range(SETS)]
    found = {"cublas": _timed(alone, seconds)}
    if any(stage.operand is not None for stage in layer.epilogue):
        added = [(lambda i=i: torch.addmm(sets[i][2], *sets[i][:2], out=left[i])) for i in range(SETS)]
        found["same"] = _timed(added, seconds)
    elif layer.epilogue:
        gelu = [(lambda i=i: torch._addmm_activation(bias, *sets[i][:2], use_gelu=True)) for i in range(SETS)]
        found["same"] = _timed(gelu, seconds)
    else:
        found["same"] = found["cublas"]
    return found


def _timed(calls: Sequence[Callable[[], object]], seconds: float) -> dict[str, float]:
    """Microseconds of a call, run after run and at first."""
    from benchmarks.peers.vendor_layers import graph_of, replays

    graph = graph_of([*calls] * (LAUNCHES // len(calls)))
    count = LAUNCHES // len(calls) * len(calls)
    time.sleep(REST)
    first = min(replays(graph, 0.0)) / count
    runs = replays(graph, seconds)
    later = sorted(runs[len(runs) // 2 :])
    return {"us": 1e3 * later[len(later) // 2] / count, "first_us": 1e3 * first}


def measured(library: gpu_harness.Library, planned: Sequence[gpu_harness.Trial], seconds: float) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for index, trial in enumerate(planned):
        problem, name = trial.step.problem, trial.layer.label
        if name not in rows:
            shape, columns = problem.inputs[0].shape, problem.outputs[0].shape[-1]
            peers = vendor(trial.layer, prod(shape[:-1]), shape[-1], columns, seconds)
            print(f"{name}: cuBLAS {peers}", flush=True)
            rows[name] = {"gflop": problem.flops / 1e9, **peers, "kernels": []}
        rested, outcome = library.run(index), library.run(index, seconds)
        row = {
            "candidate": str(trial.candidate), "us": outcome.microseconds, "first_us": rested.microseconds,
            "error": outcome.error, "message": outcome.message,
            "predicted": FAMILY.predict(problem, trial.candidate, TARGET) * 1e6,
        }  # fmt: skip
        rows[name]["kernels"].append(row)
        print(f"{name}: {row['us']} us, first {row['first_us']} us: {trial.candidate} {outcome.message}", flush=True)
    return rows


def main() -> int:
    parser = kernel_trials.parser(__doc__, 100, "kernels of each product")
    parser.add_argument("--only", default="", help="encoders whose name begins so")
    parser.add_argument("--seconds", type=float, default=0.6)
    arguments = parser.parse_args()
    planned = planned_of(arguments)
    library = kernel_trials.library(arguments, planned)
    if library is None:
        return 0
    facts = record.environment("nvidia-cuda-nvcc", "nvidia-cutlass", "torch")
    facts["command"] = facts["command"].replace(str(arguments.folder), "FOLDER")
    rows = measured(library, planned, arguments.seconds)
    record.write("sustained_products", {**facts, "gpu": record.gpu_name(), "rows": rows}, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
