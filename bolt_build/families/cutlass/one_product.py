"""Kinds of kernels that compute one product: what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, Protocol, TypeVar

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, Refusal, StepCode, StepExpressions
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stated import is_read
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import (
    EpilogueCode,
    channels,
    image_numbers,
    refuse_images,
    residual,
    stage_words,
    without_images,
)
from bolt_build.families.cutlass.expense import copy_seconds, expense
from bolt_build.families.cutlass.kinds.kind import FAMILY, SPACE, Offer, Offers, gpu_of
from bolt_build.families.cutlass.kinds.rules import MANY_IN_TURNS
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.padding import refuse_padding
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work, work
from bolt_build.families.cutlass.problems.products import multiplies, narrow_loads_of, product_of, refuse_problem
from bolt_build.families.cutlass.settings import DEFAULT, Settings
from bolt_build.targets import Gpu, Target

_MOST_SLICES = 4
"""Other numbers of slices that are worth a measurement."""


class ProductTile(Protocol):
    """A tile of kernels for one product: all in which their kinds differ.

    `header` ends the name of the C++ header, `memory_mb` is what compiling a kernel takes at its peak, `halves` are the
    types that its kernels compute in, `loads` the elements of both factors that are loaded at once. `numbers_columns`:
    epilogues that read numbers of channels take the columns' numbers in the place of a bias. `reads_images`: whole
    products may have stages that read a number of each image and channel.
    """

    header: ClassVar[str]
    memory_mb: ClassVar[int]
    halves: ClassVar[tuple[DType, ...]]
    numbers_columns: ClassVar[bool]
    reads_images: ClassVar[bool]

    @property
    def loads(self) -> int: ...
    @property
    def group(self) -> str:
        """`Offer.group` of kernels that compute whole products."""
        ...

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        ...

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        """Why a legal tile does not suit a product that is not sliced, None where it does."""
        ...

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        """Why the product is not computed by split-K with a legal tile, None where it is."""
        ...

    def counts(self, gpu: Gpu, product: Product) -> tuple[int, ...]:
        """Possible numbers of slices, least first."""
        ...

    def usual(self, product: Product, gpu: Gpu) -> Settings:
        """The settings of a whole product's kernel as it is offered first."""
        ...

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """Other settings that are worth a measurement: orders of the tiles, or their extents."""
        ...

    def allowed(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """All settings that a whole product's kernel can have."""
        ...

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """Predicted time of one kernel that does the work, copies and the addition of split-K's sums apart."""
        ...

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """The C++ type."""
        ...

    def packed(self, product: Product) -> str:
        """How it wants the weights packed."""
        ...


T = TypeVar("T", bound=ProductTile)
S = TypeVar("S", bound=ProductTile, covariant=True)


@dataclass(frozen=True)
class Kernel(Generic[S]):
    """A tile, and whether the kernel leaves split-K's partial sums (`partial`)."""

    tile: S
    partial: bool = False

    @cached_property
    def _text(self) -> str:
        return f"tile {self.tile} with split-K" if self.partial else f"tile {self.tile}"

    @cached_property
    def _parameters(self) -> Named:
        return (*self.tile.parameters, *((("partial", 1),) if self.partial else ()))

    def __str__(self) -> str:
        return self._text

    def candidate(self, settings: Settings = DEFAULT) -> Candidate:
        """The kernel with settings."""
        return Candidate(FAMILY, self._parameters, settings.named)


@dataclass(frozen=True)
class ProductKind(Generic[T]):
    """A kind of kernels with some tiles, which `read` finds in a candidate's parameters. `narrow`: they load few
    elements at once, so that channels that are no whole loads need no padding, and compute whole products."""

    tiles: tuple[T, ...]
    read: Callable[[Reader], T]
    narrow: bool = False

    @cached_property
    def _kernels(self) -> tuple[tuple[Kernel[T], Kernel[T]], ...]:
        """Of each tile the kernel of whole products and that of split-K: every problem is asked about the same ones."""
        return tuple((Kernel(tile), Kernel(tile, partial=True)) for tile in self.tiles)

    def kernel_of(self, candidate: Candidate) -> Kernel[T]:
        """The kernel that a candidate of this kind states. Raises ValueError for one that is of another kind."""
        reader = Reader(candidate.parameters)
        tile = self.read(reader)
        kernel = Kernel(tile, partial=reader.has("partial") and reader.number("partial") == 1)
        reader.end()
        if (tile.loads != ALIGNMENT) is not self.narrow or kernel.candidate().parameters != candidate.parameters:
            raise ValueError(f"{candidate} is no kernel of this kind")
        return kernel

    def reads(self, candidate: Candidate) -> bool:
        return is_read(self.kernel_of, candidate)

    def serves(self, problem: KernelProblem) -> bool:
        return multiplies(problem.op)

    def refuse_problem(self, problem: KernelProblem) -> str | None:
        """Why no tile computes the problem, None where some may."""
        return refuse_problem(without_images(problem)) or refuse_images(problem)

    def alone(self, problem: KernelProblem) -> KernelProblem:
        """The product's part of a problem, with what is applied as it is stored."""
        return problem

    def product(self, problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
        """How a problem that is not refused is computed by kernels that load so many elements at once."""
        return product_of(problem, loads)

    def work(self, problem: KernelProblem, product: Product) -> Work:
        """What the prediction needs; the copy of the input is not part of it."""
        return work(problem, product)

    def offers(self, problem: KernelProblem, target: Target) -> Offers:
        if (reason := self.refuse_problem(problem)) is not None:
            return Offers(none=(reason,))
        loads = narrow_loads_of(problem) if self.narrow else ALIGNMENT
        if loads is None:
            return Offers()
        own, product, gpu = self.alone(problem), self.product(problem, loads), gpu_of(target)
        if (reason := refuse_padding(problem, product, loads)) is not None:
            return Offers(none=(reason,))
        needed, copy = self.work(problem, product), copy_seconds(problem, product, target)
        found, refusals = [], []
        for kernels in self._kernels:
            tile = kernels[0].tile
            if tile.loads != loads:
                continue
            none = tile.refuse(gpu, product) or refuse_half(tile.halves, product.dtype)
            for kernel in kernels[: 2 if none is None and not self.narrow else 1]:
                reason = none or self._refuse_use(kernel, gpu, product) or _refuse_images(own, kernel, product)
                if reason is None:
                    group = _group(kernel, product)
                    whole = tile.usual(product, gpu)
                    settings = Settings(best_slices(product, kernel, target)) if kernel.partial else whole
                    seconds = copy + _kernel_seconds(product, kernel, needed, target, settings.slices)
                    found.append(Offer(seconds, kernel.candidate(settings), group, self.narrow))
                else:
                    refusals.append(Refusal(FAMILY, str(kernel), reason))
        return Offers(tuple(found), (), tuple(refusals))

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (reason := self.refuse_problem(problem)) is not None:
            return reason
        kernel, gpu = self.kernel_of(candidate), gpu_of(target)
        tile, wanted = kernel.tile, narrow_loads_of(problem) if self.narrow else ALIGNMENT
        if tile not in self.tiles or tile.loads != wanted:
            return f"{candidate} is none of its candidates"
        own, product = self.alone(problem), self.product(problem, tile.loads)
        reason = refuse_padding(problem, product, tile.loads) or tile.refuse(gpu, product)
        reason = reason or refuse_half(tile.halves, product.dtype)
        reason = reason or self._refuse_use(kernel, gpu, product) or _refuse_images(own, kernel, product)
        return reason or _refuse_settings(kernel, product, candidate, gpu)

    def _refuse_use(self, kernel: Kernel[T], gpu: Gpu, product: Product) -> str | None:
        """Why a legal tile is not used whole, or with split-K."""
        if self.narrow and kernel.partial:
            return "loads of few elements are for whole products"
        return (kernel.tile.refuse_slices if kernel.partial else kernel.tile.refuse_whole)(gpu, product)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """The order of tiles is not part of the prediction."""
        kernel = self.kernel_of(candidate)
        slices, product = Settings.read(candidate.settings).slices, self.product(problem, kernel.tile.loads)
        copy = copy_seconds(problem, product, target)
        return copy + _kernel_seconds(product, kernel, self.work(problem, product), target, slices)

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Other numbers of slices, or other orders in which persistent blocks go through the tiles; each once."""
        kernel = self.kernel_of(candidate)
        product, gpu = self.product(problem, kernel.tile.loads), gpu_of(target)
        if kernel.partial:
            stated = Settings.read(candidate.settings).slices
            others = _other_slices(product, kernel, gpu, stated)[:_MOST_SLICES]
            choices = tuple(Settings(slices=count) for count in others)
        else:
            choices = kernel.tile.orders(product, gpu)
        found = (kernel.candidate(settings) for settings in choices)
        return tuple(variant for variant in found if variant != candidate)

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        loads = ALIGNMENT if candidate is None else self.kernel_of(candidate).tile.loads
        return expense(problem, product_of(problem, loads))

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, product_of(problem), op_operands(problem)[0], residual(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        own, kernel = op_operands(problem), self.kernel_of(candidate)
        x, added = own[0], residual(problem)
        product = self.product(problem, kernel.tile.loads).reading(problem.inputs[x], at.input_pitch(x))
        settings = Settings.read(candidate.settings)
        lacking = kernel.partial or DEFAULT not in kernel.tile.allowed(product, gpu_of(target))
        if settings == DEFAULT and lacking:
            raise ValueError(f"{candidate} states not all of its settings")
        name = f"Split{product.kernel}" if kernel.partial else product.kernel
        tile = kernel.tile.cxx(product, gpu_of(target))
        out = product.stored if kernel.partial else ""
        wide = product.wide and not kernel.partial
        biased, epilogue = _is_biased(problem, kernel), self.epilogue(problem, kernel)
        stages, value = epilogue.type, epilogue.value
        member = f"{SPACE}::{name}<{tile}, {_wide_type(stages) if wide else stages}, {product.source}{out}>"
        arguments = (
            product.arguments((*settings.fields, *between_rows(at, added))), product.source_value, constant(at, own[1]),
            kernel.tile.packed(product), constant(at, *own[2:]), f"{SPACE}::wide({value})" if wide else value,
            *(constant(at, index) for index in (*own[2:] * biased, *channels(problem))),
        )  # fmt: skip
        others = ["nullptr" if added is None else at.inputs[added]]
        if (numbers := image_numbers(problem)) is not None:
            others.append(at.inputs[numbers])
        call = f"kernel.run(r, {', '.join((at.inputs[x], *others, at.outputs[0]))});"
        headers = ("bolt_cutlass/plans/prepared.h", *(("bolt_cutlass/plans/wide.h",) if wide else ()))
        return StepCode(headers, member, ", ".join(arguments), call)

    def epilogue(self, problem: KernelProblem, kernel: Kernel[T]) -> EpilogueCode:
        """What follows the product of a problem of one operator."""
        return EpilogueCode.of(problem, biased=_is_biased(problem, kernel))

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        """Partial sums of split-K have no epilogue: such a kernel serves every problem of its kind."""
        kernel = self.kernel_of(candidate)
        return unit_of(problem, kernel, target, self.epilogue(problem, kernel))


def unit_of(
    problem: KernelProblem, kernel: Kernel[S], target: Target, epilogue: EpilogueCode | None = None
) -> KernelUnit:
    """What instantiates the kernel for a problem of one operator, whose stages are the epilogue unless it is given."""
    product = product_of(problem, kernel.tile.loads)
    kind, wide = product.kernel.lower(), product.wide and not kernel.partial
    stages = (epilogue or EpilogueCode.of(problem, biased=_is_biased(problem, kernel))).type
    follows = f"{SPACE}::Partial" if kernel.partial else _wide_type(stages) if wide else stages
    text = (
        f'#include "bolt_cutlass/units/{kind}{"_wide" if wide else ""}{kernel.tile.header}_kernel.h"\n\n'
        f"template void {SPACE}::launch_{kind}(\n    {kernel.tile.cxx(product, gpu_of(target))},\n"
        f"    const {SPACE}::{product.kernel}Arguments&,\n    const {follows}&, void*);\n"
    )
    words = "" if kernel.partial else stage_words(problem) + (" in fp32" if wide else "")
    label = f"{kind} {kernel}{words}"
    return named_unit(text, kernel.tile.memory_mb, label)


def _refuse_images(problem: KernelProblem, kernel: Kernel[S], product: Product) -> str | None:
    """Why the kernel does not know of which image it stores what, where a stage reads numbers of images."""
    if image_numbers(problem) is None:
        return None
    if product.n != problem.outputs[0].row:
        return "a row of its product is more than one pixel, of which a stage reads the image's numbers"
    if not kernel.partial and not kernel.tile.reads_images:
        return "a stage reads numbers of images, and its store does not say of which image a row is"
    return None


def _numbers_columns(problem: KernelProblem, kernel: Kernel[S]) -> bool:
    """Whether the kernel is told the numbers of columns in the place of a bias, which is a stage then."""
    return bool(channels(problem)) and kernel.tile.numbers_columns and not kernel.partial


def _is_biased(problem: KernelProblem, kernel: Kernel[S]) -> bool:
    """Whether the bias is the first stage of the epilogue."""
    return _numbers_columns(problem, kernel) and len(op_operands(problem)) > 2


def _wide_type(stages: str) -> str:
    """Of stages whose results are stored in fp32."""
    return f"{SPACE}::Wide<{stages}>"


def _refuse_settings(kernel: Kernel[T], product: Product, candidate: Candidate, gpu: Gpu) -> str | None:
    """Why the kernel cannot have the candidate's settings, None where it can."""
    if kernel.partial:
        offered = tuple(Settings(slices=count) for count in kernel.tile.counts(gpu, product))
    else:
        offered = kernel.tile.allowed(product, gpu)
    if any(candidate.settings == settings.named for settings in offered):
        return None
    return f"{candidate} has settings that it cannot have here, or lacks some"


def _group(kernel: Kernel[ProductTile], product: Product) -> str:
    """`Offer.group`. What blocks of a cluster gain by loading together what they share is known by measurement alone:
    long matrix products gain by those of two (`sustained_products.json`)."""
    if kernel.partial:
        return "split-K"
    group = kernel.tile.group
    shares = product.kernel == "Gemm" and "cluster" in dict(kernel.tile.parameters)
    return f"{group} in clusters" if shares and group != MANY_IN_TURNS else group


def _kernel_seconds(product: Product, kernel: Kernel[S], needed: Work, target: Target, slices: int) -> float:
    """Without the copy of the input."""
    if not kernel.partial:
        return kernel.tile.seconds(product, needed, target)
    return sliced_seconds(product, kernel, needed, target, slices)


def best_slices(product: Product, kernel: Kernel[S], target: Target) -> int:
    """The number of slices that is predicted to be fastest."""
    # What is the same for all counts does not matter.
    windowed = product.kernel == "Conv"
    needed = Work(product.m, product.n, product.depth, product.taps, windowed, 0, stride=product.step)
    return min(
        kernel.tile.counts(gpu_of(target), product),
        key=lambda count: sliced_seconds(product, kernel, needed, target, count),
    )


def _other_slices(product: Product, kernel: Kernel[S], gpu: Gpu, stated: int) -> tuple[int, ...]:
    """Numbers of slices beside the stated one, those nearest to it first."""
    others = [count for count in kernel.tile.counts(gpu, product) if count != stated]
    return tuple(sorted(others, key=lambda count: (max(count, stated) / min(count, stated), count)))


# Fitted to 508 kernels on an H200, off by 9%: seconds in which the second kernel begins, which waits for the end of the
# first one alone, and its part of the bandwidth.
_ADDING, _SUMS = 0.6e-6, 0.52


def sliced_seconds(product: Product, kernel: Kernel[S], needed: Work, target: Target, count: int) -> float:
    """Predicted time of both kernels of split-K. Sums in fp32 go from one to the other."""
    sums = count * product.m * product.n * 4
    # Not `replace`, which takes longer than the prediction, for every number of slices of every tile.
    moved = needed.nbytes + sums // 2
    part = Work(needed.m, needed.n, needed.depth, needed.taps, needed.windowed, moved, count, needed.stride)
    return kernel.tile.seconds(product, part, target) + _ADDING + sums / (_SUMS * target.bandwidth)
