"""Tiles of the kernels for a depthwise convolution and the normalisation of its results over channels: what is legal,
and what it should take.

A block, or the blocks of a cluster together, has all channels of its positions. A row of a window is a band of a
matrix: see `bands.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Load, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.tensor_core import instruction
from bolt_build.families.grouped.shape import SPACE, Shape, aligned
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

OCTET = 8
"""Positions beside each other, rows, and channels that an 8 x 8 matrix has."""
_REGISTERS = 240
"""Registers of a thread at most."""
_OTHERS = 70
"""Registers of a thread beside matrices and sums. A guess."""
_LOADS = 4
"""Loads of eight channels of a lane, at most 32 of which have a position."""
_EFFICIENCY = 0.45
"""Part of what shared memory and instructions give that these kernels reach. Fitted, as the next and `_POSITION` are,
to 20 times of an H200; since clusters are counted off by 15% over 35 times, and by 19% over 23 others."""
_SLAB = 0.05e-6
"""Seconds that a block waits for a slab of channels."""
_PRODUCT, _TURN, _POSITION = 35, 30, 2500
"""Clocks of a warp until the next product of a sum, of four matrices that are turned around, and until results are
normalised, where nothing else keeps it waiting. The first two are guesses."""
_BEGIN = 1.5e-6
"""Seconds from a block's begin to its first slab, and from its last sum to its last store. A guess."""


