"""Kernels that spare copies, alone on a GPU: of channels that nobody padded, and of rows that lie apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU
from gpu_forms import in_slices, together, turns, with_tiles
from gpu_harness import Trial, trials_of
from gpu_pools import plain
from gpu_products import RESIDUAL, TOLERANCE, conv, matmul

from bolt_build.dtypes import DType
from bolt_build.families.cutlass.kinds.warps.warp import NARROW_TILES, WarpTile
from bolt_build.graph.ops.images.pool import Pool


def copies() -> list[Trial]:
    """Kernels that spare copies: of unpadded channels, and with rows of the output apart, between those of others."""
    found = []
    for layer, loads in (
        (conv("narrow-3x3", (2, 46, 13, 11), 40, (3, 3)), 2),
        (conv("narrow-5x7-residual", (2, 46, 14, 19), 31, (5, 7), pads=((0, 0), (0, 0)), epilogue=RESIDUAL), 2),
        (conv("narrow-3x3s2", (2, 12, 13, 11), 24, (3, 3), 2), 4),
        (conv("narrow-1x1", (2, 174, 9, 10), 64, (1, 1)), 2),
        (conv("narrow-1x1-residual", (2, 60, 9, 10), 72, (1, 1), epilogue=RESIDUAL), 4),
        (matmul("narrow-matmul", (33, 46), 40, True, (RELU,)), 2),
        (matmul("narrow-matmul-factor", (7, 20), 33, False, ()), 4),
    ):
        found += with_tiles(layer, [tile for tile in NARROW_TILES if tile.loads == loads and tile.stages > 2])
    tiles = (turns(64, 64, 64), turns(128, 32, 64), together(128, 64, 64), WarpTile(64, 64, 64, 32, 32, 5))
    apart = []
    for layer in (
        conv("rows-3x3", (3, 64, 13, 11), 72, (3, 3)),
        conv("rows-3x3s2-residual", (3, 48, 27, 23), 40, (3, 3), 2, epilogue=RESIDUAL),
        conv("rows-1x1", (3, 136, 13, 11), 96, (1, 1)),
        conv("rows-1x1-residual", (3, 136, 13, 11), 24, (1, 1), epilogue=RESIDUAL),
    ):
        apart += with_tiles(layer, tiles)
    for layer in (
        conv("rows-slices-3x3-residual", (1, 256, 7, 7), 40, (3, 3), epilogue=RESIDUAL),
        conv("rows-slices-1x1", (1, 1536, 7, 7), 64, (1, 1)),
    ):
        apart += in_slices(layer, (turns(64, 64, 64), WarpTile(64, 64, 64, 32, 32, 5)))
    for window, stride, pad in ((3, 1, 1), (2, 2, 0), (5, 2, 2)):
        op = Pool("max" if window < 5 else "average", (window,) * 2, (stride,) * 2, (pad,) * 2, (pad,) * 2, (1, 1))
        for channels in (24, 7):
            images = (Input((2, channels, 13, 11)),)
            layer = Layer(f"rows-pool-{window}-{channels}", op, images, (), DType.F16, TOLERANCE)
            apart += [trial for trial in plain(trials_of(layer, "portable")) if trial.step.pitched]
    apart = [trial for trial in apart if trial.shared is None]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + more) for t in apart for more in (8, 104)]
