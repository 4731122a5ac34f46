"""Kernels for two products, one behind the other, on Hopper: the second is part of the first's store.

A block multiplies its sums, in the registers where WGMMA leaves them, by the second weights, which it loads once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as every
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import too_many_sums, wasted_rows
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import (
    LEAST_STAGES,
    TURNS,
    WgmmaTile,
    refuse_product,
    stages,
    store_bytes,
)
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import seconds
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.product_chain import ProductChain
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class WgmmaChainTile:
    """The first product's tile, in clusters of one, and the columns of the second's."""

    first: WgmmaTile
    n1: int

    header: ClassVar[str] = "_pair_warpgroup"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    group: ClassVar[str] = "WGMMA"

    @property
    def second(self) -> WgmmaTile:
        """What is stored, as a tile."""
        return WgmmaTile(self.first.m, self.n1, self.first.k, self.first.cooperative)

    def stages(self, gpu: Gpu, residual: bool) -> int:
        """Stages of the first's pipeline that shared memory has room for beside the second's weights, which lie in
        runs of 64 and begin on 1 KiB, the output and the barriers."""
        weights = self.n1 * aligned(self.first.n, 64) * 2 + 1024
        first = self.first
        store = store_bytes(self.n1, first.warpgroups, residual, first.stage_bytes, weights)
        return stages(gpu.shared_memory, first.stage_bytes, weights + store)

    def __str__(self) -> str:
        return f"{self.first} then {self.n1}"

    @property
    def parameters(self) -> Named:
        first, turns = self.first, "cooperative" if self.first.cooperative else "pingpong"
        return (("m", first.m), ("n", first.n), ("n1", self.n1), ("k", first.k), ("warpgroups", turns))

    @classmethod
    def read(cls, reader: Reader) -> WgmmaChainTile:
        m, n, n1, k = map(reader.number, ("m", "n", "n1", "k"))
        return cls(WgmmaTile(m, n, k, reader.word("warpgroups", TURNS)), n1)

    def cxx(self, gpu: Gpu, chain: ProductChain) -> str:
        """`bolt::cutlass_kernels::WarpgroupPair<128, 64, 64, 64, false>`"""
        first = self.first
        values = (first.m, first.n, self.n1, first.k, boolean(first.cooperative))
        return f"{SPACE}::WarpgroupPair<{', '.join(map(str, values))}{chain.first.element}>"

    def packed(self, chain: ProductChain) -> str:
        return chain.first.weights

    def refuse(self, gpu: Gpu, chain: ProductChain) -> str | None:
        if (reason := _refuse_depth(self.first.k, chain.first) or wasted_rows(self.first.m, chain.first.m)) is not None:
            return reason
        if (reason := too_many_sums(max(self.first.accumulators, self.second.accumulators))) is not None:
            return reason
        stages = self.stages(gpu, chain.second.residual)
        if stages < LEAST_STAGES:
            return Reason(
                "beside the second's weights, shared memory has room for {} stages, {} are needed", stages, LEAST_STAGES
            )
        return None

    def seconds(self, chain: ProductChain, work: Work, target: Target) -> float:
        return seconds(self.first, work, target, self.n1)


_WIDTHS = (16, 32, 64, 96, 128, 192, 256)
"""Columns of the first product that one WGMMA computes."""
_WIDEST = 256
_ROWS = {False: (64, 128), True: (128, 256)}
_DEPTHS = (16, 32, 64, 128)


def tiles(gpu: Gpu, chain: ProductChain) -> tuple[tuple[WgmmaChainTile, ...], str | None]:
    """The tiles that are as wide as both products, in every height and depth of step; and why there are none."""
    # The first's rows are not stored, the second's are.
    if (reason := refuse_product(gpu, replace(chain.first, n=chain.second.n))) is not None:
        return (), reason
    n0 = next((width for width in _WIDTHS if width >= chain.first.n), None)
    if n0 is None or chain.second.n > _WIDEST:
        return (), Reason("whole rows of {} and {} do not fit one WGMMA tile", chain.first.n, chain.second.n)
    # Stores go in boxes of 32 columns, or of 16 where those do not divide the tile: both are worth a try.
    widths = dict.fromkeys((aligned(chain.second.n, 16), aligned(chain.second.n, 32)))
    found = tuple(
        WgmmaChainTile(WgmmaTile(m, n0, k, cooperative), n1)
        for cooperative, k, n1 in every((False, True), _DEPTHS, widths)
        for m in _ROWS[cooperative]
    )
    return found, None


def _refuse_depth(k: int, first: Product) -> str | None:
    if k > _DEPTHS[0] and k >= 2 * first.depth:
        return Reason("half of its depth would be beyond the {} of the product", first.depth)
    if k < 32 and first.depth > (k if first.taps == 1 else 32):
        return Reason("steps of {} are for few channels, here are {}", k, first.depth)
    return None
