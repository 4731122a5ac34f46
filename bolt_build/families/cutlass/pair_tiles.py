"""Tiles of kernels that compute two products: whole rows of the first stay in a block and are the second's left factor.

So one tile is as wide as the first product, and the second's weights come to every block whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every

from bolt_build.families.cutlass import resident_pairs
from bolt_build.families.cutlass.product import Product, aligned
from bolt_build.families.cutlass.resident_pairs import ResidentPairTile
from bolt_build.families.cutlass.tiles import REGISTERS, Tile, Work, wasted_rows
from bolt_build.families.cutlass.tiles import seconds as tile_seconds
from bolt_build.families.cutlass.warpgroups import LEAST_STAGES, WarpgroupTile, stages, store_bytes
from bolt_build.families.cutlass.warpgroups import seconds as warpgroup_seconds
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class Pair:
    """Two products, as the kernels compute them one behind the other: columns of the first are rows of the second's
    depth, and both have the same rows."""

    first: Product
    second: Product


@dataclass(frozen=True)
class WarpgroupPairTile:
    """The first product's tile, in clusters of one, and the columns of the second's."""

    first: WarpgroupTile
    n1: int

    @property
    def second(self) -> WarpgroupTile:
        """What is stored, as a tile."""
        return WarpgroupTile(self.first.m, self.n1, self.first.k, self.first.cooperative)

    def stages(self, gpu: Gpu, residual: bool) -> int:
        """Stages of the first's pipeline that shared memory has room for beside the second's weights, which lie in
        runs of 64 and begin on 1 KiB, the output and the barriers."""
        weights = self.n1 * aligned(self.first.n, 64) * 2 + 1024
        first = self.first
        store = store_bytes(self.n1, first.cooperative, residual, first.stage_bytes, weights)
        return stages(gpu.shared_memory, first.stage_bytes, weights + store)

    def __str__(self) -> str:
        return f"{self.first} then {self.n1}"


@dataclass(frozen=True)
class WarpPairTile:
    """The first product's tile, and columns of a block and of a warp in the second's. `shared`: the tile goes through
    shared memory, not from register to register."""

    first: Tile
    n1: int
    warp_n1: int
    shared: bool

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


PairTile = WarpgroupPairTile | WarpPairTile | ResidentPairTile

_WIDTHS = (16, 32, 64, 96, 128, 192, 256)
"""Columns of the first product that one instruction of four warps computes."""
_WIDEST = 256
_ROWS = {False: (64, 128), True: (128, 256)}
_DEPTHS = (16, 32, 64, 128)


def warpgroup_tiles(pair: Pair) -> tuple[WarpgroupPairTile, ...]:
    """The tiles that are as wide as both products, in every height and depth of step; none where nothing is."""
    n0 = next((width for width in _WIDTHS if width >= pair.first.n), None)
    if n0 is None or pair.second.n > _WIDEST:
        return ()
    # Stores go in boxes of 32 columns, or of 16 where those do not divide the tile: both are worth a try.
    widths = dict.fromkeys((aligned(pair.second.n, 16), aligned(pair.second.n, 32)))
    return tuple(
        WarpgroupPairTile(WarpgroupTile(m, n0, k, cooperative), n1)
        for cooperative, k, n1 in every((False, True), _DEPTHS, widths)
        for m in _ROWS[cooperative]
    )


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
_WIDEST_OF_WARPS = 128


def warp_tiles(pair: Pair, gpu: Gpu) -> tuple[WarpPairTile, ...]:
    """Tiles for warps' own instructions, through registers where they are narrow enough and through shared memory; none
    where none holds whole rows of both products."""
    stages = 3 if gpu.async_copies else 2
    n0, n1 = pair.first.n, pair.second.n
    if max(n0, n1) > _WIDEST_OF_WARPS:
        return ()
    narrow = next((width for width in _WARP_WIDTHS if width >= n1), None)
    found = [
        WarpPairTile(Tile(m, wide, k, warp_m, wide, stages), narrow, narrow, shared=False)
        for (m, wide, warp_m), k in every(_REGISTER_FORMS, _WARP_DEPTHS)
        if wide >= n0 and narrow is not None
    ]
    found += [
        WarpPairTile(Tile(m, wide, k, warp_m, warp_n0, stages), other, warp_n1, shared=True)
        for (m, wide, warp_m, warp_n0, other, warp_n1), k in every(_SHARED_FORMS, _WARP_DEPTHS)
        if wide >= n0 and other >= n1
    ]
    return tuple(found)


def refuse(tile: PairTile, gpu: Gpu, pair: Pair) -> str | None:
    """Why no kernel with the tile computes the pair on this GPU, None where one does."""
    if isinstance(tile, ResidentPairTile):
        return resident_pairs.refuse(tile, gpu, pair.first, pair.second)
    if isinstance(tile, WarpgroupPairTile):
        return _refuse_warpgroups(tile, gpu, pair)
    return _refuse_warps(tile, gpu, pair)


def _refuse_warpgroups(tile: WarpgroupPairTile, gpu: Gpu, pair: Pair) -> str | None:
    if (reason := _refuse_depth(tile.first.k, pair.first) or wasted_rows(tile.first.m, pair.first.m)) is not None:
        return reason
    sums = (tile.first.accumulators, tile.second.accumulators)
    if max(sums) > REGISTERS:
        return f"its sums take {max(sums)} registers of a thread, over {REGISTERS} do not stay in them"
    stages = tile.stages(gpu, pair.second.residual)
    if stages < LEAST_STAGES:
        return f"beside the second's weights, shared memory has room for {stages} stages, {LEAST_STAGES} are needed"
    return None


def _refuse_depth(k: int, first: Product) -> str | None:
    if k > _DEPTHS[0] and k >= 2 * first.depth:
        return f"half of its depth would be beyond the {first.depth} of the product"
    if k < 32 and first.depth > (k if first.taps == 1 else 32):
        return f"steps of {k} are for few channels, here are {first.depth}"
    return None


def _refuse_warps(tile: WarpPairTile, gpu: Gpu, pair: Pair) -> str | None:
    first = tile.first
    if pair.first.kernel == "Gemm" and first.n != pair.first.n:
        return f"behind a plain product it would read beyond the {pair.first.n} rows of the second's weights"
    if max(first.n, 32) > 2 * max(pair.first.n, 16) or tile.n1 > 2 * max(pair.second.n, 32):
        return f"over half of its columns would be beyond the {pair.first.n} and {pair.second.n} of the products"
    if first.k >= 2 * pair.first.depth:
        return f"half of its depth would be beyond the {pair.first.depth} of the product"
    if first.n % first.k:
        return f"steps of {first.k} do not divide the {first.n} columns between the products"
    most = REGISTERS if tile.shared else _BOTH_SUMS
    if tile.accumulators > most:
        return f"its sums take {tile.accumulators} registers of a thread, over {most} do not stay in them"
    if tile.shared_bytes > gpu.shared_memory:
        return f"needs {tile.shared_bytes} bytes of shared memory, a block has {gpu.shared_memory}"
    return wasted_rows(first.m, pair.first.m)


def seconds(tile: PairTile, pair: Pair, work: Work, target: Target) -> float:
    """Predicted time of both products; `work` is the first's, but for its bytes, which are those of the pair."""
    if isinstance(tile, ResidentPairTile):
        return resident_pairs.seconds(tile, pair.first, work.nbytes, target)
    if isinstance(tile, WarpgroupPairTile):
        return warpgroup_seconds(tile.first, work, target, tile.n1)
    return tile_seconds(tile.first, work, target, (tile.n1, tile.warp_n1))
