"""Kernels on Hopper for a convolution and the means of what it leaves over each image: those of `wgmma.py`, `band.py`
and `grouped_wgmma.py`, in tiles that have whole images. Where nobody but the mean reads the results they are stored
nowhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Protocol, TypeVar

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.means import averages, refuse_format
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Reader
from bolt_build.families.cutlass.epilogue import EpilogueCode, residual
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.norms.mean_tiles import (
    GROUPS,
    MEAN_BAND_TILES,
    MEAN_GROUP_TILES,
    MEAN_TILES,
    MeanBandTile,
    MeanGroupTile,
    MeanWgmmaTile,
)
from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GroupedWgmma, GroupTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind, ProductTile
from bolt_build.families.cutlass.problems.groups import GroupedProduct, has_groups
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.chains import is_mean
from bolt_build.targets import Gpu, Target


class MeanTile(ProductTile, Protocol):
    """A tile of kernels for products with means."""

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        ...


T = TypeVar("T", bound=MeanTile)


@dataclass(frozen=True)
class MeanKind(ProductKind[T]):
    """A kind of convolutions with their means. `keeps`: what is averaged is stored as well."""

    keeps: bool = False

    def serves(self, problem: KernelProblem) -> bool:
        return _is_averaged(problem, keeps=self.keeps) and not has_groups(parts(problem)[0])

    def refuse_problem(self, problem: KernelProblem) -> str | None:
        first = parts(problem)[0]
        return refuse_problem(first) or _refuse_means(problem, product_of(first))

    def product(self, problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
        first = parts(problem)[0]
        return replace(super().product(first, loads), images=_images(first))

    def work(self, problem: KernelProblem, product: Product) -> Work:
        first = parts(problem)[0]
        found = super().work(first, product)
        # Results that nobody else reads are not stored: so MobileNetV3's took a third less than predicted with that.
        return found if self.keeps else replace(found, nbytes=found.nbytes - first.outputs[0].nbytes, stores=0)

    def epilogue(self, problem: KernelProblem, kernel: Kernel[T]) -> EpilogueCode:
        return super().epilogue(problem, kernel).averaged(keeps=self.keeps)

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        first = parts(problem)[0]
        return _both(problem, super().expense(first, candidate))

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return super().reads_apart(parts(problem)[0])

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, alone = self.kernel_of(candidate).tile, super().emit(parts(problem)[0], candidate, target, at)
        return _with_means(problem, alone, tile.positions(self.product(problem)), at)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        return super().unit(parts(problem)[0], candidate, target)


@dataclass(frozen=True)
class MeanGroups(GroupedWgmma):
    """The kind of convolutions with groups and their means; `keeps` as above."""

    keeps: bool

    def serves(self, problem: KernelProblem) -> bool:
        return _is_averaged(problem, keeps=self.keeps) and has_groups(parts(problem)[0])

    def read_tile(self, reader: Reader) -> MeanGroupTile:
        return MeanGroupTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        first = parts(problem)[0]
        return super().refuse_problem(first, gpu) or _refuse_means(problem, super().computed(first).product)

    def computed(self, problem: KernelProblem) -> GroupedProduct:
        first = parts(problem)[0]
        found = super().computed(first)
        saved = 0 if self.keeps else first.outputs[0].nbytes
        product = replace(found.product, images=_images(first))
        return replace(found, product=product, nbytes=found.nbytes - saved)

    def tiles_for(self, what: GroupedProduct, gpu: Gpu) -> tuple[tuple[GroupTile, ...], str | None]:
        return MEAN_GROUP_TILES, None

    def seconds(self, problem: KernelProblem, what: GroupedProduct, candidate: Candidate, target: Target) -> float:
        return GROUPS * super().seconds(problem, what, candidate, target)

    def epilogue(self, problem: KernelProblem, tile: GroupTile) -> EpilogueCode:
        return super().epilogue(problem, tile).averaged(keeps=self.keeps)

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        return _both(problem, super().expense(parts(problem)[0], candidate))

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return super().reads_apart(parts(problem)[0])

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, alone = _inner(self.tile_of(candidate)), super().emit(parts(problem)[0], candidate, target, at)
        return _with_means(problem, alone, tile.positions(self.computed(problem).product), at)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        return super().unit(parts(problem)[0], candidate, target)


def _is_averaged(problem: KernelProblem, *, keeps: bool) -> bool:
    """True for a convolution and the means of what it leaves, which is an output or not."""
    first, *behind = problem.op.sequence
    if not isinstance(first.op, Conv) or len(behind) != 1 or not isinstance(behind[0].op, Reduce):
        return False
    return averages(problem) is keeps


def _refuse_means(problem: KernelProblem, product: Product) -> str | None:
    """Why no kernel leaves the means of such a product; None where some may."""
    first, mean = parts(problem)
    (y,) = first.outputs
    if not is_mean(mean.op, len(y.shape)) or mean.epilogue:
        return "leaves means over whole images, and nothing else of their results"
    if product.n != y.row:
        return Reason("a row of the product is {} pixels of an image", product.n // y.row)
    return refuse_format(problem)


def _images(conv: KernelProblem) -> int:
    return conv.outputs[0].shape[0]


def _both(problem: KernelProblem, conv: Expense) -> Expense:
    """What the convolution moves and computes, with the mean's part of both."""
    first, mean = parts(problem)
    stored = sum(each.nbytes for each in problem.outputs) - first.outputs[0].nbytes
    return replace(conv, nbytes=conv.nbytes + stored, flops=conv.flops + mean.flops)


def _inner(tile: GroupTile) -> MeanWgmmaTile | MeanBandTile:
    assert isinstance(tile, MeanGroupTile), "the kind reads no others"
    return tile.tile


def _with_means(problem: KernelProblem, conv: StepCode, positions: int, at: StepExpressions) -> StepCode:
    """The convolution's code, with where its means go. `positions` are an image's rows."""
    first = parts(problem)[0]
    images, pixels = _images(first), prod(first.outputs[0].shape[2:])
    x, added = op_operands(first)[0], residual(first)
    other = "nullptr" if added is None else at.inputs[added]
    *kept, means = at.outputs
    arguments = f"{images}, {positions}, {pixels}, {conv.member_arguments}"
    call = f"kernel.run(r, {at.inputs[x]}, {other}, {kept[0] if kept else 'nullptr'}, {means});"
    member = f"{SPACE}::LeavesMeans<{conv.member_type}>"
    return StepCode(("bolt_cutlass/plans/leaves_means.h",), member, arguments, call)


def kinds(keeps: bool) -> tuple[MeanKind[MeanWgmmaTile], MeanKind[MeanBandTile], MeanGroups]:
    """Those that keep what they average, or those that do not."""
    return (
        MeanKind(MEAN_TILES, MeanWgmmaTile.read, keeps=keeps),
        MeanKind(MEAN_BAND_TILES, MeanBandTile.read, keeps=keeps),
        MeanGroups(keeps),
    )
