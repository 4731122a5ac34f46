"""Convolutions with groups of many channels: products side by side in tiles of WGMMA and in bands (`side by side`),
bands of whole groups (`bands`), and what multiplies on the instructions of one warp (`warps`). Shapes are of
SqueezeBERT, ResNeXt, RegNet and ShuffleNet, in fp16 with fp32 sums. Each kernel is timed from a replayed graph over
buffers that exceed L2, and compared with the shape's first.

    python benchmarks/kernels/group_products.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/group_products.py FOLDER --out FILE       # on an H200: runs them, compiled or not

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import chain_kernels, kernel_trials
from bolt_build.families import load
from bolt_build.families.base import Candidate, ProposedStep

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_products import GELU, RESIDUAL, conv

TARGET = gpu_harness.TARGET
FAMILIES = {family.name: family for family in load(TARGET) if family.name in ("cutlass", "grouped")}
WAYS = ("side by side", "bands", "warps")


def layers() -> list[Layer]:
    """A row of the result each, of which the label is the name."""
    relu = RESIDUAL[1:]
    of_bert = [
        (f"1x1 of 4 x {given // 4} to 4 x {made // 4}, {rows} x 128{words}", (rows, given, 128), made, epilogue)
        for rows in (8, 32)
        for given, made, words, epilogue in (
            (768, 768, "", ()),
            (768, 3072, ", GELU", GELU),
            (3072, 768, ", residual", RESIDUAL[:1]),
        )
    ]
    return [
        *(conv(name, x, made, (1,), groups=4, epilogue=epilogue) for name, x, made, epilogue in of_bert),
        conv("1x1 of 3 x 80 at 28x28", (32, 240, 28, 28), 240, (1, 1), groups=3, epilogue=relu),
        conv("3x3 of 64 x 32 at 7x7", (32, 2048, 7, 7), 2048, (3, 3), groups=64, epilogue=relu),
        conv("3x3 of 14 x 56 at 14x14", (32, 784, 14, 14), 784, (3, 3), groups=14, epilogue=relu),
        conv("3x3 of 11 x 112 at 14x14", (32, 1232, 14, 14), 1232, (3, 3), groups=11, epilogue=relu),
        conv("3x3 of 8 x 168 at 14x14", (32, 1344, 14, 14), 1344, (3, 3), groups=8, epilogue=relu),
        conv("3x3 of 6 x 232 at 28x28, stride 2", (32, 1392, 28, 28), 1392, (3, 3), 2, groups=6, epilogue=relu),
        conv("5x5 of 2 x 48 to 2 x 128 at 27x27", (32, 96, 27, 27), 256, (5, 5), groups=2, epilogue=relu),
    ]


def way_of(candidate: Candidate) -> str:
    stated = dict(candidate.parameters)
    return "warps" if candidate.family == "grouped" else "side by side" if "groups" in stated else "bands"


def _step(layer: Layer, family: str) -> ProposedStep:
    graph, node = graph_with(layer)
    return FAMILIES[family].propose(graph, node, TARGET, layer.precision)[0][0].steps[0]


def trials_of(layer: Layer, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first kernels of each way by prediction."""
    found: dict[str, list[gpu_harness.Trial]] = {way: [] for way in WAYS}
    for name, family in FAMILIES.items():
        step = _step(layer, name)
        offered = family.candidates(step.problem, TARGET)[0]
        for candidate in sorted(offered, key=lambda each: family.predict(step.problem, each, TARGET)):
            trial = gpu_harness.Trial(layer, step, candidate, large=True, timed=True)
            found[way_of(candidate)].append(trial)
    return [(way, trial) for way, some in found.items() for trial in some[:count]]


def planned(count: int) -> list[kernel_trials.Planned]:
    """Of each layer one kernel behind the other, all of which refer to the first."""
    found: list[kernel_trials.Planned] = []
    for layer in layers():
        first = len(found)
        for way, trial in trials_of(layer, count):
            found.append((layer.label, way, replace(trial, reference=None if len(found) == first else first)))
    return found


def predicted(trial: gpu_harness.Trial) -> float:
    """In us."""
    return 1e6 * FAMILIES[trial.candidate.family].predict(trial.step.problem, trial.candidate, TARGET)


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 4, "candidates of each way").parse_args()
    plan = planned(arguments.count)
    if kernel_trials.library(arguments, [trial for _, _, trial in plan]) is None:
        return 0
    # Inputs are made in no time that matters beside a kernel's.
    library = chain_kernels.Library(arguments.folder)
    rows = kernel_trials.measured_rows(library, plan, WAYS, predicted)
    for row in rows.values():
        row["best"] = {way: kernel_trials.best(row[way]) for way in WAYS}
    return kernel_trials.finish("group_products", arguments, {"layers": rows, "wrong": kernel_trials.wrong(rows, WAYS)})


if __name__ == "__main__":
    sys.exit(main())
