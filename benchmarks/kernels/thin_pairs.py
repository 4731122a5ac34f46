"""Two products of few channels, as in the MLPs of the first stages of networks: 1x1 convolutions to two or four times
the channels and back, with GELU or SiLU between and a residual behind, or ReLU alone. By two kernels (`first` and
`second`, whose times are added up), by one whose blocks share tiles (`shared`), and by one whose warps have rows of
their own (`thin`).

Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/thin_pairs.py FOLDER --prepare
    python benchmarks/kernels/thin_pairs.py FOLDER --out FILE    # on an H200: runs them, compiled or not

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
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import Layout

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_pairs import pair, steps_of
from gpu_products import GELU, RESIDUAL, SILU, conv

TARGET, FAMILY = gpu_harness.TARGET, Cutlass()
FUNCTIONS = {"GELU": (GELU, RESIDUAL[:1]), "SiLU": (SILU, RESIDUAL[:1]), "ReLU": (RESIDUAL[1:], RESIDUAL[1:])}
"""What comes between and behind."""
WAYS = ("first", "second", "shared", "thin")


@dataclass(frozen=True)
class Shape:
    """`channels` to so many `times` as many and back, over `extent` by `extent` pixels."""

    batch: int
    extent: int
    channels: int
    function: str = "GELU"
    times: int = 4

    @property
    def wide(self) -> int:
        """Channels between."""
        return self.times * self.channels

    @property
    def name(self) -> str:
        return f"b{self.batch} {self.extent}x{self.extent} {self.channels} to {self.wide} and back, {self.function}"

    def layers(self) -> tuple[Layer, Layer]:
        """Both products."""
        x, wide = ((self.batch, channels, self.extent, self.extent) for channels in (self.channels, self.wide))
        between, behind = FUNCTIONS[self.function]
        first = conv(f"{self.name}: first", x, self.wide, (1, 1), epilogue=between)
        second = conv(f"{self.name}: second", wide, self.channels, (1, 1), epilogue=behind)
        return first, second


SHAPES = (
    Shape(32, 64, 24), Shape(32, 56, 32), Shape(32, 56, 40), Shape(32, 56, 48), Shape(32, 28, 48), Shape(32, 56, 64),
    Shape(32, 28, 96), Shape(8, 56, 40), Shape(8, 28, 64), Shape(32, 56, 40, "ReLU"), Shape(32, 56, 64, "ReLU"),
    Shape(32, 32, 64, "SiLU", times=2), Shape(32, 16, 96, "SiLU", times=2),
)  # fmt: skip


def alone(layer: Layer) -> ProposedStep:
    """The layer in one step between channels-last images."""
    graph, node = graph_with(layer)
    found = [each.steps[0] for each in FAMILY.propose(graph, node, TARGET, layer.precision)[0]]
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
    first, second = shape.layers()
    both = pair(first, second)
    found = []
    for way, layer, step in (
        ("first", first, alone(first)), ("second", second, alone(second)),
        ("shared", both, steps_of(both)[0]), ("thin", both, steps_of(both)[0]),
    ):  # fmt: skip
        of_way = [
            each
            for each in FAMILY.candidates(step.problem, TARGET)[0]
            if layer is not both or ("warps" in dict(each.parameters)) == (way == "thin")
        ]
        ordered = sorted(of_way, key=lambda each: predicted(step, each))
        found += [(way, gpu_harness.Trial(layer, step, each, timed=True)) for each in ordered[:count]]
    return found


def predicted(step: ProposedStep, candidate: Candidate) -> float:
    """In seconds."""
    return FAMILY.predict(step.problem, candidate, TARGET)


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 3, "kernels of each way").parse_args()
    planned = [(shape.name, *each) for shape in SHAPES for each in trials_of(shape, arguments.count)]
    return kernel_trials.compare_with_one(
        "thin_pairs", arguments, planned, WAYS, lambda trial: 1e6 * predicted(trial.step, trial.candidate)
    )


if __name__ == "__main__":
    sys.exit(main())
