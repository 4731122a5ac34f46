"""Tiles of the kernels that use instructions of four warps and the tensor copy engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import ceil

from bolt_build.families.cutlass.product import Product
from bolt_build.families.cutlass.tiles import Work
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class WarpgroupTile:
    """Rows, columns and depth that a block computes at a time, in turns of two warpgroups or by both together."""

    m: int
    n: int
    k: int
    cooperative: bool

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {'cooperative' if self.cooperative else 'pingpong'}"


# Measured on an H200 over the convolutions of ResNet-50, VGG and RepVGG: others are no faster there.
WARPGROUP_TILES = (
    WarpgroupTile(128, 128, 64, cooperative=False),
    WarpgroupTile(128, 64, 64, cooperative=False),
    WarpgroupTile(64, 128, 64, cooperative=False),
    WarpgroupTile(64, 64, 64, cooperative=False),
    WarpgroupTile(64, 256, 64, cooperative=False),
    WarpgroupTile(256, 128, 64, cooperative=True),
    WarpgroupTile(128, 256, 64, cooperative=True),
    WarpgroupTile(256, 64, 64, cooperative=True),
    WarpgroupTile(256, 64, 32, cooperative=True),
    WarpgroupTile(128, 64, 32, cooperative=False),
)

_REACH = 127
"""Positions that the copy engine's windows reach from their corner."""


def refuse(tile: WarpgroupTile, gpu: Gpu, product: Product) -> str | None:
    """Why the tile is none for the product on this GPU, None where it is one."""
    if not gpu.warpgroup_mma:
        return "needs instructions of four warps"
    if product.access != 8:
        return f"stores 8 columns at once, {product.n} is no multiple"
    if product.reach > _REACH:
        return f"windows reach over {product.reach} positions, at most {_REACH} are possible"
    if tile.n > 2 * max(product.n, 32):
        return f"over half of its columns would be beyond the {product.n} of the product"
    if tile.k >= 2 * product.depth:
        return f"half of its depth would be beyond the {product.depth} of the product"
    return None


# Fitted to 1901 times measured on an H200, from which it is off by 15% on average; the tiles that it picks for
# ResNet-50 cost 3% more than the fastest ones at batch 32, nothing at batch 1. Products in a second of one SM; seconds
# of a step, of the store of 128 x 128 results and of a launch; bytes in a second from memory, in parts of what the row
# states, and of one SM from L2.
_MULTIPLIES = 3.24e12
_STEP, _STORE, _LAUNCH = 1.09e-7, 1.2e-6, 2.67e-6
_MEMORY, _L2_RATE, _OVERLAP = 1.05, 8.8e10, 0.3
_SHALLOW = 4.0
"""Steps of less than 64 columns of depth, a short run of each row, take this much longer."""
_IN_FLIGHT = 0.47
"""Exponent with which the rate from memory grows with the tile: a large one has more loads in flight."""
_MEASURED_RATE = 989e12 / 132


def seconds(tile: WarpgroupTile, work: Work, target: Target) -> float:
    """Predicted time of a product whose tiles are dealt out to as many blocks as there are SMs."""
    gpu = target.gpu
    assert gpu is not None
    speed = target.rate("fp16") / gpu.sms / _MEASURED_RATE
    steps = work.taps * ceil(work.depth / tile.k)
    blocks = ceil(work.m / tile.m) * ceil(work.n / tile.n)
    rounds = ceil(blocks / gpu.sms)
    step = max(tile.m * tile.n * tile.k / (_MULTIPLIES * speed), _STEP)
    products = steps * step * (_SHALLOW if tile.k < 64 else 1.0)
    size = tile.m * tile.n / (128 * 128)
    store = _STORE * size
    compute = rounds * (products + store) if tile.cooperative else rounds * max(products, store) + store
    memory = work.nbytes / (_MEMORY * target.bandwidth * math.pow(size, _IN_FLIGHT))
    traffic = blocks * steps * (tile.m + tile.n) * tile.k * 2 / (_L2_RATE * gpu.sms)
    return _LAUNCH + max(compute, memory, traffic) + _OVERLAP * min(compute, memory)
