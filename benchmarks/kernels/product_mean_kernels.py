"""Convolutions on tensor cores and the means of their results over each image, in one kernel and in two: the ends of
networks, whose results nobody else reads (`end`), and squeezes, whose results are stored as well (`squeeze`). Kernels
of both (`whole`, as they have whole images), and the convolution alone (`conv`) and the mean alone (`mean`), whose
times are added up.

Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/product_mean_kernels.py FOLDER --prepare
    python benchmarks/kernels/product_mean_kernels.py FOLDER --out FILE    # on an H200: runs them, compiled or not

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, Family, ProposedStep
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.lines.reduce import Reduce

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer, graph_with
from gpu_means import step_of
from gpu_products import RESIDUAL, SILU, conv

TARGET = gpu_harness.TARGET
FAMILIES: dict[str, Family] = {family.name: family for family in load(TARGET)}
RELU = RESIDUAL[1:]
WAYS = ("conv", "mean", "whole")


@dataclass(frozen=True)
class Shape:
    """A convolution of `channels` to `filters` channels; `keeps` where what it leaves is stored beside its means."""

    what: str
    batch: int
    extent: int
    channels: int
    filters: int
    kernel: int = 1
    groups: int = 1
    epilogue: tuple[EpilogueOp, ...] = RELU
    keeps: bool = False

    @property
    def name(self) -> str:
        use = "squeeze" if self.keeps else "end"
        of = f"{self.kernel}x{self.kernel} {self.channels} to {self.filters}"
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        return f"{self.what} {use}, b{self.batch} {self.extent}x{self.extent} {of}{groups}"

    def layer(self) -> Layer:
        """The convolution alone."""
        x, window = (self.batch, self.channels, self.extent, self.extent), (self.kernel, self.kernel)
        return conv(self.name, x, self.filters, window, groups=self.groups, epilogue=self.epilogue)

    def mean(self) -> Layer:
        """The mean alone."""
        x = Input((self.batch, self.filters, self.extent, self.extent))
        return Layer(f"mean of {self.name}", Reduce("mean", (2, 3)), (x,), precision=DType.F16, tolerance=2e-3)


SHAPES = (
    Shape("MobileNetV2", 1, 7, 320, 1280), Shape("MobileNetV2", 32, 7, 320, 1280),
    Shape("EfficientNet-B0", 8, 7, 320, 1280, epilogue=SILU), Shape("EfficientNet-B0", 32, 7, 320, 1280, epilogue=SILU),
    Shape("ResNet-50", 1, 7, 512, 2048, epilogue=RESIDUAL), Shape("ResNet-50", 32, 7, 512, 2048, epilogue=RESIDUAL),
    Shape("ResNet-18", 32, 7, 512, 512, 3, epilogue=RESIDUAL),
    Shape("EfficientNet-B4", 8, 12, 448, 1792, epilogue=SILU),
    Shape("RegNetY-1.6GF", 32, 14, 336, 336, 3, 14, keeps=True),
    Shape("RegNetY-1.6GF", 32, 7, 888, 888, 3, 37, keeps=True),
    Shape("RegNetY-16GF", 8, 14, 1232, 1232, 3, 11, keeps=True),
    Shape("SE-ResNet-50", 32, 14, 256, 1024, epilogue=(), keeps=True),
    Shape("SE-ResNet-50", 32, 7, 512, 2048, epilogue=(), keeps=True),
    Shape("VoVNet", 8, 14, 1088, 768, keeps=True),
)  # fmt: skip


def alone(layer: Layer, family: str) -> ProposedStep:
    """The layer in one step from channels-last images to such."""
    graph, node = graph_with(layer)
    found = [each.steps[0] for each in FAMILIES[family].propose(graph, node, TARGET, layer.precision)[0]]
    return next(
        each
        for each in found
        if all(
            operand.format.layout is Layout.CHANNELS_LAST and operand.format.dtype is layer.precision
            for operand in (each.problem.inputs[0], *each.problem.outputs)
        )
    )


def trials_of(shape: Shape, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first kernels of each way by prediction."""
    found: list[tuple[str, gpu_harness.Trial]] = []

    def add(way: str, layer: Layer, step: ProposedStep, family: str) -> None:
        legal = FAMILIES[family].candidates(step.problem, TARGET)[0]
        ordered = sorted(legal, key=lambda each: predicted(step, each))
        found.extend((way, gpu_harness.Trial(layer, step, each, timed=True)) for each in ordered[:count])

    layer, mean = shape.layer(), shape.mean()
    add("conv", layer, alone(layer, "cutlass"), "cutlass")
    add("mean", mean, alone(mean, "portable"), "portable")
    whole, step = step_of(layer, keeps=shape.keeps)
    add("whole", whole, step, "cutlass")
    return found


def predicted(step: ProposedStep, candidate: Candidate) -> float:
    """In seconds."""
    return FAMILIES[candidate.family].predict(step.problem, candidate, TARGET)


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 3, "kernels of each way").parse_args()
    planned = [(shape.name, *each) for shape in SHAPES for each in trials_of(shape, arguments.count)]
    return kernel_trials.compare_with_one(
        "product_mean_kernels", arguments, planned, WAYS, lambda trial: 1e6 * predicted(trial.step, trial.candidate)
    )


if __name__ == "__main__":
    sys.exit(main())