@dataclass(frozen=True)
class BandTile(Numbered):
    """8 * `down` by 8 * `across` positions, of which the `parts` blocks of a cluster have some of the channels each, in
    slabs of `slab`, with `warps` warps."""

    kind: ClassVar[str] = "normed"

    down: int
    across: int
    slab: int
    parts: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions, slabs of {self.slab} channels in {self.parts} parts"

    @property
    def rows(self) -> int:
        return OCTET * self.down

    @property
    def columns(self) -> int:
        return OCTET * self.across

    @property
    def extent(self) -> tuple[int, ...]:
        """Of a cluster."""
        return (self.down, self.across, self.parts)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def slabs(self, shape: Shape) -> int:
        """Of a block."""
        return ceil(ceil(shape.channels / self.parts) / self.slab)

    def channels(self, shape: Shape) -> int:
        """Of a block."""
        return self.slabs(shape) * self.slab

    def beside(self, shape: Shape) -> int:
        """8 x 8 matrices of a row of the input: as BandSlab has them."""
        return shape.stride[1] * (self.across - 1) + 2 * steps(shape)

    def staged(self, shape: Shape) -> tuple[int, int]:
        """Rows and columns of the halo in shared memory."""
        return shape.halo(self.rows, self.columns)[0], OCTET * self.beside(shape)

    def shared_bytes(self, shape: Shape) -> int:
        """A slab as it is stored, turned around, its filters, the results, biases, and statistics for other blocks."""
        height, width = self.staged(shape)
        line = OCTET * (self.beside(shape) | 1)
        plane = height * line + (OCTET if height % 2 == 0 else 0)
        copies = 1 if shape.stride[1] % 2 == 0 else 2
        band = copies * ((16 * steps(shape) + 7 * shape.stride[1] + 2) // 2)
        channels = self.channels(shape)
        results = 16 * (channels // OCTET | 1) * (self.columns + 1) * self.rows
        sums = 8 * self.rows * self.columns if self.parts > 1 else 0
        slab = 2 * height * width * (self.slab + OCTET) + 2 * self.slab * plane
        return slab + aligned(4 * self.slab * shape.kernel[0] * band, 16) + results + 4 * channels + sums

    def registers(self, shape: Shape) -> int:
        """Of a thread, about: sums of two channels and the matrices of a row, or a position's channels, scale and
        shift."""
        tiles = self.down * self.across
        sums = 8 * ceil(tiles / 2) + self.down * self.beside(shape)
        chunks = self.channels(shape) // OCTET
        return max(sums, 24 * ceil(chunks / lanes(chunks))) + _OTHERS

    def blocks(self, shape: Shape) -> int:
        return self.parts * shape.tiles(self.rows, self.columns)

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        if self.parts > 1 and not gpu.warpgroup_mma:
            return "blocks share statistics in clusters on Hopper alone"
        if (self.parts - 1) * self.channels(shape) >= shape.channels:
            return Reason(
                "{} parts of {} channels leave blocks of the cluster without any", self.parts, self.channels(shape)
            )
        if ceil(self.channels(shape) // OCTET / 32) > _LOADS:
            most = 32 * OCTET * _LOADS
            return Reason("{} channels of a position are more than the {} of a warp", self.channels(shape), most)
        if self.warps > self.slab // 2:
            return Reason("{} warps cannot share the {} channels of a slab in pairs", self.warps, self.slab)
        if (reason := shape.refuse_waste(self.rows, self.columns, 3)) is not None and (
            self.down > 1 or self.across > 1
        ):
            return reason
        if (registers := self.registers(shape)) > min(_REGISTERS, gpu.registers // self.threads):
            return Reason("takes {} registers of a thread, {} threads have not as many", registers, self.threads)
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target) -> float:
        """Predicted time: what memory takes, halos from L2, and shared memory and instructions of the busiest
        multiprocessor."""
        gpu = gpu_of(target)
        height, width = self.staged(shape)
        positions, channels = self.rows * self.columns, self.channels(shape)
        rows, tiles = shape.kernel[0], self.down * self.across
        depth = 1 if instruction(gpu) == 16 else 2
        products = rows * steps(shape) * ceil(tiles / 2)
        matrices = self.down * self.beside(shape)
        turned = height * self.beside(shape) / OCTET  # of a channel
        # Of a channel: reads and writes of 128 bytes, and instructions of a warp.
        shared = rows * (matrices + 2 * steps(shape)) + 2 * turned + height * width / 64 + 4 * tiles + positions / 32
        warp = rows * (ceil(matrices / 4) + 2 * steps(shape) + products / rows * depth) + 8 * tiles
        warp += 3 * turned + 20 * height * width / 256 + (shape.epilogue + 20) * positions / 32
        tensor = products * 4096 / (target.rate("fp16") * gpu.warp_mma_share / gpu.sms)
        # A clock, a multiprocessor: 128 bytes of shared memory, or four instructions of a warp.
        clock = 128 / (target.rate("fp32") / 2 / gpu.sms)
        busy = channels * max(shared * clock, warp / 4 * clock, tensor) / _EFFICIENCY
        load = Load(self.threads, self.registers(shape), self.shared_bytes(shape), 2 * height * width * channels, busy)
        blocks = self.blocks(shape)
        busiest = ceil(blocks / gpu.sms)
        # A warp's clocks where nothing else keeps it waiting: products of a sum follow each other.
        of_slab = ceil(self.slab / 2 / self.warps) * 2 * rows * steps(shape) * _PRODUCT
        of_slab += ceil(turned * self.slab / 4 / self.warps) * _TURN
        chunks = channels // OCTET
        together = 32 // lanes(chunks) * self.warps
        of_positions = ceil(positions / together) * _POSITION * (1 if self.parts == 1 else 2)
        alone = _BEGIN + self.slabs(shape) * (_SLAB + of_slab * clock) + of_positions * clock
        waits = ceil(blocks // self.parts / clusters_at_once(self.parts, occupancy(load, gpu), gpu)) * alone
        return limited_by(shape, load, blocks, busiest * busy, target, waits)

    def flops(self, shape: Shape) -> int:
        """Operations, those with zeros included."""
        tiles = shape.tiles(self.rows, self.columns) * ceil(self.down * self.across / 2)
        return tiles * self.parts * self.channels(shape) * shape.kernel[0] * steps(shape) * 4096

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::BandTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 1, 4, 16, 6, 1, 8, 16>`"""
        sizes = (self.down, self.across, self.slab, self.slabs(shape), self.parts, self.warps, instruction(gpu))
        return f"{SPACE}::BandTile<{shape.window}, {', '.join(map(str, sizes))}{shape.element}>"


def reach(shape: Shape) -> int:
    """Columns of the input from a window's first tap to its last."""
    return (shape.kernel[1] - 1) * shape.dilation[1] + 1


def steps(shape: Shape) -> int:
    """Products of 16 columns of the input that eight neighbouring results take."""
    return ceil((7 * shape.stride[1] + reach(shape)) / 16)


def lanes(chunks: int) -> int:
    """Lanes that share a position of so many runs of eight channels: as NormedBands has them."""
    for least, most in ((32, 48), (16, 24), (8, 12)):
        if chunks % least == 0 or chunks > most:
            return least
    return 4


_DOWN, _ACROSS, _SLABS, _PARTS, _WARPS = (1, 2), (1, 2, 4, 7), (16, 32), (1, 2, 3, 4, 6, 8), (8, 16, 4)


def band_tiles(shape: Shape) -> Iterator[BandTile]:
    """The tiles that may be some for a convolution."""
    for down, across, slab, parts, warps in product(_DOWN, _ACROSS, _SLABS, _PARTS, _WARPS):
        fits = 8 * down < shape.out[0] + 8 and 8 * across < shape.out[1] + 8
        if fits and slab < shape.channels + 16:
            yield BandTile(down, across, slab, parts, warps)
