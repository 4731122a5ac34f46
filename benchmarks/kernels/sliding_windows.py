"""Depthwise convolutions whose windows slide down an image beside the other kernels that the family offers: of known
networks, and of shapes that no network has; alone, and with the means of what they leave. Each is timed from a replayed
graph over buffers that exceed L2. All in fp16. Of a problem the others come first; the first result of these is what
all later ones are compared with, and itself with NumPy where a batch of 1 makes that short.

    python benchmarks/kernels/sliding_windows.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/sliding_windows.py FOLDER --out FILE    # on an H200: runs them

FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import chain_kernels, kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep
from bolt_build.families.grouped.family import Grouped
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer
from gpu_averages import alone, step_of
from gpu_products import SILU, conv

FAMILY = Grouped()
TARGET = gpu_harness.TARGET
WAYS = ("sliding", "others")
BYTES_A_SECOND = 4.3e12
"""What the H200's memory gives to kernels that read and write."""
RELU = (EpilogueOp(Activation("relu")),)
CLIP = (EpilogueOp(Activation("clip", 0.0, 6.0)),)


@dataclass(frozen=True)
class Shape:
    """A network's layer: images, channels, a window, and what follows."""

    of: str
    extent: tuple[int, int]
    channels: int
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1
    epilogue: tuple[EpilogueOp, ...] = CLIP
    batch: int = 32
    means: bool = False

    @property
    def name(self) -> str:
        (height, width), (high, wide) = self.extent, self.window
        more = f" d{self.dilation}" if self.dilation > 1 else ""
        after = " + means" if self.means else ""
        return f"{self.of} b{self.batch} {height}x{width}x{self.channels} {high}x{wide}s{self.stride}{more}{after}"

    @property
    def layer(self) -> Layer:
        x = (self.batch, self.channels, *self.extent)
        return conv(
            self.name, x, self.channels, self.window, self.stride, dilation=self.dilation, groups=self.channels,
            epilogue=self.epilogue,
        )  # fmt: skip


def _square(of: str, epilogue: tuple[EpilogueOp, ...], *layers: tuple[int, int, int, int]) -> Iterator[Shape]:
    """Layers as extent, channels, window and stride."""
    for extent, channels, window, stride in layers:
        yield Shape(of, (extent, extent), channels, (window, window), stride, epilogue=epilogue)


