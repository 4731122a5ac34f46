"""Convolutions with groups as products side by side, as they are tried on a GPU: every schedule, groups of several
tiles and tiles of several groups, columns and depths that are no whole tiles, windows, rows apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_bands import of_groups
from gpu_bands import pairs as band_pairs
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import pairs, single, together, turns
from gpu_harness import Trial
from gpu_products import GELU, RESIDUAL, SILU, conv

from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GroupTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile


def _of(tile: WgmmaTile | BandTile, groups: int = 1) -> GroupTile:
    return GroupTile(tile, groups)


def _scaled(layer: Layer) -> Layer:
    """With a number of each channel behind the bias."""
    inputs = (*layer.inputs[:3], Input((layer.inputs[1].shape[0], *(1,) * (len(layer.inputs[0].shape) - 2)), True))
    return replace(layer, inputs=inputs)


def group_trials() -> list[Trial]:
    """In the order in which they run."""
    found, apart = list[Trial](), list[Trial]()
    for layer, tiles in (
        (conv("groups-1x1", (2, 256, 9, 15), 384, (1, 1), groups=2, epilogue=GELU),
         (_of(turns(64, 96, 64)), _of(together(128, 64, 64, (2, 1))), _of(pairs(128, 96, 64)))),
        (conv("groups-row", (3, 288, 70), 216, (1,), groups=3, epilogue=RESIDUAL),
         (_of(turns(128, 64, 32)), _of(together(192, 64, 64)), _of(single(64, 32, 64)))),
        (conv("groups-one", (3, 288, 70), 288, (1,), groups=3, epilogue=()), (_of(single(64, 64, 64)),)),
        (_scaled(conv("groups-scaled", (2, 224, 8, 9), 160, (1, 1), groups=4, epilogue=(RELU, stage("mul", 3)))),
         (_of(turns(64, 96, 64), 2), _of(pairs(128, 64, 64)), _of(single(64, 64, 64)))),
        (conv("groups-few", (2, 256, 7, 9), 256, (1, 1), groups=8, epilogue=RESIDUAL),
         (_of(turns(64, 128, 64), 4), _of(together(128, 64, 64), 2))),
        (conv("groups-3x3", (2, 224, 10, 9), 224, (3, 3), groups=2, epilogue=SILU),
         (_of(turns(64, 128, 64)), _of(together(192, 64, 64)))),
        (conv("groups-3x3s2", (2, 192, 15, 14), 144, (3, 3), 2, groups=2, epilogue=RESIDUAL),
         (_of(pairs(128, 96, 64)), _of(turns(64, 64, 128), 1))),
        (conv("groups-1x1s2", (2, 160, 9, 11), 160, (1, 1), 2, groups=4), (_of(turns(64, 96, 32), 2),)),
        (conv("groups-1x5", (2, 112, 8, 20), 112, (1, 5), groups=2, dilation=2), (_of(turns(128, 64, 64, (2, 1))),)),
        (conv("groups-bands", (2, 112, 10, 9), 112, (3, 3), groups=2, epilogue=RESIDUAL),
         (_of(band_turns(64, 64)), _of(band_turns(128, 128), 2), _of(band_together(128, 96)))),
        (_scaled(conv("groups-bands-scaled", (3, 144, 7, 9), 160, (3, 3), groups=2, epilogue=(RELU, stage("mul", 3)))),
         (_of(band_pairs(128, 64)), _of(band_turns(64, 64, cluster=2)))),
        (conv("groups-bands-3x3s2", (2, 160, 13, 12), 80, (3, 3), 2, groups=2), (_of(band_turns(64, 32)),)),
    ):  # fmt: skip
        found += of_groups(layer, *tiles)
    for layer in (
        conv("rows-groups", (3, 144, 7, 9), 144, (1, 1), groups=2, epilogue=RESIDUAL),
        conv("rows-groups-3x3", (2, 96, 7, 9), 96, (3, 3), groups=2, epilogue=RESIDUAL),
    ):
        apart += of_groups(layer, _of(turns(64, 64, 64)))
    apart += of_groups(
        conv("rows-groups-bands", (2, 112, 7, 9), 112, (3, 3), groups=2, epilogue=RESIDUAL), _of(band_turns(64, 64))
    )
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96, between=24) for t in apart if t.shared is None]
