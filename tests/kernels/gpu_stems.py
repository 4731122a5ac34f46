"""First convolutions that read an image as it lies, as they are tried on a GPU: one to four channels, planes and
pixels, windows that are no whole words, odd extents and pads, channels stored 16, 8 and 4 bytes at once, rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.stem import StemTile


def stems(layer: Layer, tiles: Sequence[StemTile]) -> list[Trial]:
    """The layer in each tile, of each form in which the image may be."""
    found = []
    for trial in (each for of in asked([layer]) for each in trials_of(of, "cutlass", kind="stem")):
        for tile in tiles:
            candidate = Candidate("cutlass", tile.parameters)
            assert Cutlass().refuse(trial.step.problem, candidate, TARGET) is None
            found.append(replace(trial, candidate=candidate))
    return found


def whole_rows() -> tuple[tuple[Layer, Sequence[StemTile]], ...]:
    """Images whose rows are whole loads: windows that begin within a word and on one, several tiles a block, of which
    one or two are in shared memory, a tile whose fp32 planes have no room there, and a stride with which planes are
    read number by number."""
    small = StemTile(4, 16)
    return (
        (conv("stem-whole", (2, 3, 43, 56), 32, (3, 3), 2), (small, StemTile(8, 32))),
        (conv("stem-whole-patch", (3, 3, 40, 64), 96, (4, 4), 4, ((0, 0), (0, 0)), epilogue=(), bias=False), (small,)),
        (conv("stem-whole-7x7", (1, 3, 45, 40), 64, (7, 7), 2), (small,)),
        (conv("stem-whole-grey", (2, 1, 33, 32), 24, (5, 5), 2, epilogue=SILU), (small,)),
        (conv("stem-whole-four", (1, 4, 21, 24), 48, (3, 3), epilogue=RESIDUAL), (StemTile(4, 32),)),
        (conv("stem-whole-far", (3, 3, 11, 16), 40, (2, 5), 2, ((2, 4), (1, 0))), (StemTile(4, 8),)),
        (conv("stem-whole-wide", (1, 3, 40, 128), 32, (3, 3), 2), (StemTile(16, 56),)),
        (conv("stem-whole-many", (30, 3, 70, 64), 16, (3, 3), 2), (StemTile(16, 32), StemTile(4, 8))),
    )


def stem_trials() -> list[Trial]:
    """In the order in which they run."""
    small, wide, high = StemTile(4, 16), StemTile(8, 32), StemTile(16, 8)
    layers = (
        (conv("stem", (2, 3, 43, 51), 32, (3, 3), 2), (wide, high)),
        (conv("stem-patch", (3, 3, 40, 52), 96, (4, 4), 4, ((0, 0), (0, 0)), epilogue=(), bias=False), (small,)),
        (conv("stem-7x7", (1, 3, 45, 39), 64, (7, 7), 2), (small,)),
        (conv("stem-grey", (2, 1, 33, 30), 24, (5, 5), 2, epilogue=SILU), (small,)),
        (conv("stem-two", (2, 2, 19, 37), 8, (3, 3), epilogue=SILU), (StemTile(8, 56), small)),
        (conv("stem-four", (1, 4, 21, 23), 48, (3, 3), epilogue=RESIDUAL), (StemTile(4, 32),)),
        (conv("stem-far", (3, 3, 11, 13), 40, (2, 5), 2, ((2, 4), (1, 0))), (StemTile(4, 8),)),
        (conv("stem-many", (9, 3, 70, 66), 16, (3, 3), 2), (StemTile(16, 64),)),
        *whole_rows(),
    )
    found = [trial for layer, tiles in layers for trial in stems(layer, tiles)]
    plain = stems(conv("rows-stem", (2, 3, 23, 29), 24, (3, 3), 2, epilogue=RESIDUAL), (small,))
    dense = [trial for trial in plain if trial.shared is None]
    found += [replace(trial, pitch=trial.step.problem.outputs[0].row + 40) for trial in dense]
    return found + [replace(trial, between=5) for trial in dense if 0 in trial.step.reads_apart]
