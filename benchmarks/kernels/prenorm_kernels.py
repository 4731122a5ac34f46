"""Encoders' products of normalised rows in one kernel, beside the normalisation and the fastest kernels of the product
apart, those of the recipes' locks among them. In fp16 with fp32 accumulation. Every kernel is compared with NumPy, then
timed from a replayed graph over buffers that exceed L2.

    python benchmarks/kernels/prenorm_kernels.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/prenorm_kernels.py FOLDER --out FILE    # on an H200: runs them, compiled or not

FOLDER keeps what was compiled. Times, measured and predicted, are us of one launch. `gain` is the time of the fastest
two kernels apart over that of the fastest of both, `expected` the same by prediction.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from benchmarks.kernels.wave_tiles import is_new, locked, of_other_sizes
from bolt_build.families import load
from bolt_build.families.base import KernelProblem, ProposedStep
from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import EpilogueOp

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer
from gpu_prenorm import FAMILY, step_of
from gpu_products import GELU

TARGET = gpu_harness.TARGET
WAYS = ("together", "norm", "product")
(PORTABLE,) = (family for family in load(TARGET) if family.name == "portable")


@dataclass(frozen=True)
class Encoder:
    """Rows (a batch of sequences) of so many columns, and the recipe whose lock has their products, if any."""

    name: str
    batch: int
    length: int
    width: int = 768
    recipe: str | None = None

    @property
    def products(self) -> tuple[tuple[str, int, tuple[EpilogueOp, ...]], ...]:
        """What reads normalised rows: the projections, and the first of the feed-forward."""
        return (("projections", 3 * self.width, ()), ("feed-forward", 4 * self.width, GELU))


ENCODERS = (
    Encoder("ViT-B/16 b32", 32, 197, recipe="vit_b16"),
    Encoder("ViT-B/16 b1", 1, 197, recipe="vit_b16"),
    Encoder("ViT-L/16 b32", 32, 197, 1024),
    Encoder("CLIP ViT-B/32 b64", 64, 50),
    Encoder("Whisper-tiny b8", 8, 1500, 384),
    Encoder("GPT-2 1024 b8", 8, 1024),
)


def trials_of(encoder: Encoder, count: int) -> Iterator[kernel_trials.Planned]:
    """`count` sizes of both in one, the normalisation, and kernels of the product alone: those of the lock, and as many
    of other sizes, timed before and not."""
    for what, columns, behind in encoder.products:
        name = f"{encoder.name} {what}"
        x = Input((encoder.batch, encoder.length, encoder.width))
        layer, step = step_of(name, x, columns, epilogue=behind)
        first, second = parts(step.problem)
        norm = _layer(layer, first, layer.inputs[: len(first.inputs)])
        product = _layer(layer, second, (x, *layer.inputs[len(first.inputs) :]))
        together = sorted(
            FAMILY.candidates(step.problem, TARGET)[0], key=lambda each: FAMILY.predict(step.problem, each, TARGET)
        )
        own = sorted(FAMILY.candidates(second, TARGET)[0], key=lambda each: FAMILY.predict(second, each, TARGET))
        apart = locked(second, encoder.recipe)
        apart += of_other_sizes([each for each in own if not is_new(each)], count)
        apart += of_other_sizes([each for each in own if is_new(each)], 1)
        for candidate in of_other_sizes(together, count):
            yield name, "together", gpu_harness.Trial(layer, step, candidate)
        for candidate in PORTABLE.candidates(first, TARGET)[0]:
            yield name, "norm", gpu_harness.Trial(norm, alone(first), candidate)
        for candidate in dict.fromkeys(apart):
            yield name, "product", gpu_harness.Trial(product, alone(second), candidate)


def _layer(both: Layer, part: KernelProblem, inputs: tuple[Input, ...]) -> Layer:
    return replace(both, label=f"{both.label} {part.op.kind}", op=part.op, epilogue=part.epilogue, inputs=inputs)


def alone(problem: KernelProblem) -> ProposedStep:
    """A step of its own."""
    return ProposedStep(problem, tuple(f"x{index}" for index in range(len(problem.inputs))), ("y",))


def predicted(trial: gpu_harness.Trial) -> float:
    """Microseconds."""
    family = PORTABLE if trial.candidate.family == "portable" else FAMILY
    return family.predict(trial.step.problem, trial.candidate, TARGET) * 1e6


def main() -> int:
    parser = kernel_trials.parser(__doc__, 4, "sizes of tiles of each way")
    parser.add_argument("--only", default="", help="encoders whose name begins so")
    arguments = parser.parse_args()
    planned = [
        (name, way, replace(trial, timed=True))
        for encoder in ENCODERS
        if encoder.name.startswith(arguments.only)
        for name, way, trial in trials_of(encoder, arguments.count)
    ]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    rows = kernel_trials.measured_rows(library, planned, WAYS, predicted)
    wrong = kernel_trials.wrong(rows, WAYS)
    for row in rows.values():
        for name, field in (("gain", "us"), ("expected", "predicted")):
            both, norm, product = (best(row[way], field) for way in WAYS)
            row[name] = None if both is None or norm is None or product is None else (norm + product) / both
    return kernel_trials.finish("prenorm_kernels", arguments, {"products": rows, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main())
