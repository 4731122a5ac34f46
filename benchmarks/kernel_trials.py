"""Single kernels on a GPU, right or not and how fast: what the benchmarks of kinds of kernels share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

import gpu_harness

from bolt_build.toolchain import probe


def prepare(folder: Path, trials: Sequence[gpu_harness.Trial], **options: int) -> None:
    """Writes and compiles what is not there yet; `options` are those of `gpu_harness.write`. Raises SystemExit where a
    compiler is missing."""
    chain = probe(gpu_harness.TARGET.tools)
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        raise SystemExit(" ".join(diagnostic.message for diagnostic in chain.diagnostics()))
    gpu_harness.write(trials, folder, **options)
    gpu_harness.compile_all(folder, Path(nvcc), Path(cutlass).parent)


def measured(library: gpu_harness.Library, index: int) -> dict[str, Any]:
    """One kernel: its time in us, and the largest difference from NumPy in parts of the tolerance."""
    trial, outcome = library.trials[index], library.run(index)
    right = outcome.message == "" and outcome.error <= 1.0
    return {
        "candidate": str(trial.candidate), "us": outcome.microseconds if right else None, "error": outcome.error,
        "message": outcome.message,
    }  # fmt: skip
