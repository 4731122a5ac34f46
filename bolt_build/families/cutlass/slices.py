"""Slices of a product's depth that are computed apart, for products of too few tiles to fill a GPU."""

from __future__ import annotations

from math import ceil

from bolt_build.families.cutlass.kernels import AnyTile, SlicedTile
from bolt_build.families.cutlass.product import Product
from bolt_build.families.cutlass.resident import ResidentTile
from bolt_build.families.cutlass.warpgroups import WarpgroupTile
from bolt_build.targets import Gpu

_COUNTS = (2, 3, 4, 6, 8, 12, 16)
_DEEP = 1024
"""Depth, taps included, from which slices can pay for the second kernel that adds them up."""
_WIDE = 256
"""The same where results in fp32 save a conversion behind the product."""
_LEAST_STEPS = 4
_LINE = 64
"""Half-precision elements of a cache line: where rows begin on one, slices do."""


def refuse(tile: AnyTile, gpu: Gpu, product: Product) -> str | None:
    """Why the product is not computed in slices with a legal tile, None where it is."""
    if isinstance(tile, ResidentTile):
        return "its registers hold the weights of the whole depth"
    depth, blocks = product.taps * product.depth, tile.blocks(product.m, product.n)
    least = _WIDE if product.wide else _DEEP
    if depth < least:
        return f"a depth of {depth} is too short for slices, {least} pay"
    if 2 * blocks > gpu.sms:
        return f"{blocks} tiles fill {gpu.sms} multiprocessors without slices"
    if not counts(tile, gpu, product):
        return f"a depth of {depth} has no slices of like length and {_LEAST_STEPS} steps of {tile.k} at least"
    return None


def counts(tile: AnyTile, gpu: Gpu, product: Product) -> tuple[int, ...]:
    """Numbers of slices that are possible and do not exceed the GPU by more than a wave, least first."""
    if isinstance(tile, ResidentTile):
        return ()
    blocks = tile.blocks(product.m, product.n)
    return tuple(count for count in _COUNTS if count * blocks <= 2 * gpu.sms and _alike(tile, product, count))


def _alike(tile: SlicedTile, product: Product, count: int) -> bool:
    """True where slices have the same number of steps, and enough of them to fill the pipeline."""
    if product.kernel == "Gemm":
        part = product.depth // count
        whole = _LINE if product.depth % _LINE == 0 else 8
        return product.depth % count == 0 and part % whole == 0 and part >= _LEAST_STEPS * tile.k
    runs = ceil(product.depth / tile.k)
    # Warps take turns at the runs of channels of a tap, warpgroups cut the list of all steps.
    cut = runs * product.taps if isinstance(tile, WarpgroupTile) else runs
    return cut % count == 0 and runs * product.taps // count >= _LEAST_STEPS