MOBILE = (
    *_square("MobileNetV2", CLIP, (112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (28, 192, 3, 1), (14, 576, 3, 1),
             (14, 576, 3, 2), (7, 960, 3, 1)),
    *_square("MobileNetV3", RELU, (56, 72, 5, 2), (28, 120, 5, 1), (14, 480, 5, 1)),
)  # fmt: skip
EFFICIENT = tuple(
    _square("EfficientNet-B0", SILU, (56, 144, 3, 1), (56, 144, 5, 2), (28, 240, 5, 1), (14, 672, 5, 1),
            (14, 672, 5, 2), (7, 1152, 5, 1))
)  # fmt: skip
OTHERS = (
    *_square("ConvNeXt", (), (56, 96, 7, 1), (28, 192, 7, 1), (14, 384, 7, 1), (7, 768, 7, 1)),
    Shape("other", (40, 40), 96, (5, 5)), Shape("other", (61, 45), 72), Shape("other", (20, 20), 576, (7, 7)),
    Shape("other", (33, 33), 256, dilation=2), Shape("other", (24, 50), 161, (5, 3)),
)  # fmt: skip
SHAPES = (
    *MOBILE, *EFFICIENT, *(replace(each, means=True) for each in EFFICIENT[2:]), *OTHERS,
    *(replace(each, batch=1) for each in (MOBILE[2], MOBILE[9], EFFICIENT[3], *OTHERS[1:2], OTHERS[5])),
    *(replace(each, batch=1, means=True) for each in EFFICIENT[2:4]),
)  # fmt: skip


def problem_of(shape: Shape) -> KernelProblem:
    layer = shape.layer
    return step_of(layer)[1].problem if shape.means else alone(layer)


def kind_of(candidate: Candidate) -> str:
    return str(dict(candidate.parameters)["kind"])


def trials_of(shape: Shape, count: int, others: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first of each other kind by prediction, `others` in all; and `count` sliding ones, first the best of each
    size of a thread's part."""
    problem = problem_of(shape)
    layer = step_of(shape.layer)[0] if shape.means else shape.layer
    names = tuple(f"x{index}" for index in range(len(problem.inputs)))
    step = ProposedStep(problem, names, ("y", "m")[: len(problem.outputs)])
    candidates = FAMILY.candidates(problem, TARGET)[0]
    apart: dict[object, Candidate] = {}
    parts: dict[object, Candidate] = {}
    for each in candidates:
        stated = dict(each.parameters)
        if stated["kind"] == "sliding":
            parts.setdefault((stated["vector"], stated["each"], stated["down"]), each)
        else:
            apart.setdefault(stated["kind"], each)
    known = [each for each in candidates if kind_of(each) != "sliding"]
    sliding = [each for each in candidates if kind_of(each) == "sliding"]
    chosen = [*tuple(dict.fromkeys((*apart.values(), *known)))[:others],
              *tuple(dict.fromkeys((*list(parts.values())[: count - 1], *sliding)))[:count]]  # fmt: skip
    return [
        ("sliding" if kind_of(each) == "sliding" else "others",
         gpu_harness.Trial(layer, step, each, large=shape.batch > 1, timed=True))
        for each in chosen
    ]  # fmt: skip


def planned(count: int, others: int) -> list[tuple[str, str, gpu_harness.Trial]]:
    """Of each shape one kernel behind the other: those of large batches refer to the shape's first."""
    found: list[tuple[str, str, gpu_harness.Trial]] = []
    for shape in SHAPES:
        first = len(found)
        for way, trial in trials_of(shape, count, others):
            reference = first if trial.large and len(found) > first else None
            found.append((shape.name, way, replace(trial, reference=reference)))
    return found


def predicted(trial: gpu_harness.Trial) -> float:
    """In us."""
    return 1e6 * FAMILY.predict(trial.step.problem, trial.candidate, TARGET)


def main() -> int:
    parser = kernel_trials.parser(__doc__, 6, "sliding kernels of each shape")
    parser.add_argument("--others", type=int, default=3, help="other kernels of each shape")
    parser.add_argument("--seconds", type=float, default=55, help="after these no more shapes are begun")
    arguments = parser.parse_args()
    plan = planned(arguments.count, arguments.others)
    if kernel_trials.library(arguments, [trial for *_, trial in plan]) is None:
        return 0
    # Inputs are made in no time that matters beside a kernel's.
    library = chain_kernels.Library(arguments.folder)
    found = kernel_trials.measured_rows(library, plan, WAYS, predicted, arguments.seconds)
    rows: kernel_trials.Rows = {}
    for shape in SHAPES:
        if shape.name in found:
            problem, kernels = problem_of(shape), found[shape.name]
            bound = {"bytes_us": problem.nbytes / BYTES_A_SECOND * 1e6, "gflop": problem.flops / 1e9}
            rows[shape.name] = {**bound, **kernels, "best": {way: best(kernels[way]) for way in kernels}}
    for name, row in rows.items():
        times = {way: us or math.nan for way, us in row["best"].items()}
        print(f"{name:46} bytes {row['bytes_us']:6.2f}, sliding {times['sliding']:7.2f}, others "
              f"{times['others']:7.2f}, {times['others'] / times['sliding']:.2f} times as fast")  # fmt: skip
    wrong = kernel_trials.wrong(found, WAYS)
    return kernel_trials.finish("sliding_windows", arguments, {"shapes": rows, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main())
