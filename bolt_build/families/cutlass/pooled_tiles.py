"""Tiles of the kernels that compute a convolution and the pooling of its maxima, weights in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.cutlass.product import Product, aligned
from bolt_build.families.cutlass.resident import (
    CHANNELS,
    STEP,
    UNIT,
    refuse_windows,
    seconds_of,
    taps,
    tile_seconds,
)
from bolt_build.targets import Gpu, Target

_SPACE = "bolt::cutlass_kernels"


@dataclass(frozen=True)
class PooledTile:
    """`rows` by `width` positions of what is pooled, `steps` of 16 channels in each tap of the window; `pool` 2 takes
    two by two positions, 3 three by three behind one of padding, both two apart. Two warpgroups take strips of tiles in
    turns.

    Strips are tiles where `pool` is 2. Windows of three overlap: a strip is then a column of tiles, whose last row and
    column count in the next ones too.
    """

    rows: int
    width: int
    steps: int
    pool: int

    @property
    def overlaps(self) -> bool:
        """True where a row of what is pooled, or a column, counts in two places."""
        return self.pool == 3

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that a tile leaves."""
        return self.rows // 2, self.width // 2 - self.overlaps

    @property
    def staged_bytes(self) -> int:
        """Shared memory for what a warpgroup stores: whole matrices, and the column that is the next strip's."""
        rows, columns = self.extent
        pixels = aligned(rows, 4 if self.width == UNIT else 2) * columns + (8 if self.overlaps else 0)
        return aligned(pixels) * CHANNELS * 2

    def strips(self, batch: int, pooled: tuple[int, int], length: int) -> int:
        """How many strips of `length` tiles there are of so many images of so many rows and columns."""
        rows, columns = self.extent
        down = length * rows
        below = 1 if pooled[0] <= down else ceil((pooled[0] - self.overlaps) / (down - self.overlaps))
        return batch * ceil(pooled[1] / columns) * below

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::PooledTile<16, 4, 4, 1, 16, 3>`"""
        values = (self.rows, self.steps, *taps(product), self.width, self.pool)
        return f"{_SPACE}::PooledTile<{', '.join(map(str, values))}>"

    def __str__(self) -> str:
        return (
            f"{self.rows}x{self.width} positions pooled {self.pool}x{self.pool}, "
            f"weights of {self.steps * STEP} channels in registers"
        )


_SHAPES = {2: ((14, 8), (16, 8), (8, 8), (14, 16), (16, 16)), 3: ((16, 16), (14, 16), (8, 16), (4, 16))}


def tiles(product: Product, pool: int) -> tuple[PooledTile, ...]:
    """The tiles that may be some for a convolution and a pooling."""
    steps = ceil(product.depth / STEP)
    return tuple(PooledTile(rows, width, steps, pool) for rows, width in _SHAPES[pool])


def refuse(tile: PooledTile, gpu: Gpu, product: Product, pooled: tuple[int, int]) -> str | None:
    """Why the tile is none on this GPU for a convolution that is pooled to so many rows and columns."""
    reason = refuse_windows(tile.rows, tile.width, tile.steps, 2 * tile.staged_bytes, gpu, product)
    if reason is not None:
        return reason
    for what, has, of in zip(("rows", "columns"), tile.extent, pooled, strict=True):
        if has >= 2 * of:
            return f"half of its {what} would be beyond the {of} of a pooled image"
    return None


# Not measured: what a warpgroup takes to pool and store a tile after its products, while no other one multiplies; in
# seconds a position.
_ALONE = 2.7e-9


def length(tile: PooledTile, product: Product, pooled: tuple[int, int], target: Target) -> int:
    """Tiles of a strip: as many as make the busiest SM be done soonest."""
    longest = ceil(pooled[0] / tile.extent[0]) if tile.overlaps else 1
    return min(
        range(longest, 0, -1), key=lambda tiles_of_strip: _busiest(tile, product, pooled, tiles_of_strip, target)
    )


def seconds(tile: PooledTile, product: Product, pooled: tuple[int, int], nbytes: int, target: Target) -> float:
    """Predicted time of a kernel that moves so many bytes: the strips of the busiest SM, or memory."""
    best = length(tile, product, pooled, target)
    return seconds_of(2, _busiest(tile, product, pooled, best, target) / 2, nbytes, target)


def _busiest(tile: PooledTile, product: Product, pooled: tuple[int, int], length: int, target: Target) -> float:
    """Predicted time of the strips of the busiest SM."""
    assert target.gpu is not None
    strips = tile.strips(dict(product.shape)["batch"], pooled, length)
    rounds = ceil(strips / max(1, target.gpu.sms // ceil(product.n / CHANNELS)))
    one = tile_seconds(tile.rows, tile.width, CHANNELS, product, target)
    # The last of an odd number of strips has no other one beside it.
    return rounds * length * one + rounds % 2 * length * tile.rows * tile.width * _ALONE
