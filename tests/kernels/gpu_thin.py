"""Products of few channels, of which warps compute whole rows by themselves, as they are tried on a GPU: every run of
channels and columns, rows of both sizes, loaded ahead or not, odd numbers of rows, rows apart."""

from __future__ import annotations

from dataclasses import replace

from gpu_channels import NORMALISED, channels
from gpu_forms import with_tiles
from gpu_harness import Trial
from gpu_pairs import steps_of
from gpu_products import GELU, RESIDUAL, SILU, conv, matmul
from gpu_prologues import gate, product

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.kinds.warps.thin import ThinTile
from bolt_build.families.cutlass.kinds.warps.thin_gate import ThinGateTile


def tile(rows: int, warps: int, x: str = "whole") -> ThinTile:
    return ThinTile(rows, warps, x)


def thin_trials() -> list[Trial]:
    """In the order in which they run."""
    found = []
    for layer, tiles in (
        (conv("thin", (2, 24, 13, 11), 144, (1, 1)), (tile(16, 8), tile(32, 12), tile(16, 24, "ahead"))),
        (conv("thin-residual", (3, 72, 9, 7), 56, (1, 1), epilogue=RESIDUAL), (tile(16, 12), tile(32, 8, "ahead"))),
        (conv("thin-8", (1, 8, 15, 5), 8, (1, 1), epilogue=SILU), (tile(32, 16, "ahead"),)),
        (conv("thin-narrows", (2, 104, 6, 7), 16, (1, 1), bias=False, epilogue=()), (tile(32, 8), tile(32, 8, "runs"))),
        (
            conv("thin-runs", (2, 184, 13, 11), 56, (1, 1), epilogue=RESIDUAL),
            (tile(16, 16, "runs"), tile(32, 12, "runs")),
        ),
        (conv("thin-odd", (2, 21, 7, 9), 40, (1, 1)), (tile(16, 8),)),
        (
            channels("thin-channels", (2, 40, 9, 7), 56, (1, 1), functions=NORMALISED, residual=True),
            (tile(16, 8), tile(32, 8, "runs")),
        ),
        (matmul("thin-rows", (777, 40), 24, True, GELU), (tile(16, 16, "ahead"),)),
        (matmul("thin-deep", (333, 256), 96, False, (RESIDUAL[1],)), (tile(16, 12), tile(16, 8, "runs"))),
    ):
        found += with_tiles(layer, tiles)
    found += gated_trials()
    apart = with_tiles(conv("rows-thin", (3, 48, 9, 7), 32, (1, 1), epilogue=RESIDUAL), (tile(16, 8, "ahead"),))
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 96, between=24) for t in apart if t.shared is None]


def gated_trials() -> list[Trial]:
    """The same behind a gate: images that end within a tile, either order of the factors, rows apart."""
    found = []
    for layer, tiles, between in (
        (
            product("thin-gate", gate((5, 72, 7, 9), first=True), 24, epilogue=()),
            (tile(16, 8, "ahead"), tile(32, 8)),
            0,
        ),
        (
            product("thin-gate-runs", gate((3, 104, 6, 7), first=False), 40, epilogue=RESIDUAL),
            (tile(16, 8, "runs"),),
            0,
        ),
        (product("thin-gate-apart", gate((3, 40, 5, 7), first=True), 16), (tile(16, 12, "ahead"),), 24),
    ):
        (step,) = steps_of(layer)
        for each in tiles:
            candidate = Candidate("cutlass", ThinGateTile(each).parameters)
            found.append(Trial(layer, step, candidate, between=between))
    return found
