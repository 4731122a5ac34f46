"""Kinds of kernels for a multiplication and the product that alone reads it: what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Protocol, TypeVar

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import (
    epilogue_type,
    epilogue_value,
    residual,
    stage_words,
    stages_type,
    stages_value,
)
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import refuse_product
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.product import Product, Work, work
from bolt_build.families.cutlass.problems.products import multiplies
from bolt_build.families.cutlass.problems.prologue import Prologue, behind, prologue_of, refuse_prologue
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.targets import Gpu, Target

_IMAGES = (2, 4, 8)
"""Images of which a tile's rows may be: gates of so many lie beside the factors of a step."""


class PrologueTile(Protocol):
    """A tile of kernels for a multiplication and a product: all in which their kinds differ.

    `header` names the C++ header, `memory_mb` is what compiling a kernel takes at its peak. `images` are those whose
    gates lie beside a step; 0 where there are scales of all.
    """

    header: ClassVar[str]
    memory_mb: ClassVar[int]

    @property
    def images(self) -> int: ...
    @property
    def group(self) -> str:
        """`Offer.group`."""
        ...

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        ...

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """Predicted time."""
        ...

    def cxx(self, product: Product) -> str:
        """The C++ type."""
        ...

    def packed(self, product: Product) -> str:
        """How it wants the weights packed."""
        ...


T = TypeVar("T", bound=PrologueTile)


def images_of(rows: int, pixels: int) -> int:
    """Images of which so many rows of a factor may be, one behind the other, wherever they begin."""
    return 1 + ceil((rows - 1) / pixels)


def images_for(rows: int, prologue: Prologue) -> int | None:
    """Images whose gates lie beside a step of a tile of so many rows: 0 where there are scales of all, None where there
    is no room for so many."""
    needed = images_of(rows, prologue.pixels)
    return next((count for count in _IMAGES if count >= needed), None) if prologue.gate else 0


@dataclass(frozen=True)
class Prologued:
    """A product, and what its A operand is multiplied with."""

    product: Product
    prologue: Prologue


@dataclass(frozen=True)
class PrologueKind(TileKind[T, Prologued]):
    """A kind of kernels for both. `tiles` gives those that may do for a prologue, `read` finds one in a candidate's
    parameters."""

    tiles: Callable[[Prologue], tuple[T, ...]]
    read: Callable[[Reader], T]

    def serves(self, problem: KernelProblem) -> bool:
        first, *rest = problem.op.sequence
        return isinstance(first.op, Binary) and len(rest) == 1 and multiplies(rest[0].op)

    def read_tile(self, reader: Reader) -> T:
        return self.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return refuse_prologue(problem) or refuse_product(gpu, behind(problem))

    def computed(self, problem: KernelProblem) -> Prologued:
        return Prologued(behind(problem), prologue_of(problem))

    def tiles_for(self, what: Prologued, gpu: Gpu) -> tuple[tuple[T, ...], str | None]:
        return self.tiles(what.prologue), None

    def refuse_tile(self, tile: T, what: Prologued, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what.product)

    def seconds(self, problem: KernelProblem, what: Prologued, candidate: Candidate, target: Target) -> float:
        return self.tile_of(candidate).seconds(what.product, _work(problem, what), target)

    def group(self, tile: T) -> str:
        return tile.group

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both, without what lies between them."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, behind(problem), prologue_of(problem).x, residual(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        (first, second), tile, prologue, product = (
            parts(problem), self.tile_of(candidate), prologue_of(problem), behind(problem)
        )  # fmt: skip
        own, added = [index for index in op_operands(problem) if index >= len(first.inputs)], residual(problem)
        member = f"{SPACE}::PrologueGemm<{tile.cxx(product)}, {_type(tile, prologue)}, {epilogue_type(second)}>"
        apart = {"x_row": at.input_pitch(prologue.x)} if at.input_pitch(prologue.x) else {}
        rows = first.outputs[0].shape[0] if prologue.gate else 2
        constants = () if prologue.gate else (prologue.scale,)
        shifts = () if prologue.shift is None else (prologue.shift,)
        arguments = (
            product.arguments(between_rows(at, added)),
            struct(f"{SPACE}::PrologueArguments", rows=rows, pixels=prologue.pixels, **apart),
            _value(tile, prologue), constant(at, *constants), constant(at, *shifts), constant(at, own[0]),
            tile.packed(product), constant(at, *own[1:]), epilogue_value(second),
        )  # fmt: skip
        gates = at.inputs[prologue.scale] if prologue.gate else "nullptr"
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run(r, {at.inputs[prologue.x]}, {gates}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/plans/prologue.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        (first, second), tile, prologue = parts(problem), self.tile_of(candidate), prologue_of(problem)
        text = (
            f'#include "bolt_cutlass/units/{tile.header}_kernel.h"\n\n'
            f"template void {SPACE}::launch_gemm(\n    {tile.cxx(behind(problem))},\n"
            f"    const {SPACE}::GemmArguments&, const {SPACE}::PrologueArguments&,\n"
            f"    const {_type(tile, prologue)}&,\n    const {epilogue_type(second)}&, void*);\n"
        )
        label = f"mul{stage_words(first)} | gemm{stage_words(second)}, tile {tile}"
        return named_unit(text, tile.memory_mb, label)


def _work(problem: KernelProblem, what: Prologued) -> Work:
    """The product's, with the bytes that the prologue reads."""
    first, second = parts(problem)
    read = sum(operand.nbytes for index, operand in enumerate(first.inputs) if index != what.prologue.x)
    whole = work(second, what.product)
    return replace(whole, nbytes=whole.nbytes + read)


def _type(tile: PrologueTile, prologue: Prologue) -> str:
    """`bolt::cutlass_kernels::Gate<4>`"""
    if prologue.gate:
        return f"{SPACE}::Gate<{tile.images}>"
    return f"{SPACE}::Affine<{stages_type(prologue.functions)}>"


def _value(tile: PrologueTile, prologue: Prologue) -> str:
    return f"{_type(tile, prologue)}{{{'' if prologue.gate else stages_value(prologue.functions)}}}"
