"""Kernels for two products, one behind the other, of `mma.sync`: whole rows of the first stay in a block and are the
second's left operand.

So one tile is as wide as the first product, and the second's weights come to every block whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import REGISTERS, wasted_rows
from bolt_build.families.cutlass.kinds.warps.warp import WarpTile, seconds
from bolt_build.families.cutlass.problems.product import Work
from bolt_build.families.cutlass.product_chain import ProductChain
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class WarpChainTile:
    """The first product's tile, and columns of a block and of a warp in the second's. `shared`: the tile goes through
    shared memory, not from register to register."""

    first: WarpTile
    n1: int
    warp_n1: int
    shared: bool

    header: ClassVar[str] = "_pair"
    memory_mb: ClassVar[int] = 900
    halves: ClassVar[tuple[DType, ...]] = HALVES
    group: ClassVar[str] = "warps"

    @property
    def shared_bytes(self) -> int:
        """Both factors of the wider product in every stage, and rows of the tile between where they lie there; or rows
        of the output on their way."""
        first = self.first
        between = first.m * (first.n + 8) * 2 if self.shared else 0
        factors = (first.m + max(first.n, self.n1)) * first.k * 2 * first.stages
        return max(factors + between, (self.n1 + 8) * 4 * 16 * (first.m // first.warp_m))

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums: of both products at once where they pass from register to register."""
        second = self.first.warp_m * self.warp_n1 // 32
        return max(self.first.accumulators, second) if self.shared else self.first.accumulators + second

    def __str__(self) -> str:
        where = "shared memory" if self.shared else "registers"
        return f"{self.first} then {self.n1} through {where}"

    @property
    def parameters(self) -> Named:
        first, through = self.first, "shared" if self.shared else "registers"
        size = (("m", first.m), ("n", first.n), ("n1", self.n1), ("k", first.k))
        warps = (("warp_m", first.warp_m), ("warp_n", first.warp_n), ("warp_n1", self.warp_n1))
        return (*size, *warps, ("stages", first.stages), ("through", through))

    @classmethod
    def read(cls, reader: Reader) -> WarpChainTile:
        m, n, n1, k = map(reader.number, ("m", "n", "n1", "k"))
        warp_m, warp_n, warp_n1, stages = map(reader.number, ("warp_m", "warp_n", "warp_n1", "stages"))
        shared = reader.word("through", {"registers": False, "shared": True})
        return cls(WarpTile(m, n, k, warp_m, warp_n, stages), n1, warp_n1, shared)

    def cxx(self, gpu: Gpu, chain: ProductChain) -> str:
        """`bolt::cutlass_kernels::Pair<128, 64, 64, 32, 64, 32, 32, 3, true, 8, 16>`"""
        first, instruction = self.first, gpu.instruction("fp16")
        assert instruction is not None
        warps = (first.warp_m, first.warp_n, self.warp_n1, first.stages, boolean(self.shared))
        values = (first.m, first.n, self.n1, first.k, *warps, chain.second.access, instruction[2])
        return f"{SPACE}::Pair<{', '.join(map(str, values))}{chain.first.element}>"

    def packed(self, chain: ProductChain) -> str:
        return chain.first.weights

    def refuse(self, gpu: Gpu, chain: ProductChain) -> str | None:
        first = self.first
        if chain.first.kernel == "Gemm" and first.n != chain.first.n:
            return Reason(
                "behind a plain product it would read beyond the {} rows of the second's weights", chain.first.n
            )
        if max(first.n, 32) > 2 * max(chain.first.n, 16) or self.n1 > 2 * max(chain.second.n, 32):
            return Reason(
                "over half of its columns would be beyond the {} and {} of the products", chain.first.n, chain.second.n
            )
        if first.k >= 2 * chain.first.depth:
            return Reason("half of its depth would be beyond the {} of the product", chain.first.depth)
        if first.n % first.k:
            return Reason("steps of {} do not divide the {} columns between the products", first.k, first.n)
        most = REGISTERS if self.shared else _BOTH_SUMS
        if self.accumulators > most:
            return Reason(
                "its accumulators take {} registers of a thread, over {} do not stay in them", self.accumulators, most
            )
        if self.shared_bytes > gpu.shared_memory:
            return Reason("needs {} bytes of shared memory, a block has {}", self.shared_bytes, gpu.shared_memory)
        return wasted_rows(first.m, chain.first.m)

    def seconds(self, chain: ProductChain, work: Work, target: Target) -> float:
        return seconds(self.first, work, target, (self.n1, self.warp_n1))


_REGISTER_FORMS = (
    # m, n0, warp_m; the warps are as wide as the tile, so that what they computed is theirs.
    (64, 32, 16), (64, 64, 16), (64, 128, 16), (128, 32, 32), (128, 64, 16), (128, 64, 32), (128, 128, 32),
    (256, 64, 32),
)  # fmt: skip
_SHARED_FORMS = (
    # m, n0, warp_m, warp_n0, n1, warp_n1: as many warps side by side in either product.
    (64, 64, 32, 32, 64, 32), (64, 64, 32, 32, 128, 64), (128, 64, 64, 32, 64, 32), (128, 64, 64, 32, 128, 64),
    (64, 128, 32, 64, 64, 32), (64, 128, 32, 64, 128, 64), (128, 128, 64, 64, 64, 32), (128, 128, 64, 64, 128, 64),
)  # fmt: skip
_WARP_WIDTHS = (32, 64)
"""Columns of a warp in the second product: wider ones compute something else with CUTLASS 4.2."""
_WARP_DEPTHS = (32, 64)
_BOTH_SUMS = 192
"""Registers of a thread that sums of both products may take together."""
_WIDEST = 128


def tiles(gpu: Gpu, chain: ProductChain) -> tuple[tuple[WarpChainTile, ...], str | None]:
    """Through registers where they are narrow enough, and through shared memory; and why none holds whole rows of both
    products."""
    stages = 3 if gpu.async_copies else 2
    n0, n1 = chain.first.n, chain.second.n
    none = Reason("whole rows of {} and {} do not fit one tile of warps", n0, n1)
    if max(n0, n1) > _WIDEST:
        return (), none
    narrow = next((width for width in _WARP_WIDTHS if width >= n1), None)
    found = [
        WarpChainTile(WarpTile(m, wide, k, warp_m, wide, stages), narrow, narrow, shared=False)
        for (m, wide, warp_m), k in every(_REGISTER_FORMS, _WARP_DEPTHS)
        if wide >= n0 and narrow is not None
    ]
    found += [
        WarpChainTile(WarpTile(m, wide, k, warp_m, warp_n0, stages), other, warp_n1, shared=True)
        for (m, wide, warp_m, warp_n0, other, warp_n1), k in every(_SHARED_FORMS, _WARP_DEPTHS)
        if wide >= n0 and other >= n1
    ]
    return tuple(found), None if found else none
