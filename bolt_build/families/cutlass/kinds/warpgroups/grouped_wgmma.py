"""Convolutions with groups on Hopper: kernels of `wgmma.py` and `band.py` whose tiles have the columns of one group, or
of a few, and read the channels of those alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.epilogue import EpilogueCode, residual
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile
from bolt_build.families.cutlass.kinds.windows.conv_code import conv_step, conv_unit
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.groups import GroupedProduct, has_groups
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_TOGETHER = (1, 2, 4)
"""Groups that a tile may have, with zeros between them: a quarter of its products at least are with weights."""


@dataclass(frozen=True)
class GroupTile:
    """A tile for `groups` groups together, or for a part of one."""

    tile: WgmmaTile | BandTile
    groups: int

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("groups", self.groups))

    @classmethod
    def read(cls, reader: Reader) -> GroupTile:
        tile = BandTile.read(reader) if reader.has("bands") else WgmmaTile.read(reader)
        return cls(tile, reader.number("groups"))

    def cxx(self, what: GroupedProduct, gpu: Gpu) -> str:
        return f"{SPACE}::GroupTile<{self.tile.cxx(self.product(what), gpu)}>"

    def __str__(self) -> str:
        return f"{self.tile} of {'one group' if self.groups == 1 else f'{self.groups} groups'}"

    def product(self, what: GroupedProduct) -> Product:
        """What it computes for its groups."""
        return replace(what.product, n=self.groups * what.outputs, depth=self.groups * what.channels)

    def columns(self, what: GroupedProduct) -> int:
        """Of all its tiles: a group begins with one."""
        return what.groups // self.groups * aligned(self.groups * what.outputs, self.tile.n)


class GroupedWgmma(TileKind[GroupTile, GroupedProduct]):
    """The kind of kernels for convolutions with groups of whole loads of channels, 1x1 or over windows."""

    def serves(self, problem: KernelProblem) -> bool:
        return has_groups(problem)

    def read_tile(self, reader: Reader) -> GroupTile:
        return GroupTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        if (reason := conv.refuse_apart_from_groups(problem)) is not None:
            return reason
        product = self.computed(problem).product
        if product.kernel == "Gemm" and product.depth != problem.inputs[op_operands(problem)[0]].shape[1]:
            return "channels of a group lie apart in a window that is the whole image"
        return None

    def computed(self, problem: KernelProblem) -> GroupedProduct:
        return GroupedProduct.of(problem)

    def tiles_for(self, what: GroupedProduct, gpu: Gpu) -> tuple[tuple[GroupTile, ...], str | None]:
        return GROUP_TILES, None

    def refuse_tile(self, tile: GroupTile, what: GroupedProduct, gpu: Gpu) -> str | None:
        own, product = tile.tile, tile.product(what)
        if what.groups % tile.groups:
            return Reason("{} groups are no multiple of the {} that it computes together", what.groups, tile.groups)
        if tile.groups > 1 and product.n > own.n:
            return Reason("has no room for {} groups of {} outputs", tile.groups, what.outputs)
        if isinstance(own, BandTile) and (own.n % what.outputs == 0 or what.outputs % own.n == 0):
            return "bands of whole groups, or of whole parts of one, begin wherever a tile does"
        every = replace(product, n=tile.columns(what))
        return refuse_half(own.halves, product.dtype) or own.refuse(gpu, product) or own.refuse_whole(gpu, every)

    def seconds(self, problem: KernelProblem, what: GroupedProduct, candidate: Candidate, target: Target) -> float:
        """That of the product whose columns are those of all tiles, and whose depth is that of one tile's groups."""
        tile = self.tile_of(candidate)
        product = replace(tile.product(what), n=tile.columns(what))
        work = Work(
            product.m, product.n, product.depth, product.taps, product.kernel == "Conv", what.nbytes,
            stride=product.step, functions=what.functions, residual=product.residual,
        )  # fmt: skip
        return tile.tile.seconds(product, work, target)

    def group(self, tile: GroupTile) -> str:
        return f"{tile.tile.group} of groups"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """With the zeros between the groups of a tile."""
        if candidate is None:
            return Expense(problem.nbytes, problem.flops)
        what, tile = self.computed(problem), self.tile_of(candidate)
        needed = 2 * what.product.m * what.product.n * what.channels * what.product.taps
        more = (tile.groups - 1) * needed
        why = f"groups padded from {needed} operations to {needed + more}" if more else ""
        return Expense(problem.nbytes, problem.flops + more, why)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        x, added = op_operands(problem)[0], residual(problem)
        return (x,) if added is None else tuple(sorted({x, added}))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, what, x = self.tile_of(candidate), self.computed(problem), op_operands(problem)[0]
        product, together = what.product.reading(problem.inputs[x], at.input_pitch(x)), tile.product(what)
        names = [name for name, _ in product.shape]
        behind = names.index("k" if product.kernel == "Gemm" else "dilation_w") + 1
        groups = (("groups", what.groups // tile.groups),)
        product = replace(product, shape=(*product.shape[:behind], *groups, *product.shape[behind:]))
        packed = struct(
            f"{SPACE}::GroupedFilter",
            outputs=product.n, of_group=what.outputs, channels=what.channels, taps=product.taps, row=together.depth,
            span=together.n,
        )  # fmt: skip
        cxx = tile.cxx(what, gpu_of(target))
        return conv_step(problem, product, cxx, packed, at, epilogue=self.epilogue(problem, tile))

    def epilogue(self, problem: KernelProblem, tile: GroupTile) -> EpilogueCode:
        """What follows the products of a problem of one operator."""
        return EpilogueCode.of(problem)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile, what = self.tile_of(candidate), self.computed(problem)
        kernel, cxx = what.product.kernel, tile.cxx(what, gpu_of(target))
        header = f"{kernel.lower()}_groups_kernel.h"
        return conv_unit(problem, header, cxx, tile.tile.memory_mb, str(tile), kernel, self.epilogue(problem, tile))


_ALONE: tuple[WgmmaTile | BandTile, ...] = (
    *(tile for tile in FEW_SUMS if tile.cluster[1] == 1),
    *BAND_TILES,
)
GROUP_TILES = tuple(GroupTile(tile, groups) for tile in _ALONE for groups in _TOGETHER)
