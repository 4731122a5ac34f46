"""Convolutions with groups on Hopper: kernels of `band.py` whose tiles have the channels of their groups alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.epilogue import residual
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile
from bolt_build.families.cutlass.kinds.windows.conv_code import conv_step, conv_unit
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.groups import GroupedProduct, has_groups
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_NARROW_ROWS = (16, 32)
"""Channels of a filter's row where groups are so small: an instruction computes as many outputs."""
_FILTERS = {"whole": 0, **{f"of{width}": width for width in _NARROW_ROWS}}


@dataclass(frozen=True)
class GroupedTile:
    """A band's tile, whose filters have rows of as many channels as its `width` says."""

    band: BandTile

    @property
    def parameters(self) -> Named:
        words = {width: word for word, width in _FILTERS.items()}
        return (*self.band.parameters, ("filters", words[self.band.width]))

    @classmethod
    def read(cls, reader: Reader) -> GroupedTile:
        return cls(replace(BandTile.read(reader), width=reader.word("filters", _FILTERS)))

    def __str__(self) -> str:
        return f"{self.band}, filters of {self.band.width or 'all'} channels"

    def product(self, what: GroupedProduct) -> Product:
        """The product that its outputs are: its depth is that of their groups."""
        several = max(self.band.n // what.outputs, 1)
        return replace(what.product, depth=several * what.channels)


class GroupedBands(TileKind[GroupedTile, GroupedProduct]):
    """The kind of kernels for convolutions with groups of whole loads of channels."""

    def serves(self, problem: KernelProblem) -> bool:
        return has_groups(problem)

    def read_tile(self, reader: Reader) -> GroupedTile:
        return GroupedTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        if (reason := conv.refuse_apart_from_groups(problem)) is not None:
            return reason
        if self.computed(problem).product.kernel != "Conv":
            return "groups are of windows of several taps"
        return None

    def computed(self, problem: KernelProblem) -> GroupedProduct:
        return GroupedProduct.of(problem)

    def tiles_for(self, what: GroupedProduct, gpu: Gpu) -> tuple[tuple[GroupedTile, ...], str | None]:
        return _TILES, None

    def refuse_tile(self, tile: GroupedTile, what: GroupedProduct, gpu: Gpu) -> str | None:
        band, outputs, channels, width = tile.band, what.outputs, what.channels, tile.band.width
        if band.n % outputs and outputs % band.n:
            return Reason("{} outputs are no whole groups, and no part of one, of {}", band.n, outputs)
        if width and (channels != outputs or width % channels):
            return Reason("filters of {} channels are for whole groups of them, here are {}", width, channels)
        if width and (band.n != band.k or tile.product(what).depth != band.k):
            return "short filters are of as many channels as a band has"
        if not width and channels == outputs and any(row % channels == 0 for row in _NARROW_ROWS):
            return "its filters would be mostly zeros"
        product = tile.product(what)
        return refuse_half(band.halves, product.dtype) or band.refuse(gpu, product) or band.refuse_whole(gpu, product)

    def seconds(self, problem: KernelProblem, what: GroupedProduct, candidate: Candidate, target: Target) -> float:
        tile = self.tile_of(candidate)
        product = tile.product(what)
        work = Work(product.m, product.n, product.depth, product.taps, True, what.nbytes, functions=what.functions)
        return tile.band.seconds(product, work, target)

    def group(self, tile: GroupedTile) -> str:
        return "bands of groups"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        x, added = op_operands(problem)[0], residual(problem)
        return (x,) if added is None else tuple(sorted({x, added}))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, what, x = self.tile_of(candidate), self.computed(problem), op_operands(problem)[0]
        product = tile.product(what).reading(problem.inputs[x], at.input_pitch(x))
        names = [name for name, _ in product.shape]
        at_groups = names.index("dilation_w") + 1
        groups = (("groups", what.groups),)
        product = replace(product, shape=(*product.shape[:at_groups], *groups, *product.shape[at_groups:]))
        row = tile.band.width or product.depth  # of a filter as it is packed
        span = tile.band.width or (tile.band.n if tile.band.n >= what.outputs else what.outputs)
        packed = struct(
            f"{SPACE}::GroupedFilter",
            outputs=product.n, of_group=what.outputs, channels=what.channels, taps=product.taps, row=row,
            span=span,
        )  # fmt: skip
        return conv_step(problem, product, tile.band.cxx(product, gpu_of(target)), packed, at)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile = self.tile_of(candidate)
        cxx = tile.band.cxx(tile.product(self.computed(problem)), gpu_of(target))
        return conv_unit(problem, "conv_band_kernel.h", cxx, tile.band.memory_mb, str(tile))


_TILES = tuple(
    GroupedTile(replace(band, width=width))
    for band in BAND_TILES
    for width in (0, *(_NARROW_ROWS if band.n == band.k == lcm(band.n, 32) else ()))
)
