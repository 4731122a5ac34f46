"""Convolutions with few output channels: kernels whose sums roll through registers beside the others that the family
offers; and depthwise windows of 7x7 on tensor cores beside others. All in fp16. Every kernel is compared with NumPy,
then timed from a replayed graph over buffers that exceed L2.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/narrow_convolutions.py FOLDER --prepare
    python benchmarks/kernels/narrow_convolutions.py FOLDER --out FILE    # on an H200: runs them, compiled or not

FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.grouped.family import Grouped

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_products import RESIDUAL, conv

FAMILIES: dict[str, Cutlass | Grouped] = {"rolling": Cutlass(), "diagonal": Grouped()}
"""By the kind that is compared with the others of its family."""
TARGET = gpu_harness.TARGET
BYTES_A_SECOND = 4.3e12
"""What the H200's memory gives to kernels that read and write."""


@dataclass(frozen=True)
class Shape:
    """Images of so many channels, and a window to so many others."""

    of: str
    batch: int
    channels: int
    extent: tuple[int, int]
    filters: int
    window: int = 3
    residual: bool = False
    kind: str = "rolling"

    @property
    def family(self) -> Cutlass | Grouped:
        return FAMILIES[self.kind]

    def compares(self, candidate: Candidate) -> bool:
        """True for kernels of the kind."""
        stated = dict(candidate.parameters)
        return self.kind in stated or stated.get("kind") == self.kind

    @property
    def name(self) -> str:
        height, width = self.extent
        more = " + residual" if self.residual else ""
        window = f"{self.window}x{self.window} {self.channels} to {self.filters}"
        return f"{self.of} b{self.batch} {height}x{width} {window}{more}"

    @property
    def layer(self) -> Layer:
        x, stages = (self.batch, self.channels, *self.extent), {"epilogue": RESIDUAL} if self.residual else {}
        groups = self.channels if self.kind == "diagonal" else 1
        return conv(self.name, x, self.filters, (self.window,) * 2, groups=groups, **stages)


SHAPES = (
    Shape("DenseNet", 32, 128, (56, 56), 32), Shape("DenseNet", 32, 128, (28, 28), 32),
    Shape("DenseNet", 32, 128, (14, 14), 32), Shape("DenseNet", 1, 128, (56, 56), 32),
    Shape("ELAN", 16, 32, (80, 80), 32), Shape("ELAN", 16, 64, (40, 40), 64),
    Shape("CSP", 16, 32, (160, 160), 32, residual=True), Shape("U-Net", 8, 64, (256, 256), 16),
    Shape("super-resolution", 4, 64, (180, 320), 8), Shape("super-resolution", 4, 64, (180, 320), 64, residual=True),
    Shape("5x5", 32, 64, (56, 56), 32, 5), Shape("odd", 16, 72, (61, 45), 24),
    *(Shape("ConvNeXt depthwise", 32, c, (e, e), c, 7, kind="diagonal") for e, c in ((56, 96), (28, 192), (14, 384))),
    Shape("depthwise", 32, 120, (28, 28), 120, 5, kind="diagonal"),
)  # fmt: skip


def problem_of(shape: Shape) -> KernelProblem:
    graph, node = graph_with(shape.layer)
    return shape.family.propose(graph, node, TARGET, shape.layer.precision)[0][0].steps[0].problem


def trials_of(shape: Shape, count: int, strips: int) -> list[tuple[str, gpu_harness.Trial]]:
    """`count` kernels of the shape's kind, first the fastest by prediction of each number of warpgroups, and `count`
    - 2 others. Strips of other lengths need no other kernel."""
    problem, family = problem_of(shape), shape.family
    names = tuple(f"x{index}" for index in range(len(problem.inputs)))
    step = ProposedStep(problem, names, ("y",))
    candidates = family.candidates(problem, TARGET)[0]
    candidates = tuple(sorted(candidates, key=lambda each: family.predict(problem, each, TARGET)))
    own = [each for each in candidates if shape.compares(each)]
    teams: dict[object, Candidate] = {}
    for each in own:
        teams.setdefault(dict(each.parameters).get("rolling", len(teams)), each)
    found: list[tuple[str, Candidate]] = []
    for candidate in tuple(dict.fromkeys((*teams.values(), *own)))[:count]:
        more = family.variants(problem, candidate, TARGET)[: strips - 1]
        found += [(shape.kind, each) for each in (candidate, *more)]
    found += [("others", each) for each in candidates if not shape.compares(each)][: count - 2]
    return [(way, gpu_harness.Trial(shape.layer, step, each, timed=True)) for way, each in found]


def predicted(trial: gpu_harness.Trial) -> float:
    """Microseconds."""
    family = next(each for each in FAMILIES.values() if each.name == trial.candidate.family)
    return family.predict(trial.step.problem, trial.candidate, TARGET) * 1e6


def main() -> int:
    parser = kernel_trials.parser(__doc__, 4, "tiles of each shape")
    parser.add_argument("--strips", type=int, default=2, help="lengths of strips of each tile")
    arguments = parser.parse_args()
    planned = [(shape.name, *each) for shape in SHAPES for each in trials_of(shape, arguments.count, arguments.strips)]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned], together=1)
    if library is None:
        return 0
    found = kernel_trials.measured_rows(library, planned, (*FAMILIES, "others"), predicted)
    rows: kernel_trials.Rows = {}
    for shape in SHAPES:
        problem, ways = problem_of(shape), (shape.kind, "others")
        bound = {"bytes_us": problem.nbytes / BYTES_A_SECOND * 1e6, "gflop": problem.flops / 1e9}
        kernels = {way: found[shape.name][way] for way in ways}
        rows[shape.name] = {**bound, **kernels, "best": {way: best(kernels[way]) for way in ways}}
    wrong = kernel_trials.wrong(found, (*FAMILIES, "others"))
    return kernel_trials.finish("narrow_convolutions", arguments, {"shapes": rows, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main())
