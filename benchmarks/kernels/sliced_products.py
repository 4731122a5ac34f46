"""Products of few tiles whose depth is computed in slices: by the blocks of a cluster that add them up, by two kernels
(split-K), and not in slices. Shapes are of ResNet-50, EfficientNet-B0, BERT and ViT at batch 1, in fp16 with fp32 sums.
Every kernel is compared with NumPy, then timed from a replayed graph over buffers that exceed L2.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/sliced_products.py FOLDER --prepare
    python benchmarks/kernels/sliced_products.py FOLDER --out FILE    # on an H200: runs them, compiled or not

FOLDER keeps what was compiled. Of each way the first `--count` kernels by prediction are tried. Times are us of one
execution, the second kernel's included.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families import load
from bolt_build.families.base import Candidate

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_products import GELU, RESIDUAL, conv, matmul

FAMILY = next(family for family in load(gpu_harness.TARGET) if family.name == "cutlass")
WAYS = ("clusters", "two kernels", "whole")


def _layers() -> list[Layer]:
    relu = RESIDUAL[1:]
    return [
        conv("3x3 of 128 at 28x28", (1, 128, 28, 28), 128, (3, 3), epilogue=relu),
        conv("3x3 of 256 at 14x14", (1, 256, 14, 14), 256, (3, 3), epilogue=relu),
        conv("3x3 of 512 at 7x7", (1, 512, 7, 7), 512, (3, 3), epilogue=relu),
        conv("1x1 of 512 to 128 at 28x28", (1, 512, 28, 28), 128, (1, 1), epilogue=relu),
        conv("1x1 of 1024 to 256 at 14x14", (1, 1024, 14, 14), 256, (1, 1), epilogue=relu),
        conv("1x1 of 2048 to 512 at 7x7", (1, 2048, 7, 7), 512, (1, 1), epilogue=relu),
        conv("1x1 of 512 to 2048 at 7x7, residual", (1, 512, 7, 7), 2048, (1, 1), epilogue=RESIDUAL),
        conv("1x1 of 672 to 112 at 14x14", (1, 672, 14, 14), 112, (1, 1), epilogue=()),
        conv("1x1 of 1152 to 192 at 7x7", (1, 1152, 7, 7), 192, (1, 1), epilogue=()),
        matmul("128 rows, 3072 to 768", (128, 3072), 768, True, ()),
        matmul("128 rows, 768 to 768", (128, 768), 768, True, ()),
        matmul("128 rows, 768 to 3072, GELU", (128, 768), 3072, True, GELU),
        matmul("197 rows, 3072 to 768", (197, 3072), 768, True, ()),
        matmul("50 rows, 3072 to 768", (50, 3072), 768, True, ()),
    ]


def way_of(candidate: Candidate) -> str:
    stated = dict(candidate.parameters)
    return "clusters" if "deep_cluster" in stated else "two kernels" if "partial" in stated else "whole"


def trials_of(layer: Layer, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first kernels of each way by prediction."""
    graph, node = graph_with(layer)
    step = FAMILY.propose(graph, node, gpu_harness.TARGET, layer.precision)[0][0].steps[0]
    candidates = FAMILY.candidates(step.problem, gpu_harness.TARGET)[0]
    return [
        (way, replace(gpu_harness.Trial(layer, step, candidate), timed=True))
        for way in WAYS
        for candidate in [each for each in candidates if way_of(each) == way][:count]
    ]


def completed(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """With the fastest of each way, and how much longer the faster of the others takes."""
    for row in rows.values():
        own, *others = (best(row[way]) for way in WAYS)
        row["best"] = dict(zip(WAYS, (own, *others), strict=True))
        left = min((us for us in others if us is not None), default=None)
        row["gain"] = None if own is None or left is None else left / own
    return {"shapes": rows, "wrong": kernel_trials.wrong(rows, WAYS)}


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 4, "candidates of each way").parse_args()
    planned = [(layer.label, *each) for layer in _layers() for each in trials_of(layer, arguments.count)]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    return kernel_trials.finish(
        "sliced_products", arguments, completed(kernel_trials.measured_rows(library, planned, WAYS))
    )


if __name__ == "__main__":
    sys.exit(main())
