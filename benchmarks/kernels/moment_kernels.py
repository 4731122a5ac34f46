"""Convolutions and the normalisation of their images, in one step and in two: kernels that leave mean and squares of
images, with the pass behind them (`moments`), the same kernel alone (`same`), and the fastest by prediction of the
convolution alone (`conv`) and of the normalisation alone (`norm`), whose times are added up.

Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/moment_kernels.py FOLDER --prepare
    python benchmarks/kernels/moment_kernels.py FOLDER --out FILE    # on an H200: runs them, compiled or not

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.product_mean_kernels import FAMILIES, alone, predicted

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer
from gpu_moments import ADD_BEHIND, LEAKY, step_of
from gpu_products import SILU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.norms.norm import Norm

WAYS = ("conv", "norm", "same", "moments")


@dataclass(frozen=True)
class Shape:
    """A convolution of `channels` to `filters`; `groups` of these have a statistic each, 0: each channel."""

    what: str
    batch: int
    extents: tuple[int, ...]
    channels: int
    filters: int
    kernel: int
    groups: int
    behind: tuple[EpilogueOp, ...]
    stride: int = 1
    epilogue: tuple[EpilogueOp, ...] = ()

    @property
    def name(self) -> str:
        extents = "x".join(map(str, self.extents))
        step = f"s{self.stride}" if self.stride > 1 else ""
        return f"{self.what}, b{self.batch} {extents} {self.kernel}{step} {self.channels} to {self.filters}"

    def layer(self) -> Layer:
        """The convolution alone."""
        x, window = (self.batch, self.channels, *self.extents), (self.kernel,) * len(self.extents)
        return conv(self.name, x, self.filters, window, self.stride, epilogue=self.epilogue)

    def norm(self) -> Layer:
        """The normalisation alone, of what the convolution leaves."""
        extents = tuple(-(-extent // self.stride) for extent in self.extents)
        y, rank = (self.batch, self.filters, *extents), 2 + len(extents)
        op = Norm("variance", tuple(range(1 if self.groups else 2, rank)), 1e-5, self.groups or 1)
        of_channels = (self.filters, *(1,) * len(extents))
        inputs = (Input(y), Input(of_channels, True, 0.5, 1.5), Input(of_channels, True, -0.5, 0.5))
        inputs += tuple(Input(y) for stage in self.behind if stage.operand is not None)
        return Layer(f"norm of {self.name}", op, inputs, self.behind, DType.F16, 2e-3)


SHAPES = (
    Shape("nnU-Net", 8, (128, 128), 64, 64, 3, 0, LEAKY),
    Shape("nnU-Net", 8, (256, 256), 32, 64, 3, 0, LEAKY, 2),
    Shape("nnU-Net", 8, (256, 256), 32, 32, 3, 0, LEAKY),
    Shape("RAFT", 4, (46, 62), 128, 128, 3, 0, ADD_BEHIND),
    Shape("ResNet-50 GN", 32, (56, 56), 64, 256, 1, 32, ADD_BEHIND),
    Shape("ResNet-50 GN", 32, (14, 14), 256, 1024, 1, 32, ADD_BEHIND),
    Shape("VAE", 1, (256, 256), 256, 256, 3, 32, SILU),
    Shape("Conv-TasNet", 4, (3999,), 128, 512, 1, 1, (), epilogue=LEAKY),
)


def first(step: ProposedStep, family: str, count: int) -> list[Candidate]:
    """The first by prediction."""
    legal = FAMILIES[family].candidates(step.problem, gpu_harness.TARGET)[0]
    return sorted(legal, key=lambda each: predicted(step, each))[:count]


def trials_of(shape: Shape, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first kernels of each way by prediction."""
    layer, norm = shape.layer(), shape.norm()
    large = prod((shape.batch, shape.filters, *shape.extents)) > 1 << 20
    found: list[tuple[str, gpu_harness.Trial]] = []
    one, other = alone(layer, "cutlass"), alone(norm, "portable")
    whole, step = step_of(layer, shape.groups, behind=shape.behind)
    fused = first(step, "cutlass", count)
    same = [replace(each, parameters=tuple(p for p in each.parameters if p[0] != "sums")) for each in fused]
    ways = (
        ("conv", layer, one, first(one, "cutlass", 1)), ("norm", norm, other, first(other, "portable", 1)),
        ("same", layer, one, same[:1]), ("moments", whole, step, fused),
    )  # fmt: skip
    for way, of, its, candidates in ways:
        found.extend((way, gpu_harness.Trial(of, its, each, timed=True, large=large)) for each in candidates)
    return found


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 2, "kernels of each way").parse_args()
    planned = [(shape.name, *each) for shape in SHAPES for each in trials_of(shape, arguments.count)]
    return kernel_trials.compare_with_one(
        "moment_kernels", arguments, planned, WAYS, lambda trial: 1e6 * predicted(trial.step, trial.candidate)
    )


if __name__ == "__main__":
    sys.exit(main())
