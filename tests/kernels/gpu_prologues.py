"""Products whose A operand is transformed as it is loaded: BatchNorm with an activation, gates of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import CLIP, RELU, stage
from gpu_harness import Trial
from gpu_pairs import pair, steps_of
from gpu_products import RESIDUAL, SILU, TOLERANCE, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.kinds.warpgroups.sliced_prologue import SlicedPrologueTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_prologue import PrologueTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_sliced import SlicedTile
from bolt_build.families.cutlass.prologue_kind import images_of
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.arithmetic import Binary

SHIFTED = (stage("add", 2), RELU)


def affine(shape: tuple[int, ...], epilogue: tuple[EpilogueOp, ...] = SHIFTED) -> Layer:
    """x * scale, and what follows it; a shift is input 2."""
    channels = (shape[1], *(1,) * (len(shape) - 2))
    constants = [Input(channels, True)] * (1 + any(each.operand is not None for each in epilogue))
    return Layer("affine", Binary("mul"), (Input(shape), *constants), epilogue, DType.F16, TOLERANCE)


def gate(shape: tuple[int, ...], *, first: bool) -> Layer:
    """x * gate, or the other way round."""
    sides = (Input((*shape[:2], *(1,) * (len(shape) - 2)), low=0.0, high=1.0), Input(shape))
    return Layer("gate", Binary("mul"), sides if first else sides[::-1], (), DType.F16, TOLERANCE)


def product(label: str, before: Layer, filters: int, **changed: object) -> Layer:
    """A 1x1 convolution of what `before` leaves, with a bias and ReLU unless said."""
    x = max((given.shape for given in before.inputs), key=lambda shape: (len(shape), *shape[2:]))
    behind = conv(before.label, x, filters, (1,) * (len(x) - 2), **changed)  # type: ignore[arg-type]
    return replace(pair(before, behind), label=label)


def turns(m: int, n: int, k: int) -> WgmmaTile:
    return WgmmaTile(m, n, k, cooperative=False)


def together(m: int, n: int, k: int) -> WgmmaTile:
    return WgmmaTile(m, n, k, cooperative=True)


def pairs(m: int, n: int, k: int) -> WgmmaTile:
    return WgmmaTile(m, n, k, cooperative=True, pairs=True)


EVERY = (
    turns(64, 64, 64), turns(128, 128, 64), turns(64, 256, 64), turns(64, 96, 128), turns(128, 32, 32),
    turns(128, 16, 64), together(128, 64, 32), together(256, 128, 64), together(128, 192, 64), together(256, 64, 64),
)  # fmt: skip
PAIRS = (pairs(128, 128, 64), pairs(256, 32, 64), pairs(256, 64, 32), pairs(128, 16, 32))
THREE = (together(192, 128, 64), together(192, 192, 64), together(192, 32, 32))
SLICED = (SlicedTile(64, 64, 2), SlicedTile(128, 64, 3), SlicedTile(32, 128, 2), SlicedTile(64, 64, 4))
"""Whose depth the blocks of a cluster share."""
DEEP = (turns(64, 64, 128), turns(64, 128, 64), turns(64, 32, 64), turns(64, 96, 128))
"""Whose depth two warpgroups share."""
SOME = (turns(64, 64, 64), turns(128, 64, 32), together(256, 64, 64), together(128, 96, 128))


def with_tiles(layer: Layer, tiles: Sequence[WgmmaTile | SlicedTile], between: int = 0, deep: int = 1) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not, with memory shared where it may be. `deep`
    warpgroups share its depth."""
    (step,) = steps_of(layer)
    x, *_ = step.reads_apart
    pixels = 1
    for extent in step.problem.inputs[x].shape[2:]:
        pixels *= extent
    gated = not any(given.constant for given in step.problem.inputs[:2])
    found = []
    for tile in tiles:
        images = next(count for count in (2, 4, 8) if count >= images_of(tile.m, pixels)) if gated else 0
        if isinstance(tile, SlicedTile):
            stated = SlicedPrologueTile(tile, images).parameters
        else:
            stated = PrologueTile(tile, images, deep).parameters
        trial = Trial(layer, step, Candidate("cutlass", stated), between=between)
        found += [trial, *(replace(trial, shared=index) for index, _ in step.may_share if not between)]
    return found


def prologues() -> list[Trial]:
    """Depths that are no whole steps, images that end within a tile, residuals, rows of the input and output apart."""
    of_three = product("prologue", affine((3, 136, 13, 11)), 72)
    found = with_tiles(of_three, (*EVERY, *THREE, *PAIRS)) + with_tiles(of_three, DEEP, deep=2)
    for layer in (
        product("sliced", affine((3, 328, 13, 11)), 136, epilogue=RESIDUAL),
        product("sliced-gate", gate((9, 264, 7, 7), first=True), 72),
        product("sliced-many", affine((2, 1032, 9, 9)), 64, bias=False),
    ):
        found += with_tiles(layer, SLICED)
    for layer in (
        product("deep-residual", affine((3, 200, 13, 11)), 136, epilogue=RESIDUAL),
        product("deep-many", affine((9, 136, 40, 31)), 104),
        product("deep-gate", gate((9, 136, 7, 7), first=True), 72),
        product("deep-gate-residual", gate((5, 392, 13, 11), first=False), 96, epilogue=RESIDUAL),
    ):
        found += with_tiles(layer, DEEP, deep=2)
    for layer, tiles in (
        (product("pairs-gate", gate((9, 136, 7, 7), first=True), 40, epilogue=(), bias=False), (*PAIRS, *THREE)),
        (product("pairs-residual", affine((9, 72, 40, 31)), 24, epilogue=RESIDUAL), (*PAIRS, *THREE)),
        (product("prologue-residual", affine((3, 96, 13, 11)), 96, epilogue=RESIDUAL), SOME),
        (product("prologue-scale", affine((2, 40, 9, 9), ()), 64, epilogue=(), bias=False), SOME[:2]),
        (product("prologue-clip", affine((2, 64, 9, 9), (stage("add", 2), CLIP)), 200, epilogue=SILU), SOME[:2]),
        (product("prologue-deep", affine((1, 1032, 9, 9)), 64), EVERY[:4]),
        (product("prologue-many", affine((9, 32, 40, 31)), 136), SOME),
        (product("prologue-1d", affine((2, 72, 50)), 40), SOME[:1]),
        (product("gate-7", gate((9, 136, 7, 7), first=True), 72), EVERY),
        (product("gate-residual", gate((5, 96, 13, 11), first=False), 96, epilogue=RESIDUAL), SOME),
        (product("gate-14", gate((3, 240, 14, 14), first=True), 40, epilogue=(), bias=False), SOME),
        (product("gate-many", gate((37, 48, 17, 15), first=True), 136), SOME),
    ):
        found += with_tiles(layer, tiles)
    apart = with_tiles(product("rows-prologue", affine((3, 72, 13, 11)), 72, epilogue=RESIDUAL), SOME, between=24)
    apart += with_tiles(product("rows-slices", affine((3, 264, 13, 11)), 72, epilogue=RESIDUAL), SLICED[:2], 24)
    apart += with_tiles(product("rows-deep", affine((3, 136, 13, 11)), 72, epilogue=RESIDUAL), DEEP[:2], 24, deep=2)
    apart += with_tiles(product("rows-gate", gate((9, 72, 7, 7), first=True), 72), SOME, between=8)
    found += apart
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in apart if t.shared is None]
