"""Planes in half precision that are resampled on tensor cores, along both axes, by warps that go down strips of columns
by themselves: rows of the input come to registers, and results go from there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.half_planes import (
    column_tiles_of,
    high_of,
    refuse_planes,
    row_tiles_of,
    serves_planes,
    wide_of,
)
from bolt_build.families.portable.kernels.images.resample_images import Images, arguments, images_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_AMPERE = 80
_WARP, _ROWS, _AHEAD = 32, 8, 4
"""Threads of a warp, rows of a tile of results and of a block of the input, and such blocks that are on their way."""
_WARPS, _STRIPS, _MOST_HIGH, _MOST_WIDE = (4, 8), (1, 2), 4, 4
"""Warps of a block and tiles beside each other of a warp that are tried; and blocks of rows and sixteens of columns of
a window, at most: registers have them."""


@dataclass(frozen=True)
class BandedTile(NumberTile):
    """A block has `warps` warps, each of which has `strip` tiles of columns. Blocks have `tiles` tiles of eight rows of
    results, of one plane after another of those that lie `side` apart."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("tiles", "side")

    warps: int
    strip: int
    tiles: int
    side: int

    def strips(self, images: Images) -> int:
        return ceil(column_tiles_of(images) / self.strip)

    def cuts(self, images: Images) -> int:
        return ceil(row_tiles_of(images) / self.tiles)

    def blocks(self, images: Images) -> int:
        return self.cuts(images) * ceil(self.side * self.strips(images) / self.warps)

    def registers(self, images: Images) -> int:
        """Of a thread: about what nvcc makes of it."""
        return 44 + self.strip * (8 * wide_of(images) + 4 * high(images) + 2 * wide_of(images) * ahead(images))

    def shared(self, images: Images) -> int:
        words = 2 if high(images) == 1 else ceil(high(images) / 2) * 4
        return self.tiles * (128 * words + 4)

    def text(self, images: Images) -> str:
        """A `BandedTile` of `banded_planes.h`."""
        rows, columns = images.rows, images.columns
        numbers = (
            rows.extent, rows.made, columns.extent, columns.made, self.warps, self.strip, wide_of(images),
            high(images), ahead(images),
        )  # fmt: skip
        return f"bolt::portable::BandedTile<{', '.join(map(str, numbers))}>"


def high(images: Images) -> int:
    """Blocks of rows of a tile's window: never more than a plane has."""
    return min(high_of(images), ceil(images.rows.extent / _ROWS))


def ahead(images: Images) -> int:
    """Blocks of rows that are on their way: a multiple of those of a window."""
    return high(images) if wide_of(images) > 1 else ceil(_AHEAD / high(images)) * high(images)


