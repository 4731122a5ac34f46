"""Kernels for two products with the same A operand of which one is a gate of the other: gated feed-forwards.

The columns of both alternate in runs of eight, so a thread's sums are both sides of its results. It gates them in
registers, and half of the columns are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean
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
    words_of,
)
from bolt_build.families.cutlass.expense import expense
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile, store_bytes
from bolt_build.families.cutlass.kinds.warps.warp import TILES, WarpTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind, ProductTile, unit_of
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.gated import (
    biased,
    both_sides,
    first_side,
    gated,
    gated_product,
    gated_work,
    refuse_gated,
)
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work, work
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.settings import DEFAULT, Settings
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.targets import Target

_RUN = 8
"""Columns of one side that follow each other: what the threads of an instruction hold side by side."""
_PAIRED = 4 * _RUN
"""Columns of a tile are a multiple: stores go in 16 columns of results."""


@dataclass(frozen=True)
class GatedWgmmaTile(WgmmaTile):
    """A tile of WGMMA with the columns of both sides, which stores one half as wide."""

    header: ClassVar[str] = "_gated_warpgroup"

    @property
    def plain(self) -> WgmmaTile:
        """The same of a product without a gate."""
        return WgmmaTile(**_extents(self))

    def store_bytes(self, residual: bool) -> int:
        return store_bytes(self.n // 2, self.warpgroups, residual, self.stage_bytes, teams=self.teams)

    @property
    def parameters(self) -> Named:
        return (*super().parameters, ("gate", _RUN))

    @classmethod
    def read(cls, reader: Reader) -> GatedWgmmaTile:
        _expect_run(reader)
        return cls(**_extents(WgmmaTile.read(reader)))

    def __str__(self) -> str:
        return f"{super().__str__()}, gated"


@dataclass(frozen=True)
class GatedWarpTile(WarpTile):
    """The same of instructions of one warp, which has both sides of its results."""

    header: ClassVar[str] = "_gated"

    @property
    def plain(self) -> WarpTile:
        """The same of a product without a gate."""
        return WarpTile(**_extents(self))

    def access(self, product: Product) -> int:
        """CUTLASS gives each warp whole accesses of eight rows of results: of 16 columns not eight elements each."""
        return min(super().access(product), self.warp_n // _RUN)

    @property
    def parameters(self) -> Named:
        return (*super().parameters, ("gate", _RUN))

    @classmethod
    def read(cls, reader: Reader) -> GatedWarpTile:
        _expect_run(reader)
        return cls(**_extents(WarpTile.read(reader)))

    def __str__(self) -> str:
        return f"{super().__str__()}, gated"


def _expect_run(reader: Reader) -> None:
    """Raises ValueError where a candidate states no gate, or columns that alternate in other runs."""
    if reader.number("gate") != _RUN:
        raise ValueError(f"columns of both sides alternate in runs of {_RUN}")


def _extents(tile: WgmmaTile | WarpTile) -> dict[str, Any]:
    """The fields of a tile, with or without a gate."""
    return {each.name: getattr(tile, each.name) for each in fields(tile)}


GATED_WGMMA_TILES = tuple(GatedWgmmaTile(**_extents(tile)) for tile in FEW_SUMS if tile.n % _PAIRED == 0)
GATED_WARP_TILES = tuple(GatedWarpTile(**_extents(tile)) for tile in TILES if tile.n > _PAIRED)
"""Warps store too few columns of a narrow tile."""


class GatedTile(ProductTile, Protocol):
    """A tile of kernels for gated products."""

    @property
    def plain(self) -> ProductTile:
        """The same of a product without a gate."""
        ...


T = TypeVar("T", bound=GatedTile)


@dataclass(frozen=True)
class GatedKind(ProductKind[T]):
    """A kind of two products, one a gate of the other, whose tiles have the columns of both."""

    def serves(self, problem: KernelProblem) -> bool:
        return isinstance(problem.op, Gated)

    def refuse_problem(self, problem: KernelProblem) -> str | None:
        return refuse_gated(problem)

    def product(self, problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
        return gated_product(problem, loads)

    def work(self, problem: KernelProblem, product: Product) -> Work:
        return gated_work(problem, product)

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The product's over all columns, of which half are stored."""
        whole, product = both_sides(problem), gated_product(problem)
        found = expense(whole, replace(product, residual=False))
        more = gated_work(problem, product).nbytes - work(whole, product).nbytes
        return replace(found, nbytes=found.nbytes + more, flops=found.flops + problem.flops - whole.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        found = reads_apart(both_sides(problem), self.product(problem), op_operands(problem)[0], None)
        added = residual(problem)
        return found if added is None else tuple(sorted({*found, added}))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        op, own, kernel = gated(problem), op_operands(problem), self.kernel_of(candidate)
        x, added = own[0], residual(problem)
        product = self.product(problem).reading(problem.inputs[x], at.input_pitch(x))
        settings = Settings.read(candidate.settings)
        lacking = kernel.partial or DEFAULT not in kernel.tile.allowed(product, gpu_of(target))
        if settings == DEFAULT and lacking:
            raise ValueError(f"{candidate} states not all of its settings")
        name = f"Gated{'Split' if kernel.partial else ''}{product.kernel}"
        out = product.stored if kernel.partial else ""
        tile = (kernel.tile.plain if kernel.partial else kernel.tile).cxx(product, gpu_of(target))
        member = f"{SPACE}::{name}<{tile}, {_gate_type(problem)}, {product.source}{out}>"
        ones, others = own[: op.operands], own[op.operands :]
        arguments = (
            product.arguments((*settings.fields, *between_rows(at, added))), product.source_value,
            constant(at, ones[1]), constant(at, *others[:1]), product_of(first_side(problem)).weights,
            boolean(op.neighbours), constant(at, *ones[2:]), constant(at, *others[1:]), _gate_value(problem),
        )  # fmt: skip
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run(r, {at.inputs[x]}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/plans/gated.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        """Partial sums of split-K know no gate: such a kernel is that of a product."""
        kernel, product = self.kernel_of(candidate), self.product(problem)
        if kernel.partial:
            return unit_of(both_sides(problem), Kernel(kernel.tile.plain, partial=True), target)
        kind = product.kernel.lower()
        text = (
            f'#include "bolt_cutlass/units/{kind}{kernel.tile.header}_kernel.h"\n\n'
            f"template void {SPACE}::launch_{kind}(\n    {kernel.tile.cxx(product, gpu_of(target))},\n"
            f"    const {SPACE}::{product.kernel}Arguments&,\n    const {_gate_type(problem)}&, void*);\n"
        )
        return named_unit(text, kernel.tile.memory_mb, f"{kind} {kernel}{_words(problem)}")


def _gate_type(problem: KernelProblem) -> str:
    op = gated(problem)
    types = (stages_type(op.first), stages_type(op.second), epilogue_type(problem), boolean(biased(problem)))
    return f"{SPACE}::Gated<{', '.join(types)}>"


def _gate_value(problem: KernelProblem) -> str:
    op = gated(problem)
    values = (stages_value(op.first), stages_value(op.second), epilogue_value(problem))
    return f"{_gate_type(problem)}{{{', '.join(values)}}}"


def _words(problem: KernelProblem) -> str:
    """` | silu * identity | add`, for people."""
    op = gated(problem)
    first, second = (" ".join(words_of(stages)) or "identity" for stages in (op.first, op.second))
    return f" | {first} * {second}{stage_words(problem)}"
