"""Kernels on Hopper for a product of rows that are normalised first, as transformers do: what is normalised is never
stored. WGMMA reads the A operand from registers, where a row's statistics are taken of it in passing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, residual, stage_words
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import (
    TURNS,
    WgmmaTile,
    refuse_product,
)
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import seconds
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.prenorm import Prenormed, prenormed, refuse_prenorm
from bolt_build.families.cutlass.problems.product import Product, Work, work
from bolt_build.families.cutlass.problems.products import multiplies
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

_MOST_REGISTERS = 176
"""Registers of a thread that its sums and two halves of a step of its A operand may take. Where three warpgroups
share a tile, there are too few for more than 96 sums anyway."""

# Fitted to 158 kernels on an H200, off by 6%: seconds of a warp for 16 x 16 elements in a step; which
# part of what its scheduler can issue one warp alone has; and the seconds of a tile in which pivots are found and the
# first half of a step is read, while nothing is multiplied, and in which statistics are applied.
_FRAGMENT, _ALONE, _ONCE = 3.3e-8, 0.78, 0.89e-6


@dataclass(frozen=True)
class PrenormTile:
    """A WGMMA tile, in clusters of one, whose A operand goes through registers."""

    tile: WgmmaTile

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("prenorm", 1))

    @classmethod
    def read(cls, reader: Reader) -> PrenormTile:
        """Raises ValueError."""
        reader.number("prenorm")
        return cls(WgmmaTile.read(reader))

    @property
    def fragments(self) -> int:
        """16 x 16 elements of a step that a warp has."""
        return self.tile.m // (64 * self.tile.warpgroups) * self.tile.k // 16

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        tile = self.tile
        if product.depth % tile.k:
            return Reason("{} columns are no whole number of steps of {}", product.depth, tile.k)
        if (reason := tile.refuse(gpu, product)) is not None:
            return reason
        if (registers := tile.accumulators + 4 * self.fragments) > _MOST_REGISTERS:
            return Reason(
                "its accumulators and A operand take {} registers of a thread, over {}", registers, _MOST_REGISTERS
            )
        return tile.refuse_whole(gpu, product)

    def seconds(self, work: Work, target: Target) -> float:
        """Predicted time. A scheduler has a warp of each warpgroup that shares a tile."""
        speed = target.rate("fp16") / gpu_of(target).sms / MEASURED_RATE
        beside = self.fragments * max(self.tile.warpgroups, 1 / _ALONE) * _FRAGMENT / speed
        before = _ONCE / ceil(work.depth / self.tile.k) / speed
        return seconds(self.tile, work, target, before=before, beside=beside)

    def cxx(self, what: Prenormed) -> str:
        """`bolt::cutlass_kernels::WarpgroupPrenorm<128, 192, 64, true, true>`"""
        tile = self.tile
        values = (tile.m, tile.n, tile.k, boolean(tile.cooperative), boolean(what.centred))
        return f"{SPACE}::WarpgroupPrenorm<{', '.join(map(str, values))}{what.product.element}>"

    def __str__(self) -> str:
        return f"{self.tile} of normalised rows"


_ROWS = {False: (64, 128), True: (128, 192, 256)}
_COLUMNS = (64, 96, 128, 192, 256)
_DEPTHS = (32, 64, 128)
_TILES = tuple(
    PrenormTile(WgmmaTile(m, n, k, cooperative))
    for cooperative, k, n in every(TURNS.values(), _DEPTHS, _COLUMNS)
    for m in _ROWS[cooperative]
)


class WgmmaPrenorm(TileKind[PrenormTile, Prenormed]):
    """The kind of a normalisation and the matrix product that alone reads it."""

    def serves(self, problem: KernelProblem) -> bool:
        first, *rest = problem.op.sequence
        return isinstance(first.op, Norm) and len(rest) == 1 and multiplies(rest[0].op)

    def read_tile(self, reader: Reader) -> PrenormTile:
        return PrenormTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return refuse_prenorm(problem) or refuse_product(gpu, prenormed(problem).product)

    def computed(self, problem: KernelProblem) -> Prenormed:
        return prenormed(problem)

    def tiles_for(self, what: Prenormed, gpu: Gpu) -> tuple[tuple[PrenormTile, ...], str | None]:
        return _TILES, None

    def refuse_tile(self, tile: PrenormTile, what: Prenormed, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what.product)

    def seconds(self, problem: KernelProblem, what: Prenormed, candidate: Candidate, target: Target) -> float:
        return self.tile_of(candidate).seconds(work(parts(problem)[1], what.product), target)

    def group(self, tile: PrenormTile) -> str:
        return "WGMMA"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both, without what lies between them."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, self.computed(problem).product, 0, residual(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        (first, second), tile, what = parts(problem), self.tile_of(candidate), prenormed(problem)
        product = what.product.reading(problem.inputs[0], at.input_pitch(0))
        own, added = [index for index in op_operands(problem) if index >= len(first.inputs)], residual(problem)
        arguments = (
            product.arguments(between_rows(at, added)),
            constant(at, *what.vectors[:1]), constant(at, *what.vectors[1:]), f"{what.norm.epsilon!r}f",
            constant(at, own[0]), product.weights, constant(at, *own[1:]), epilogue_value(second),
        )  # fmt: skip
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run(r, {at.inputs[0]}, {other}, {at.outputs[0]});"
        member = f"{SPACE}::PrenormGemm<{tile.cxx(what)}, {epilogue_type(second)}>"
        return StepCode(("bolt_cutlass/plans/prenorm.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        second, tile, what = parts(problem)[1], self.tile_of(candidate), prenormed(problem)
        text = (
            '#include "bolt_cutlass/units/gemm_prenorm_warpgroup_kernel.h"\n\n'
            f"template void {SPACE}::launch_gemm(\n    {tile.cxx(what)},\n"
            f"    const {SPACE}::GemmArguments&, const {SPACE}::PrenormArguments&,\n"
            f"    const {epilogue_type(second)}&, void*);\n"
        )
        label = f"norm | gemm{stage_words(second)}, tile {tile}"
        return named_unit(text, WgmmaTile.memory_mb, label)
