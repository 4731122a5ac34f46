"""Depthwise convolutions that also leave the means of their results, as squeeze and excitation takes them: sums of
tiles that a second kernel adds up (`second`), that the last block to end adds up (`last`), or that a cluster of blocks
does (`cluster`). Layers of EfficientNet-B0 and MobileNetV3-small at batch 1 and 32 in fp16, some with the 1x1 in front.
Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    python benchmarks/kernels/mean_kernels.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/mean_kernels.py FOLDER --out FILE       # on an H200: runs them, compiled or not

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.common.means import LAST
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.means import CLUSTER, SECOND, split

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer
from gpu_averages import step_of
from gpu_depthwise_chains import averaged_step, expanded
from gpu_products import SILU, conv

FAMILY = Grouped()
TARGET = gpu_harness.TARGET
WAYS = {"second": SECOND, "last": LAST, "cluster": CLUSTER}


@dataclass(frozen=True)
class Shape:
    """A layer: extent of its input, channels, window and stride; `given` channels in front of a 1x1, or 0."""

    batch: int
    extent: int
    channels: int
    kernel: int
    stride: int = 1
    given: int = 0

    @property
    def name(self) -> str:
        front = f" {self.given}" if self.given else ""
        return f"b{self.batch} {self.extent} {self.kernel}x{self.kernel}s{self.stride}{front} {self.channels}"

    def step(self) -> tuple[Layer, ProposedStep]:
        """The convolution with its means, of the layer of that name."""
        extent = (self.extent, self.extent)
        if self.given:
            x = (self.batch, self.given, *extent)
            return averaged_step(expanded(self.name, x, self.channels, self.kernel, self.stride, epilogue=SILU))
        x, window = (self.batch, self.channels, *extent), (self.kernel, self.kernel)
        return step_of(
            conv(self.name, x, self.channels, window, self.stride, groups=self.channels, epilogue=SILU)
        )  # fmt: skip


SHAPES = (
    Shape(1, 112, 32, 3), Shape(1, 112, 16, 3, 2), Shape(1, 56, 144, 5, 2), Shape(1, 28, 240, 5),
    Shape(1, 14, 480, 3), Shape(1, 14, 672, 5), Shape(1, 7, 1152, 5), Shape(1, 7, 1152, 3),
    Shape(32, 112, 32, 3), Shape(32, 28, 240, 5), Shape(32, 14, 480, 3), Shape(32, 7, 1152, 5),
    Shape(1, 28, 240, 3, 2, given=40), Shape(1, 14, 480, 3, given=80), Shape(32, 28, 240, 3, 2, given=40),
)  # fmt: skip


def first_of(way: str, step: ProposedStep, count: int) -> list[Candidate]:
    found = [each for each in FAMILY.candidates(step.problem, TARGET)[0] if split(each)[1] == way]
    return sorted(found, key=lambda each: FAMILY.predict(step.problem, each, TARGET))[:count]


def planned(count: int) -> list[kernel_trials.Planned]:
    found: list[kernel_trials.Planned] = []
    for shape in SHAPES:
        layer, step = shape.step()
        for name, way in WAYS.items():
            some = first_of(way, step, count)
            found += [(shape.name, name, gpu_harness.Trial(layer, step, each, timed=True)) for each in some]
    return found


def main() -> int:
    parser = kernel_trials.parser(__doc__, 2, "kernels of each way")
    arguments = parser.parse_args()
    plan = planned(arguments.count)
    library = kernel_trials.library(arguments, [trial for _, _, trial in plan])
    if library is None:
        return 0

    def predicted(trial: gpu_harness.Trial) -> float:
        return 1e6 * FAMILY.predict(trial.step.problem, trial.candidate, TARGET)

    rows = kernel_trials.measured_rows(library, plan, tuple(WAYS), predicted)
    for row in rows.values():
        row["us"] = {way: kernel_trials.best(row[way]) for way in WAYS}
    return kernel_trials.finish(
        "mean_kernels", arguments, {"layers": rows, "wrong": kernel_trials.wrong(rows, tuple(WAYS))}
    )


if __name__ == "__main__":
    sys.exit(main())
