"""Kernels on Hopper for a convolution and the normalisation of its images: those of `moment_tiles.py` leave mean and
squares of parts of images beside what they store, and one pass behind them normalises that in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import (
    EpilogueCode,
    image_numbers,
    refuse_images,
    residual,
    without_images,
)
from bolt_build.families.cutlass.kinds.kind import SPACE, Offers
from bolt_build.families.cutlass.kinds.norms.moment_tiles import (
    MOMENT_BAND_TILES,
    MOMENT_RESIDENT_TILES,
    MOMENT_ROLLING_TILES,
    MOMENT_TILES,
    MomentBandTile,
    MomentResidentTile,
    MomentRollingTile,
    MomentWgmmaTile,
    Parts,
)
from bolt_build.families.cutlass.one_product import Kernel, ProductKind, ProductTile
from bolt_build.families.cutlass.problems.groups import has_groups
from bolt_build.families.cutlass.problems.image_norm import Applied, refuse
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.stack import UnfoldDepth
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Target


class MomentTile(ProductTile, Protocol):
    """A tile of kernels for products with moments."""

    def parts(self, product: Product, settings: Settings) -> Parts:
        """That its kernel leaves of the images of a product."""
        ...


T = TypeVar("T", bound=MomentTile)


@dataclass(frozen=True)
class NormedImages(ProductKind[T]):
    """A kind of convolutions whose images are normalised. What is normalised is stored as well where others read it."""

    def serves(self, problem: KernelProblem) -> bool:
        return [type(each.op) for each in problem.op.sequence] in ([Conv, Norm], [Conv, UnfoldDepth, Norm])

    def refuse_problem(self, problem: KernelProblem) -> str | None:
        first, norm = parts(problem)
        (y,) = first.outputs
        if has_groups(first):
            return "kernels of convolutions with groups leave no mean and squares of images"
        if (reason := refuse_problem(without_images(first)) or refuse_images(first) or refuse(norm)) is not None:
            return reason
        if (product := product_of(first)).n != y.row:
            return Reason("a row of the product is {} pixels of an image", product.n // y.row)
        return None

    def alone(self, problem: KernelProblem) -> KernelProblem:
        return parts(problem)[0]

    def product(self, problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
        first, *behind = parts(problem)
        images = (behind or [first])[-1].outputs[0].shape[0]
        return replace(super().product(first, loads), images=images)

    def work(self, problem: KernelProblem, product: Product) -> Work:
        return super().work(parts(problem)[0], product)

    def offers(self, problem: KernelProblem, target: Target) -> Offers:
        found = super().offers(problem, target)
        added = tuple(
            replace(each, seconds=each.seconds + self._behind(problem, each.candidate, target)) for each in found.found
        )
        return replace(found, found=added)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return super().predict(problem, candidate, target) + self._behind(problem, candidate, target)

    def _behind(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """Seconds of the pass behind the convolution."""
        norm = parts(problem)[1]
        return Applied.of(norm, self._parts(problem, candidate).most, target).seconds(norm, target)

    def _parts(self, problem: KernelProblem, candidate: Candidate) -> Parts:
        tile = self.kernel_of(candidate).tile
        return tile.parts(self.product(problem), Settings.read(candidate.settings))

    def epilogue(self, problem: KernelProblem, kernel: Kernel[T]) -> EpilogueCode:
        return super().epilogue(problem, kernel).with_moments()

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        first, norm = parts(problem)
        conv = super().expense(first, candidate)
        return replace(conv, nbytes=conv.nbytes + norm.nbytes, flops=conv.flops + norm.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return super().reads_apart(parts(problem)[0])

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        first, norm = parts(problem)
        conv = super().emit(first, candidate, target, at)
        return normed_step(first, norm, conv, self._parts(problem, candidate), target, at)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        return super().unit(parts(problem)[0], candidate, target)


def normed_step(
    first: KernelProblem, norm: KernelProblem, conv: StepCode, of: Parts, target: Target, at: StepExpressions
) -> StepCode:
    """The convolution's code, `conv`, with the pass behind it, for what its kernel leaves of parts."""
    applied = Applied.of(norm, of.most, target)
    moments = struct(
        "bolt::portable::ImageMoments", images=applied.images, positions=of.positions, rows=of.rows, granule=of.granule,
        channels=applied.channels,
    )  # fmt: skip
    behind, constants = _behind(first, norm, at)
    x, added = op_operands(first)[0], residual(first)
    others = ["nullptr" if added is None else at.inputs[added]]
    if (numbers := image_numbers(first)) is not None:
        others.append(at.inputs[numbers])
    call = (
        f"kernel.run(r, {', '.join((at.inputs[x], *others, at.outputs[0]))}, "
        f"[&](const bolt::portable::ImageMoments& moments, void* joined) {{ {applied.text(norm, behind)} }});"
    )
    arguments = f"{moments}, {{{', '.join(constants)}}}, {conv.member_arguments}"
    member = f"{SPACE}::NormsImages<{conv.member_type}>"
    return StepCode(("bolt_cutlass/plans/normed_images.h", *conv.includes[1:]), member, arguments, call)


def _behind(first: KernelProblem, norm: KernelProblem, at: StepExpressions) -> tuple[StepExpressions, tuple[str, ...]]:
    """Expressions of the pass, which reads what the convolution left, and the constants that the plan keeps for it."""
    begin, inputs, constants = len(first.inputs), [at.outputs[0]], list[str]()
    for index, operand in enumerate(norm.inputs[1:], begin):
        if operand.constant:
            expression = at.prepare_inputs[index]
            inputs.append(f"kernel.constant({len(constants)})")
            constants.append(f'bolt::portable::PassedConstant{{{expression}, "{expression}", {operand.nbytes}}}')
        else:
            inputs.append(at.inputs[index])
    pitches = (at.pitch(0), *(at.input_pitch(begin + index) for index in range(len(norm.inputs) - 1)))
    last = len(at.outputs) - 1
    expressions = StepExpressions(tuple(inputs), at.outputs[-1:], (None,) * len(inputs), (at.pitch(last),), pitches)
    return expressions, tuple(constants)


def kinds() -> tuple[
    NormedImages[MomentWgmmaTile],
    NormedImages[MomentBandTile],
    NormedImages[MomentResidentTile],
    NormedImages[MomentRollingTile],
]:
    """Those of implicit GEMM, of bands, of weights in registers and of sums that roll."""
    return (
        NormedImages(MOMENT_TILES, MomentWgmmaTile.read),
        NormedImages(MOMENT_BAND_TILES, MomentBandTile.read),
        NormedImages(MOMENT_RESIDENT_TILES, MomentResidentTile.read),
        NormedImages(MOMENT_ROLLING_TILES, MomentRollingTile.read),
    )
