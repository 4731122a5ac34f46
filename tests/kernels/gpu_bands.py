"""Convolutions in kernels whose taps share a band of the images, as they are tried on a GPU: every schedule and
width of a run, odd extents and channels, padding that windows reach into from both sides, rows apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer, graph_with
from gpu_asked import asked
from gpu_forms import FAMILY, with_tiles
from gpu_harness import TARGET, Trial
from gpu_products import GELU, RESIDUAL, SILU, conv

from bolt_build.families.base import Candidate
from bolt_build.families.common.stated import Stated
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.families.cutlass.kinds.windows.grouped_band import GroupedTile


def turns(m: int, n: int, k: int = 64, cluster: int = 1, bands: int = 2, stage: str = "tap") -> BandTile:
    return BandTile(m, n, k, False, 2, cluster, bands, stage)


def together(m: int, n: int, k: int = 64, cluster: int = 1) -> BandTile:
    return BandTile(m, n, k, True, 1, cluster)


def pairs(m: int, n: int, k: int = 64, bands: int = 2, stage: str = "tap") -> BandTile:
    return BandTile(m, n, k, True, 2, 1, bands, stage)


def band_trials() -> list[Trial]:
    """In the order in which they run."""
    found = []
    for layer, tiles in (
        (conv("band", (3, 64, 14, 14), 64, (3, 3)),
         (turns(128, 64), together(256, 64), pairs(128, 64), turns(64, 64, cluster=2))),
        (conv("band-residual", (5, 80, 13, 11), 96, (3, 3), epilogue=RESIDUAL),
         (turns(128, 96), together(128, 192), together(192, 96))),
        (
            conv("band-stages", (3, 80, 14, 13), 64, (3, 3), epilogue=RESIDUAL),
            (turns(128, 64, stage="row"), turns(64, 64, bands=3)),
        ),
        (conv("band-window", (3, 16, 14, 13), 64, (3, 3)), (pairs(128, 64, 16, stage="window"),)),
        (conv("band-deep", (3, 160, 7, 7), 136, (3, 3), epilogue=RESIDUAL),
         (pairs(128, 128), together(128, 128, cluster=2))),
        (conv("band-1x7", (2, 72, 17, 17), 64, (1, 7), epilogue=SILU), (together(192, 64), turns(64, 192))),
        (conv("band-7x1", (2, 48, 17, 17), 56, (7, 1)), (turns(64, 64), pairs(256, 64))),
        (conv("band-5x5", (2, 48, 12, 15), 64, (5, 5), epilogue=GELU), (together(192, 64),)),
        (conv("band-valid", (2, 24, 19, 21), 40, (3, 3), pads=((0, 0), (0, 0))),
         (turns(128, 64, 32), together(256, 32, 32))),
        (conv("band-far", (2, 64, 9, 12), 64, (3, 3), pads=((2, 0), (1, 3))), (turns(64, 64),)),
        (conv("band-dilated", (2, 64, 14, 14), 64, (3, 3), dilation=2), (together(256, 64),)),
        (conv("band-even", (3, 16, 15, 9), 32, (2, 4), pads=((0, 1), (1, 2))), (turns(64, 64, 16), turns(128, 32, 16))),
        (conv("band-row", (3, 64, 50), 64, (5,)), (turns(64, 64),)),
        (conv("band-wide", (1, 136, 9, 100), 256, (3, 3)), (together(128, 256), together(128, 160), turns(64, 256))),
        (conv("band-3x3s2", (3, 72, 15, 14), 64, (3, 3), 2, epilogue=RESIDUAL), (turns(64, 64), together(256, 64))),
        (conv("band-5x4s2", (2, 32, 17, 20), 48, (5, 4), 2, ((1, 2), (3, 0))), (turns(64, 64, 32),)),
        (conv("band-3x3s3", (2, 64, 20, 22), 64, (3, 3), 3), (turns(64, 64),)),
        (conv("band-stem", (2, 3, 19, 22), 32, (3, 3)), (turns(64, 64, 32), turns(128, 32, 32))),
    ):  # fmt: skip
        found += with_tiles(layer, tiles)
    apart = with_tiles(conv("rows-band", (3, 64, 17, 23), 64, (3, 3), epilogue=RESIDUAL), (turns(64, 64),))
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96, between=24) for t in apart if t.shared is None]


def of_groups(layer: Layer, *tiles: Stated) -> list[Trial]:
    """The layer, of groups, with each tile, whether it suits the layer or not; nothing where none is asked for."""
    if not asked((layer,)):
        return []
    graph, node = graph_with(layer)
    (step,) = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps
    return [
        Trial(layer, step, Candidate("cutlass", tile.parameters), share)
        for tile in tiles
        for share in (None, *(pair[0] for pair in step.may_share))
    ]


def grouped_band_trials() -> list[Trial]:
    """Groups of as many channels as a filter's row, and of fewer; groups larger and smaller than a tile; as many
    outputs as channels, and more; rows apart."""
    found = []
    for layer, tiles in (
        (conv("bands-8", (3, 128, 9, 11), 128, (3, 3), groups=16), ((turns(64, 64), 16), (pairs(128, 64), 16))),
        (conv("bands-stages", (2, 64, 14, 14), 64, (3, 3), groups=8), ((pairs(128, 64, stage="window"), 16),)),
        (conv("bands-16", (2, 64, 14, 14), 64, (3, 3), groups=4, epilogue=RESIDUAL), ((together(256, 64), 16),)),
        (conv("bands-32", (3, 128, 7, 7), 128, (3, 3), groups=4, epilogue=SILU),
         ((turns(128, 64), 32), (turns(64, 32, 32), 0))),
        (conv("bands-24", (2, 120, 13, 10), 120, (3, 3), groups=5, epilogue=RESIDUAL), ((turns(64, 96), 0),)),
        (conv("bands-wider", (2, 64, 12, 12), 128, (3, 3), groups=2), ((pairs(128, 64), 0), (turns(64, 128), 0))),
        (conv("bands-deep", (2, 160, 8, 9), 192, (3, 3), groups=2), ((turns(64, 96), 0), (together(128, 96), 0))),
        (conv("bands-3x3s2", (2, 128, 14, 13), 128, (3, 3), 2, groups=8), ((pairs(128, 64), 16),)),
        (conv("bands-1x5", (2, 64, 8, 20), 64, (1, 5), groups=8), ((turns(64, 64, cluster=2), 16),)),
    ):  # fmt: skip
        found += of_groups(layer, *(GroupedTile(replace(band, width=width)) for band, width in tiles))
    apart = of_groups(
        conv("rows-bands", (2, 64, 9, 13), 64, (3, 3), groups=8, epilogue=RESIDUAL),
        GroupedTile(replace(turns(64, 64), width=16)),
    )
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96, between=24) for t in apart if t.shared is None]