def _tiles(images: Images, gpu: Gpu) -> Iterator[BandedTile]:
    """As many warps as a GPU holds at once, or twice as many shorter ones."""
    most = row_tiles_of(images)
    for warps, strip, waves in product(_WARPS, _STRIPS, (1, 2)):
        if strip > 1 and column_tiles_of(images) < strip:
            continue
        tile = BandedTile(warps, strip, most, images.outer)
        there = gpu.sms * warps * occupancy(_WARP * warps, tile.registers(images), 0, gpu) * waves
        strips = tile.strips(images)
        cuts = min(max(there // (strips * images.outer), 1), most)
        turns = ceil(images.outer * strips * cuts / there)
        yield BandedTile(warps, strip, ceil(most / cuts), ceil(images.outer / turns))


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if gpu.sm < _AMPERE:
        return "sixteen columns at once are multiplied from sm_80 on"
    if (why := refuse_planes(problem)) is not None:
        return why
    images = images_of(problem)
    if high(images) > _MOST_HIGH or wide_of(images) > _MOST_WIDE:
        what = "a window of {} rows and {} columns is more than the {} and {} that a warp has registers for"
        found = (_ROWS * high(images), 16 * wide_of(images), _ROWS * _MOST_HIGH, 16 * _MOST_WIDE)
        return Reason(what, *found)
    return None


def _refuse_tile(tile: BandedTile, images: Images, gpu: Gpu) -> str | None:
    if tile.warps not in _WARPS:
        return Reason("blocks have 4 or 8 warps, not {}", tile.warps)
    if tile.strip not in _STRIPS:
        return "a warp has 1 or 2 tiles of columns at once"
    if tile.tiles > (most := row_tiles_of(images)):
        return Reason("a block has {} tiles of rows, a plane {}", tile.tiles, most)
    if tile.side > images.outer:
        return Reason("{} planes side by side are more than the {} that there are", tile.side, images.outer)
    return refuse_shared(tile.shared(images), gpu)


_REACHED, _CLOCK = 0.8, 1.755e9
"""The part of a GPU's bandwidth, and cycles of a multiprocessor in a second. These and the following are instructions
counted in the kernel's code, and guesses."""
_BLOCK_ISSUED, _TILE_ISSUED, _FILLED = (30, 22), (14, 18), 90
"""Instructions of a warp for a block of rows and for a tile of rows, and for each of its tiles of columns; and for two
neighbours' weights."""
_BLOCK_WAIT, _TILE_WAIT, _FIRST = 150, 220, 2500
"""Cycles of a warp for the same, one after the other; and until its first rows have come."""
_ODD, _WIDE = 1.65, 1.65
"""How much longer rows of odd extents take, whose neighbours are loaded one by one, and windows of several sixteens of
columns: eleven kernels of an H200 took 5% more or less."""
_ISSUE = 0.75
"""The part of a multiprocessor's instructions that its warps begin."""
_AGAIN, _PARTIAL, _BESIDE, _LAST_WAVE = 0.2, 1.15, 0.3, 0.05
"""The part of rows that two blocks read which memory gives twice; how much longer stores take that are no whole
sectors; the part of the second longest that does not go on beside the longest; and the part of a wave that is none."""
_SECTOR = 32
"""Bytes that memory takes at once."""


def _seconds(problem: KernelProblem, tile: BandedTile, target: Target) -> float:
    gpu, images = target.gpu, images_of(problem)
    assert gpu is not None, "tensor cores are of GPUs"
    wide, tall, strip = wide_of(images), high(images), tile.strip
    rows, turns = images.rows, ceil(images.outer / tile.side)
    tiles = min(tile.tiles, row_tiles_of(images))
    beyond = tall - 1 if tile.cuts(images) > 1 else 0
    blocks = min(tiles * rows.extent / row_tiles_of(images) / _ROWS + beyond, rows.extent / _ROWS + 1)
    odd = (images.columns.extent % 2) * 4 * wide
    block = _BLOCK_ISSUED[0] + strip * (_BLOCK_ISSUED[1] + 4 * wide + odd)
    made = images.columns.made
    stored = {0: 1, 2: 3}.get(made % 4, 9)
    of_tile = _TILE_ISSUED[0] + strip * (_TILE_ISSUED[1] + 3 * ceil(tall / 2) + stored)
    fill = _FILLED * (4 * wide * strip + ceil(tiles / tile.warps) * tall)
    issued = turns * (blocks * block + tiles * of_tile) + fill
    waits = turns * (blocks * (_BLOCK_WAIT + 40 * wide) + tiles * (_TILE_WAIT + 40 * tall)) + 2 * fill
    warps = tile.blocks(images) * tile.warps / gpu.sms
    there = min(occupancy(_WARP * tile.warps, tile.registers(images), tile.shared(images), gpu) * tile.warps, warps)
    waves = ceil(warps / there - _LAST_WAVE)
    again = 1 + (tall - 1) * _ROWS * (tile.cuts(images) - 1) / rows.extent * _AGAIN
    memory = moved(problem.nbytes, target) / _REACHED * again
    if made * 2 % _SECTOR:
        memory *= _PARTIAL
    slower = (_ODD if images.columns.extent % 2 else 1.0) * (_WIDE * strip if wide > 1 else 1.0)
    taken = sorted((memory, warps * issued / 4 / _ISSUE / _CLOCK, waves * waits / _CLOCK))
    return float(slower * (taken[-1] + _BESIDE * taken[-2] + _FIRST / _CLOCK) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: BandedTile, at: StepExpressions) -> StepCode:
    images = images_of(problem)
    parameters, axes = arguments(images, at)
    how = f"{ctype(problem.inputs[0].format.dtype)}, {tile.text(images)}, {images.rows.taps}, {images.columns.taps}"
    call = (
        f"bolt::portable::resample_banded_planes<{how}>(r, {parameters}, {axes}, {tile.tiles}, {tile.side}, "
        f"{at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/cuda/images/banded_planes.h",), None, "", call)


FORM: Form[BandedTile] = Form(
    "banded",
    serves_planes,
    _refuse,
    lambda problem, gpu: _tiles(images_of(problem), gpu),
    lambda problem, tile, gpu: _refuse_tile(tile, images_of(problem), gpu),
    _seconds,
    BandedTile.read,
    _emit,
)
