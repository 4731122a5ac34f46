"""Slices of a product's depth that are computed apart, for products of too few tiles to fill a GPU."""

from __future__ import annotations

from math import ceil
from typing import Protocol

from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu

_COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_DEEP = 1024
"""Depth, taps included, from which slices can pay for the second kernel that adds them up."""
_WIDE = 256
"""The same where results in fp32 save a conversion behind the product."""
_LEAST_STEPS = 4
_LINE = 64
"""Half-precision elements of a cache line: where rows begin on one, slices do."""


class SlicedTile(Protocol):
    """A tile whose kernels can leave split-K's partial sums."""

    @property
    def k(self) -> int: ...
    def blocks(self, m: int, n: int) -> int: ...
    def cut(self, product: Product) -> int:
        """Of so many equal parts of the depth over windows a slice takes whole ones."""
        ...


def refuse(tile: SlicedTile, gpu: Gpu, product: Product, least: int | None = None) -> str | None:
    """Why the product is not computed by split-K with a legal tile, None where it is. `least`: the depth from which
    slices pay, where that is not the one for a second kernel that only adds them up."""
    depth, blocks = product.taps * product.depth, tile.blocks(product.m, product.n)
    least = least or (_WIDE if product.wide else _DEEP)
    if depth < least:
        return Reason("a depth of {} is too short for split-K, which pays from {} on", depth, least)
    if 2 * blocks > gpu.sms:
        return Reason("{} tiles fill {} multiprocessors without split-K", blocks, gpu.sms)
    if not counts(tile, gpu, product):
        return Reason(
            "a depth of {} cannot be cut into equal slices of at least {} steps of {}", depth, _LEAST_STEPS, tile.k
        )
    return None


def counts(tile: SlicedTile, gpu: Gpu, product: Product) -> tuple[int, ...]:
    """Numbers of slices that are possible and do not exceed the GPU by more than a wave, least first."""
    blocks = tile.blocks(product.m, product.n)
    return tuple(count for count in _COUNTS if count * blocks <= 2 * gpu.sms and _alike(tile, product, count))


def _alike(tile: SlicedTile, product: Product, count: int) -> bool:
    """True where slices have the same number of steps, and enough of them to fill the pipeline."""
    if product.kernel == "Gemm":
        part = product.depth // count
        whole = _LINE if product.depth % _LINE == 0 else 8
        return product.depth % count == 0 and part % whole == 0 and part >= _LEAST_STEPS * tile.k
    steps = ceil(product.depth / tile.k) * product.taps
    return tile.cut(product) % count == 0 and steps // count >= _LEAST_STEPS
