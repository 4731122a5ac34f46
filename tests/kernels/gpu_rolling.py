"""Convolutions with few output channels in kernels whose sums roll through registers, as they are tried on a GPU: every
width of the instruction, every run of channels, strips of any length and width, odd extents, rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Layer
from gpu_forms import with_tiles
from gpu_harness import Trial
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.kinds.windows.rolling import RollingTile


def tile(columns: int, k: int = 64, teams: int = 2) -> RollingTile:
    return RollingTile(columns, k, teams)


def rolling(layer: Layer, tiles: Sequence[RollingTile], *strips: int) -> list[Trial]:
    """The layer in each tile with strips of each length, whether it suits the layer or not."""
    return [
        replace(trial, candidate=Candidate("cutlass", trial.candidate.parameters, (("strip", strip),)))
        for trial in with_tiles(layer, tiles)
        for strip in strips
    ]


def rolling_trials() -> list[Trial]:
    """In the order in which they run."""
    found = []
    for layer, tiles, strips in (
        (conv("rolling", (2, 128, 21, 19), 32, (3, 3)), (tile(8), tile(16), tile(32), tile(16, teams=1)), (1, 5, 21)),
        (conv("rolling-many", (5, 128, 18, 70), 32, (3, 3), epilogue=RESIDUAL), (tile(64), tile(32, teams=3)), (4,)),
        (conv("rolling-8", (3, 72, 15, 33), 8, (3, 3), epilogue=RESIDUAL), (tile(16), tile(64, 32)), (6,)),
        (conv("rolling-16", (3, 96, 15, 33), 16, (3, 3), epilogue=SILU), (tile(32, 32), tile(8, teams=3)), (15,)),
        (conv("rolling-24", (2, 16, 33, 15), 24, (3, 3), epilogue=RESIDUAL), (tile(8, 16), tile(16, 16, 1)), (8,)),
        (conv("rolling-40", (2, 20, 23, 17), 40, (3, 3), bias=False, epilogue=()), (tile(8, 32),), (7,)),
        (conv("rolling-48", (2, 40, 12, 47), 48, (3, 3)), (tile(32, 32), tile(64, 16)), (4,)),
        (conv("rolling-56", (1, 64, 12, 30), 56, (3, 3)), (tile(16),), (3,)),
        (conv("rolling-64", (2, 64, 14, 29), 64, (3, 3), epilogue=RESIDUAL), (tile(16), tile(32, teams=1)), (7,)),
        (conv("rolling-5x5", (2, 32, 14, 29), 32, (5, 5)), (tile(16, 32), tile(32, 32)), (7,)),
        (conv("rolling-7x7", (1, 16, 20, 20), 32, (7, 7)), (tile(8, 16),), (10,)),
        (conv("rolling-3x1", (2, 64, 14, 29), 24, (3, 1)), (tile(32),), (7,)),
        (conv("rolling-2x4", (2, 48, 14, 21), 16, (2, 4), pads=((0, 1), (1, 2))), (tile(8, 16), tile(8)), (5,)),
        (conv("rolling-valid", (2, 64, 17, 21), 16, (3, 3), pads=((0, 0), (0, 0))), (tile(32),), (6,)),
        (conv("rolling-far", (2, 32, 9, 12), 16, (3, 3), pads=((2, 0), (1, 3))), (tile(16, 32),), (4,)),
        (conv("rolling-stem", (2, 3, 43, 51), 32, (3, 3), 2), (tile(16, 16),), (8,)),
        (conv("rolling-thin", (2, 3, 19, 22), 32, (3, 3)), (tile(8, 16),), (8,)),
    ):
        found += rolling(layer, tiles, *strips)
    apart = rolling(conv("rows-rolling", (3, 64, 17, 23), 32, (3, 3), epilogue=RESIDUAL), (tile(8),), 6)
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96) for t in apart if t.shared is None]
