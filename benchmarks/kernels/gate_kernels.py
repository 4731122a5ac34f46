"""The last 1x1 convolutions of SE-ResNet-50's blocks, gated as they store: the product whose store multiplies by gates,
adds the residual and applies ReLU (`gated`), beside the product that stores (`alone`) and the pass behind it that does
the same (`pass`), and the product that adds the residual without a gate (`sum`). At batch 1, 8 and 32 in fp16.
Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    python benchmarks/kernels/gate_kernels.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/gate_kernels.py FOLDER --out FILE       # on an H200: runs them, compiled or not

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.graph.ops.elementwise.arithmetic import Binary

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_image_numbers import GATED_SUM, gated
from gpu_products import RESIDUAL, TOLERANCE, conv

TARGET = gpu_harness.TARGET
FAMILIES = {family.name: family for family in load(TARGET)}
WAYS = ("gated", "alone", "pass", "sum")


@dataclass(frozen=True)
class Shape:
    """A block's last convolution: extent of its image, and channels, of which it makes four times as many."""

    batch: int
    extent: int
    channels: int

    @property
    def name(self) -> str:
        return f"b{self.batch} {self.extent} {self.channels} {4 * self.channels}"

    def layer(self, way: str) -> Layer:
        """What is computed in a way."""
        image = (self.extent, self.extent)
        x, filters = (self.batch, self.channels, *image), 4 * self.channels
        if way == "gated":
            return gated(f"{way} {self.name}", x, filters, GATED_SUM)
        if way == "pass":
            y = Input((self.batch, filters, *image))
            inputs = (y, Input((self.batch, filters, 1, 1)), y)
            stages = (stage("add", 2), RELU)
            return Layer(f"{way} {self.name}", Binary("mul"), inputs, stages, DType.F16, TOLERANCE)
        return conv(f"{way} {self.name}", x, filters, (1, 1), epilogue=RESIDUAL if way == "sum" else ())


SHAPES = tuple(Shape(batch, *sizes) for batch in (1, 8, 32) for sizes in ((56, 64), (28, 128), (14, 256), (7, 512)))


def trials(shape: Shape, way: str, count: int) -> Sequence[gpu_harness.Trial]:
    family = "portable" if way == "pass" else "cutlass"
    found = gpu_harness.trials_of(shape.layer(way), family, count)
    return [trial for trial in found if trial.shared is None][: 1 if way == "pass" else count]


def planned(count: int) -> list[kernel_trials.Planned]:
    return [
        (shape.name, way, replace(trial, timed=True))
        for shape in SHAPES
        for way in WAYS
        for trial in trials(shape, way, count)
    ]


def predicted(trial: gpu_harness.Trial) -> float:
    return 1e6 * FAMILIES[trial.candidate.family].predict(trial.step.problem, trial.candidate, TARGET)


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 2, "kernels of each way").parse_args()
    plan = planned(arguments.count)
    library = kernel_trials.library(arguments, [trial for _, _, trial in plan])
    if library is None:
        return 0
    rows = kernel_trials.measured_rows(library, plan, WAYS, predicted)
    for row in rows.values():
        row["us"] = {way: kernel_trials.best(row[way]) for way in WAYS}
    return kernel_trials.finish("gate_kernels", arguments, {"layers": rows, "wrong": kernel_trials.wrong(rows, WAYS)})


if __name__ == "__main__":
    sys.exit(main())
