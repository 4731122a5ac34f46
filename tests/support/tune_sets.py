"""Small tuning sets made by hand, and what a driver could have found out about them."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, Refusal, TensorFormat
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.tuning.exchange.bundle import BUNDLE_VERSION, Bundle
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial, TuningSet

TOOLS = TuningTools("13.0.88", "4.2.0.0", "-O3", "headers")
SMALL = Candidate("cutlass", (("m", 64), ("n", 64)))
LARGE = Candidate("cutlass", (("m", 128), ("n", 128)))
SPLIT = Candidate("cutlass", (("m", 64), ("n", 64)), (("slices", 2),))


def conv_problem(channels: int, target: str = "a100") -> KernelProblem:
    """A 1x1 convolution of one image of 8x8 with ReLU."""

    def operand(shape: tuple[int, ...], layout: Layout, constant: bool = False) -> Operand:
        return Operand(shape, TensorFormat(DType.F16, layout), constant)

    inputs = (
        operand((1, channels, 8, 8), Layout.CHANNELS_LAST), operand((64, channels, 1, 1), Layout.ROW, True),
        operand((64,), Layout.ROW, True),
    )  # fmt: skip
    output = operand((1, 64, 8, 8), Layout.CHANNELS_LAST)
    stages = (EpilogueOp(Activation("relu")),)
    return KernelProblem(Conv((1, 1), (0, 0), (0, 0), (1, 1)), inputs, (output,), stages, DType.F32, target)


def trials(channels: int, *candidates: tuple[Candidate, int | None]) -> ProblemTrials:
    """A problem with candidates (each with the index of the one whose variant it is), the first predicted fastest."""
    found = tuple(Trial(candidate, 1e-6 * (at + 1), of) for at, (candidate, of) in enumerate(candidates))
    refused = (Refusal("cutlass", "tile 256x128", "less than half a wave"),)
    return ProblemTrials(conv_problem(channels), (f"batch 1: conv{channels}",), found, refused)


FIRST = trials(64, (SMALL, None), (LARGE, None), (SPLIT, 0))
SECOND = trials(128, (LARGE, None), (SMALL, None))


def tuning_set(*problems: ProblemTrials) -> TuningSet:
    return TuningSet("a100", tuple(sorted(problems, key=lambda p: p.problem.digest)), ())


def bundle(*problems: ProblemTrials, recipe: str = "net") -> Bundle:
    gone = Record(FIRST.problem.digest, Candidate("cutlass", (("m", 32),)), Status.NOT_COMPILED, "error: no such tile")
    return Bundle(BUNDLE_VERSION, recipe, "a100", TOOLS, problems or (FIRST, SECOND), (gone,), (("run", "0" * 64),))
