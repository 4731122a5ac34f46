"""Products whose depth the blocks of a cluster share, as they are tried on a GPU: every number of blocks and every
tile, steps dealt out unevenly, fewer rows than a tile has, blocks without rows, odd extents, strides, rows apart."""

from __future__ import annotations

from dataclasses import replace

from gpu_forms import with_tiles
from gpu_harness import Trial
from gpu_products import GELU, RESIDUAL, SILU, conv, matmul

from bolt_build.families.cutlass.kinds.warpgroups.wgmma_sliced import SLICED_TILES, SlicedTile


def tile(n: int, slices: int, k: int = 64) -> SlicedTile:
    return SlicedTile(n, k, slices)


def sliced_trials() -> list[Trial]:
    """In the order in which they run."""
    found = []
    for layer, tiles in (
        (conv("sliced", (1, 64, 9, 7), 72, (3, 3)), (tile(32, 2), tile(64, 4), tile(32, 3, 128), tile(96, 3))),
        (conv("sliced-residual", (2, 72, 11, 9), 136, (3, 3), 2, epilogue=RESIDUAL), (tile(128, 4), tile(64, 8))),
        (conv("sliced-1x1", (1, 520, 5, 7), 40, (1, 1), epilogue=SILU), (tile(32, 4), tile(64, 3), tile(32, 2, 128))),
        (conv("sliced-row", (3, 130, 1, 3), 64, (1, 3)), (tile(32, 4), tile(64, 2))),
        (conv("sliced-far", (1, 48, 12, 10), 48, (3, 3), pads=((2, 0), (1, 3))), (tile(64, 4),)),
        (matmul("sliced-few", (3, 1032), 200, True, GELU), (tile(64, 8), tile(128, 6), tile(32, 4, 128))),
        (matmul("sliced-rows", (150, 264), 96, False, (RESIDUAL[1],)), (tile(96, 2), tile(32, 2))),
        (matmul("sliced-plain", (65, 2056), 128, True, ()), SLICED_TILES[::3]),
    ):
        found += with_tiles(layer, tiles)
    apart = with_tiles(conv("rows-sliced", (3, 64, 9, 7), 32, (3, 3), epilogue=RESIDUAL), (tile(32, 3),))
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96) for t in apart if t.shared is None]
