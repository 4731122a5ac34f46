"""Compiled kernels of the family: as candidates, as C++ types, and the rules that decide which suit a product."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.product import Product
from bolt_build.families.cutlass.resident import RESIDENT_TILES, UNIT, ResidentTile
from bolt_build.families.cutlass.resident import refuse as refuse_resident
from bolt_build.families.cutlass.tiles import TILES, WHOLE, Tile, wasted_rows
from bolt_build.families.cutlass.tiles import refuse as refuse_tile
from bolt_build.families.cutlass.warpgroups import WARPGROUP_TILES, WarpgroupTile
from bolt_build.families.cutlass.warpgroups import refuse as refuse_warpgroups
from bolt_build.targets import Gpu

SPACE = "bolt::cutlass_kernels"

SlicedTile = Tile | WarpgroupTile
"""Tiles whose kernels can leave sums of slices of the depth."""
AnyTile = SlicedTile | ResidentTile


@dataclass(frozen=True)
class Kernel:
    """A tile, and whether the kernel leaves sums of slices of the depth, to which nothing was done yet (`partial`)."""

    tile: AnyTile
    partial: bool = False

    @property
    def of_warpgroups(self) -> bool:
        return isinstance(self.tile, WarpgroupTile)

    @property
    def resident(self) -> bool:
        """True where weights stay in registers."""
        return isinstance(self.tile, ResidentTile)

    def __str__(self) -> str:
        return f"tile {self.tile} in slices" if self.partial else f"tile {self.tile}"


ALL_TILES: tuple[AnyTile, ...] = (*TILES, *WARPGROUP_TILES, *RESIDENT_TILES)


def loads_of(tile: AnyTile) -> int:
    """Elements of both factors that are loaded at once: the tensor copy engine takes rows of whole 16 bytes alone."""
    return tile.loads if isinstance(tile, Tile) else WHOLE


def candidate_of(kernel: Kernel) -> Candidate:
    """The kernel with its default settings."""
    tile = kernel.tile
    if isinstance(tile, ResidentTile):
        turns = "together" if tile.together else "turns"
        wide = (("width", tile.width),) if tile.width != UNIT else ()
        return Candidate("cutlass", (("rows", tile.rows), *wide, ("steps", tile.steps), ("resident", turns)))
    parameters: list[tuple[str, int | str]] = [("m", tile.m), ("n", tile.n), ("k", tile.k)]
    if isinstance(tile, WarpgroupTile):
        parameters.append(("warpgroups", "cooperative" if tile.cooperative else "pingpong"))
        if tile.cluster != (1, 1):
            parameters.append(("cluster", f"{tile.cluster[0]}x{tile.cluster[1]}"))
    else:
        parameters += [("warp_m", tile.warp_m), ("warp_n", tile.warp_n), ("stages", tile.stages)]
        if tile.loads != WHOLE:
            parameters.append(("loads", tile.loads))
    return Candidate("cutlass", (*parameters, *((("partial", 1),) if kernel.partial else ())))


def kernel_of(candidate: Candidate) -> Kernel:
    """The kernel of one of this family's candidates."""
    values = dict(candidate.parameters)
    if "resident" in values:
        rows, steps, width = int(values["rows"]), int(values["steps"]), int(values.get("width", UNIT))
        return Kernel(ResidentTile(rows, steps, values["resident"] == "together", width))
    m, n, k = (int(values[name]) for name in ("m", "n", "k"))
    partial = "partial" in values
    if "warpgroups" not in values:
        warp_m, warp_n, stages = (int(values[name]) for name in ("warp_m", "warp_n", "stages"))
        return Kernel(Tile(m, n, k, warp_m, warp_n, stages, int(values.get("loads", WHOLE))), partial)
    down, across = str(values.get("cluster", "1x1")).split("x")
    cooperative = values["warpgroups"] == "cooperative"
    return Kernel(WarpgroupTile(m, n, k, cooperative, (int(down), int(across))), partial)


def cxx_tile(kernel: Kernel, product: Product, gpu: Gpu) -> str:
    """`bolt::cutlass_kernels::WarpgroupTile<128, 128, 64, false, 1, 1>`"""
    tile = kernel.tile
    if isinstance(tile, ResidentTile):
        return tile.cxx(product)
    if isinstance(tile, WarpgroupTile):
        cooperative = "true" if tile.cooperative else "false"
        return (
            f"{SPACE}::WarpgroupTile<{tile.m}, {tile.n}, {tile.k}, {cooperative}, {tile.cluster[0]}, {tile.cluster[1]}>"
        )
    instruction = gpu.instruction("fp16")
    assert instruction is not None
    values = [tile.m, tile.n, tile.k, tile.warp_m, tile.warp_n, tile.stages, product.access, instruction[2]]
    if tile.loads != WHOLE:
        values.append(tile.loads)
    return f"{SPACE}::Tile<{', '.join(map(str, values))}>"


def refuse(tile: AnyTile, gpu: Gpu, product: Product) -> str | None:
    """Why no kernel with the tile computes the product on this GPU, None where one does."""
    if isinstance(tile, ResidentTile):
        return refuse_resident(tile, gpu, product)
    if isinstance(tile, WarpgroupTile):
        return refuse_warpgroups(tile, gpu, product)
    return refuse_tile(tile, gpu, product.n) or wasted_rows(tile.m, product.m)


_SMALL = 64 * 128
"""Elements of a tile for products that do not fill the GPU."""
_FILLED = 0.55
"""Part of the last waves that tiles fill at least."""


def refuse_whole(tile: AnyTile, gpu: Gpu, product: Product) -> str | None:
    """Why a legal tile does not suit a product that is not sliced, None where it does."""
    if isinstance(tile, ResidentTile):
        return None
    if product.wide:
        return "stores half precision, fp32 is what sums of slices become"
    blocks = tile.blocks(product.m, product.n)
    if 4 * blocks <= gpu.sms and tile.m * tile.n > _SMALL:
        return f"{blocks} tiles leave most of {gpu.sms} multiprocessors idle, smaller ones do not"
    waves = ceil(blocks / gpu.sms)
    if isinstance(tile, WarpgroupTile) and waves > 1 and blocks < _FILLED * waves * gpu.sms:
        return f"{blocks} tiles fill little more than half of {waves} waves over {gpu.sms} multiprocessors"
    return None
