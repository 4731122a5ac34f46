"""1x1 convolutions whose input is transformed as it is loaded, beside the two kernels apart: shapes of DenseNet-121 and
EfficientNet-B0 at batch 32, in fp16. Every kernel is compared with NumPy, then timed from a replayed graph.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/prologue_kernels.py FOLDER --prepare
    python benchmarks/kernels/prologue_kernels.py FOLDER --out FILE    # on an H200: runs them, compiled or not

With `--forms` kernels of both in one stand beside each other, some of the shapes at batch 32 and 1: of warpgroups that
take turns or share the rows of a tile, of pairs, of three that share it, and of two that share its depth.

FOLDER keeps what was compiled. Of each way the first `--count` candidates by prediction are tried. Times are us.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep
from bolt_build.families.common.chains import parts
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.arithmetic import Binary

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer
from gpu_pairs import FAMILY, steps_of
from gpu_products import conv
from gpu_prologues import affine, gate, product

BATCH = 32
WAYS = ("together", "scale", "product")
FORMS = ("usual", "pairs", "three", "deep", "product")
"""What shares a tile of both in one, and the product alone."""
RELU = conv("", (1, 8, 1, 1), 8, (1, 1)).epilogue
SUM = (EpilogueOp(Binary("add"), 3),)


@dataclass(frozen=True)
class Shape:
    """Channels and extent of an image, filters, and what follows the product: relu, a residual, or nothing. `pitch`
    channels lie from a pixel to the next where these are a part of them; without, a gate."""

    extent: int
    channels: int
    filters: int
    behind: str = ""
    pitch: int = 0
    batch: int = BATCH

    @property
    def name(self) -> str:
        batch = "" if self.batch == BATCH else f"{self.batch}x"
        kind = f"BatchNorm, ReLU, of {self.pitch}" if self.pitch else "gate"
        return (
            f"{batch}{self.extent}x{self.extent} {self.channels} to {self.filters} {self.behind}".strip() + f" ({kind})"
        )

    @property
    def layers(self) -> tuple[Layer, Layer, Layer]:
        """Both in one, and one by one."""
        x = (self.batch, self.channels, self.extent, self.extent)
        stages = {"": (), "relu": RELU, "add": SUM}[self.behind]
        before = affine(x) if self.pitch else gate(x, first=True)
        behind = conv("product", x, self.filters, (1, 1), epilogue=stages)
        return product("together", before, self.filters, epilogue=stages), before, behind


DENSENET = (
    *(Shape(56, c, 128, "relu", 256) for c in (64, 128, 224)), Shape(56, 256, 128, "", 256),
    *(Shape(28, c, 128, "relu", 512) for c in (128, 256, 480)), Shape(28, 512, 256, "", 512),
    *(Shape(14, c, 128, "relu", 1024) for c in (256, 512, 992)), Shape(14, 1024, 512, "", 1024),
    *(Shape(7, c, 128, "relu", 1024) for c in (512, 992)),
)  # fmt: skip
EFFICIENTNET = (
    Shape(112, 32, 16), Shape(56, 96, 24), Shape(56, 144, 24, "add"), Shape(28, 144, 40), Shape(28, 240, 40, "add"),
    Shape(14, 240, 80), Shape(14, 480, 80, "add"), Shape(14, 480, 112), Shape(14, 672, 112, "add"), Shape(7, 672, 192),
    Shape(7, 1152, 192, "add"), Shape(7, 1152, 320),
)  # fmt: skip


SOME = tuple(
    replace(shape, batch=batch)
    for batch, shapes in (
        (BATCH, (*DENSENET[1:3], *DENSENET[4:14], EFFICIENTNET[2], *EFFICIENTNET[4:8:2], *EFFICIENTNET[9:11])),
        (1, (DENSENET[2], DENSENET[9], DENSENET[13], EFFICIENTNET[8], EFFICIENTNET[10])),
    )
    for shape in shapes
)


def problem_of(shape: Shape) -> KernelProblem:
    """Both in one."""
    (step,) = steps_of(shape.layers[0])
    return step.problem


def form_of(candidate: Candidate) -> str:
    stated = dict(candidate.parameters)
    if "deep" in stated:
        return "deep"
    return "pairs" if stated["warpgroups"] == "pairs" else "three" if stated["m"] == 192 else "usual"


def forms_of(shape: Shape, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The first kernels of each form by prediction."""
    whole, _, behind = shape.layers
    (step,) = steps_of(whole)
    between = shape.pitch - shape.channels if shape.pitch else 0
    found = []
    candidates = FAMILY.candidates(step.problem, TARGET)[0]
    for form in FORMS[:-1]:
        of_form = [c for c in candidates if form_of(c) == form][:count]
        found += [(form, gpu_harness.Trial(whole, step, c, between=between)) for c in of_form]
    second = parts(step.problem)[1]
    found += [("product", gpu_harness.Trial(behind, _alone(second, ()), c))
              for c in FAMILY.candidates(second, TARGET)[0][:count]]  # fmt: skip
    return [(form, replace(trial, timed=True)) for form, trial in found]


def trials_of(shape: Shape, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """Kernels of both ways; the scale alone is one of the portable family's, which reads rows that lie apart too."""
    whole, before, behind = shape.layers
    (step,) = steps_of(whole)
    first, second = parts(step.problem)
    between = shape.pitch - shape.channels if shape.pitch else 0
    found = [
        ("together", gpu_harness.Trial(whole, step, c)) for c in FAMILY.candidates(step.problem, TARGET)[0][:count]
    ]
    found += [("scale", gpu_harness.Trial(before, _alone(first, step.reads_apart), c))
              for c in Portable().candidates(first, TARGET)[0]]  # fmt: skip
    found = [(way, replace(trial, between=between)) for way, trial in found]
    found += [("product", gpu_harness.Trial(behind, _alone(second, ()), c))
              for c in FAMILY.candidates(second, TARGET)[0][:count]]  # fmt: skip
    return [(way, replace(trial, timed=True)) for way, trial in found]


TARGET = gpu_harness.TARGET


def _alone(problem: KernelProblem, apart: tuple[int, ...]) -> ProposedStep:
    names = tuple(f"x{index}" for index in range(len(problem.inputs)))
    return ProposedStep(problem, names, ("y",), reads_apart=apart)


def main() -> int:
    parser = kernel_trials.parser(__doc__, 4, "candidates of each way")
    parser.add_argument("--forms", action="store_true", help="what shares a tile, of some shapes")
    arguments = parser.parse_args()
    shapes, found, ways = (SOME, forms_of, FORMS) if arguments.forms else ((*DENSENET, *EFFICIENTNET), trials_of, WAYS)
    planned = [(shape.name, *each) for shape in shapes for each in found(shape, arguments.count)]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    rows = kernel_trials.measured_rows(library, planned, ways)
    for row in rows.values():
        row["best"] = {way: best(row[way]) for way in ways}
    result = {"batch": BATCH, "shapes": rows, "wrong": kernel_trials.wrong(rows, ways)}
    return kernel_trials.finish("prologue_kernels", arguments, result)


if __name__ == "__main__":
    sys.exit(main())
