"""Kernels on Hopper for a product of few rows and the normalisation of them: the depth is computed in slices, and the
kernel that adds these up has whole rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, residual
from bolt_build.families.cutlass.expense import copy_seconds
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.norms.wgmma_norm import STATISTICS, expense_of, keeps, norm_of, refuse_norm
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import SINGLE, WgmmaTile
from bolt_build.families.cutlass.one_product import Kernel, best_slices, sliced_seconds, unit_of
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.product import Product, work
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.cutlass.slices import refuse
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Gpu, Target

_THREADS, _WIDE, _LOADS = 128, 8, 4
"""Threads of a row, columns that each loads at once, and the most such loads of a thread: `row_threads` of
sliced_norm.h."""
_DEEP = 512
"""Depth from which slices can pay where the kernel that adds them up is there anyway, to normalise."""
_NORMALISE = 0.5e-6
"""Seconds that the sum of slices takes longer where it normalises. A guess."""


@dataclass(frozen=True)
class SlicedNormTile:
    """The tile of the slices."""

    tile: WgmmaTile

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("sliced_norm", 1))

    @classmethod
    def read(cls, reader: Reader) -> SlicedNormTile:
        """Raises ValueError."""
        reader.number("sliced_norm")
        return cls(WgmmaTile.read(reader))

    def __str__(self) -> str:
        return f"{self.tile} with split-K"


_TILES = tuple(
    SlicedNormTile(WgmmaTile(m, n, k, cooperative=False, cluster=cluster))
    for k, (m, n), cluster in every((64, 128), ((64, 64), (64, 96), (64, 128), (128, 64)), ((1, 1), (1, 2)))
) + tuple(map(SlicedNormTile, SINGLE))


class SlicedNorm(TileKind[SlicedNormTile, Product]):
    """The kind of a matrix product in slices and the normalisation of its rows where they are added up."""

    def serves(self, problem: KernelProblem) -> bool:
        first, *behind = problem.op.sequence
        return isinstance(first.op, MatMul) and len(behind) == 1 and isinstance(behind[0].op, Norm)

    def read_tile(self, reader: Reader) -> SlicedNormTile:
        return SlicedNormTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        if problem.epilogue:
            return "another function follows the normalisation"
        if (reason := refuse_norm(problem, gpu)) is not None:
            return reason
        columns, most = product_of(parts(problem)[0]).n, _THREADS * _WIDE * _LOADS
        if columns > most:
            return Reason("a row of {} columns is longer than the {} that a block keeps in registers", columns, most)
        return None

    def computed(self, problem: KernelProblem) -> Product:
        return product_of(parts(problem)[0])

    def tiles_for(self, what: Product, gpu: Gpu) -> tuple[tuple[SlicedNormTile, ...], str | None]:
        """Where even the smallest tile has no slices, its reason is that of all."""
        reason = self.refuse_tile(_TILES[0], what, gpu)
        return (_TILES, None) if reason is None else ((), reason)

    def refuse_tile(self, tile: SlicedNormTile, what: Product, gpu: Gpu) -> str | None:
        return tile.tile.refuse(gpu, what) or refuse(tile.tile, gpu, what, _DEEP)

    def usual(self, tile: SlicedNormTile, what: Product, target: Target) -> Named:
        return Settings(best_slices(what, _kernel(tile), target)).named

    def refuse_settings(self, tile: SlicedNormTile, what: Product, candidate: Candidate) -> str | None:
        return None if "slices" in dict(candidate.settings) else f"{candidate} states no slices"

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (reason := super().refuse(problem, candidate, target)) is not None:
            return reason
        counts = self.tile_of(candidate).tile.counts(gpu_of(target), self.computed(problem))
        offered = any(candidate.settings == Settings(slices=count).named for count in counts)
        return None if offered else f"{candidate} has slices that it cannot have here"

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Other numbers of slices."""
        tile = self.tile_of(candidate)
        counts = tile.tile.counts(gpu_of(target), self.computed(problem))
        others = (Candidate(candidate.family, tile.parameters, Settings(slices=count).named) for count in counts)
        return tuple(other for other in others if other != candidate)

    def seconds(self, problem: KernelProblem, what: Product, candidate: Candidate, target: Target) -> float:
        """Those of split-K, whose second kernel does a little more."""
        first, tile, slices = parts(problem)[0], self.tile_of(candidate), Settings.read(candidate.settings).slices
        more = first.outputs[0].nbytes if keeps(problem) else 0
        seconds = sliced_seconds(what, _kernel(tile), work(first, what), target, slices)
        return copy_seconds(first, what, target) + seconds + _NORMALISE + more / target.bandwidth

    def group(self, tile: SlicedNormTile) -> str:
        return "single split-K" if tile.tile.single else "split-K"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        return expense_of(problem)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, self.computed(problem), op_operands(problem)[0], residual(parts(problem)[0]))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        first, tile, settings = parts(problem)[0], self.tile_of(candidate).tile, Settings.read(candidate.settings)
        own, count, added = op_operands(first), len(first.inputs), residual(first)
        product, norm = self.computed(problem).reading(first.inputs[own[0]], at.input_pitch(own[0])), norm_of(problem)
        loads = ceil(product.n / (_THREADS * _WIDE))
        types = (
            tile.cxx(product, gpu_of(target)), epilogue_type(first), product.source, COMPUTED[product.dtype],
            str(loads), boolean(STATISTICS[norm.statistic]),
        )  # fmt: skip
        behind = range(count, len(problem.inputs))
        arguments = (
            product.arguments((*settings.fields, *between_rows(at, added))), product.source_value,
            constant(at, own[1]), product.weights, constant(at, *own[2:]), epilogue_value(first),
            constant(at, *behind[:1]), constant(at, *behind[1:]), f"{norm.epsilon!r}f",
        )  # fmt: skip
        other = "nullptr" if added is None else at.inputs[added]
        kept = at.outputs[0] if keeps(problem) else "nullptr"
        call = f"kernel.run(r, {at.inputs[own[0]]}, {other}, {kept}, {at.outputs[-1]});"
        member = f"{SPACE}::SlicedNormedGemm<{', '.join(types)}>"
        return StepCode(("bolt_cutlass/plans/sliced_norm.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        """That of split-K without a normalisation: its sums know nothing of what follows."""
        return unit_of(parts(problem)[0], _kernel(self.tile_of(candidate)), target)


def _kernel(tile: SlicedNormTile) -> Kernel[WgmmaTile]:
    return Kernel(tile.tile, partial=True)
