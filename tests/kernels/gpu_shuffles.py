"""Convolutions whose results become pixels of a larger image, as they are tried on a GPU."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_bands import pairs as band_pairs
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import pairs, together, turns
from gpu_harness import Trial
from gpu_pairs import pair, steps_of
from gpu_products import SILU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.kinds.warpgroups.shuffled import ShuffledTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.graph.ir import TensorType
from bolt_build.graph.ops.moves.rearrange import Rearrange


def shuffled(first: Layer, sides: tuple[int, ...], cut: int = 0) -> Layer:
    """A convolution, and what makes so many pixels along each axis of its channels, of which `cut` are left out at
    either end of each."""
    joined = {stage.operand for stage in first.epilogue}
    (output,) = first.op.infer(
        [TensorType(DType.F16, given.shape) for at, given in enumerate(first.inputs) if at not in joined]
    )
    images, filters, *extents = output.shape
    channels, axes = filters // prod(sides), len(sides)
    split = (images, *sides, channels, *extents)
    perm = (0, axes + 1, *(at for axis in range(axes) for at in (axes + 2 + axis, 1 + axis)))
    whole = [images, channels, *(extent * side for extent, side in zip(extents, sides, strict=True))]
    kept = [*whole[:2], *(extent - 2 * cut for extent in whole[2:])]
    op = Rearrange(split, perm, tuple(whole), 0, tuple(kept), (cut,) * axes if cut else ())
    label = f"pixels{'x'.join(map(str, sides))}"
    return pair(first, Layer(label, op, (Input(output.shape),), (), first.precision, first.tolerance))


def of_pixels(layer: Layer, *tiles: WgmmaTile | BandTile) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not."""
    if not asked([layer]):
        return []
    (step,) = steps_of(layer)
    return [Trial(layer, step, Candidate("cutlass", ShuffledTile(tile).parameters)) for tile in tiles]


def shuffle_trials() -> list[Trial]:
    """Matrix products and windows, with bands and without, in every schedule; pixels that begin within a box and
    lie in several, borders cut off on either side, lines, pixels of a larger tensor."""
    found = list[Trial]()
    for layer, tiles in (
        (shuffled(conv("shuffle-1x1", (2, 72, 9, 7), 256, (1, 1)), (2, 2)), (turns(64, 128, 64), pairs(128, 64, 64))),
        (shuffled(conv("shuffle-wide", (3, 64, 5, 6), 384, (1, 1), epilogue=SILU), (1, 2)), (together(128, 96, 64),)),
        (shuffled(conv("shuffle-3x3", (2, 64, 11, 9), 192, (3, 3), epilogue=SILU), (2, 3)),
         (turns(64, 64, 64), band_turns(64, 64), band_together(128, 96), band_pairs(128, 64))),
        (shuffled(conv("shuffle-2x2", (2, 96, 10, 8), 128, (2, 2), pads=((1, 1), (1, 1)), bias=False), (2, 2), 1),
         (turns(128, 64, 32), band_turns(64, 128, 32))),
        (shuffled(conv("shuffle-line", (2, 80, 37), 256, (3,)), (8,), 4), (turns(64, 256, 64), band_turns(128, 64))),
    ):  # fmt: skip
        found += of_pixels(layer, *tiles)
    apart = [trial for trial in found if trial.layer.label.startswith(("shuffle-1x1", "shuffle-3x3"))][::2]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 24, between=16) for t in apart]
