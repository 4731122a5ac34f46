"""Tiles of the kernels for a product and the depthwise convolution behind it whose product WGMMA makes: four lanes have
a row of a channel, and go down the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.grouped.kind import Load, Sums
from bolt_build.families.grouped.neighbours.chain_tile import OCTET, STEP, ChainShape
from bolt_build.families.grouped.neighbours.strips_tile import older
from bolt_build.families.grouped.neighbours.warpgroup_tile import BANK, WARPS, WarpgroupTile, refuse_gpu
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_LANES = 4
"""Lanes that have a row of a channel."""
_CHANNELS = STEP * WARPS
"""Channels of a product."""
_COLUMNS = 64
"""Columns of a product at most: registers have its results."""
_WINDOWS = (2, 5)
"""Rows and columns of windows that registers have room for."""
_OTHERS = 24
"""Registers of a thread beside weights, sums, rows and what a product leaves: what nvcc took."""
# This and what the class has were fitted to 81 times of an H200, and are off by a tenth.
_ISSUED = 1.8
"""Clocks of a scheduler for each instruction of a warp beside others."""
_FUNCTIONS = 0.3
"""What of the clocks of special functions comes on top."""
_TANGENT_OPS, _LONGER = 3, 0.7
"""Operations of SiLU by its tangent, and instructions for each of a longer function: fitted to three with GELU."""
_TANGENT = 8
"""Clocks of a scheduler for a special function of a warp."""
_SHUFFLE, _STORED = 4, 24
"""The same of a shuffle, and for what a warp leaves and stores of eight pixels of sixteen channels."""


@dataclass(frozen=True)
class QuadsTile(WarpgroupTile):
    """`each` columns of the input a lane, `at_once` rows of it a product, and `rows` rows of results a tile. A block
    has `across` warpgroups and one of `parts` of the channels; a multiprocessor has room for `beside` blocks."""

    each: int
    at_once: int
    rows: int
    across: int
    parts: int
    beside: int

    kind: ClassVar[str] = "quads"
    begin, loads, alone, most_registers = 1.5e-6, 45e9, 3.0, 240

    @property
    def extent(self) -> tuple[int, ...]:
        """What of an image it computes, and a product."""
        return (self.each, self.rows, self.at_once)

    def __str__(self) -> str:
        return f"{self.rows} rows of {_LANES * self.each} columns, {self.at_once} rows a product"

    def made(self, shape: Shape) -> int:
        """Columns of results of a lane."""
        return self.each // shape.stride[1]

    def sides(self, shape: Shape) -> tuple[int, int]:
        """Columns of lanes beside it that a lane has: in front of its own, and behind them."""
        needed = (self.made(shape) - 1) * shape.stride[1] + shape.kernel[1]
        return shape.pads[1], max(0, needed - shape.pads[1] - self.each)

    def tiles_beside(self, shape: Shape) -> int:
        """Tiles of a row of the output, which share columns; 0 where they have none of their own."""
        step, whole = shape.stride[1], _LANES * self.made(shape)
        left, right = (ceil(side / step) for side in self.sides(shape))
        own = whole - left - right
        if own <= 0:
            return 0
        more = ceil(max(0, shape.out[1] - whole) / own)
        reaches = more * own * step + _LANES * self.each >= shape.extent[1] or more * own + left + own >= shape.out[1]
        return more + (1 if reaches else 2)

    def exact(self, shape: Shape) -> bool:
        """Whether one tile is as wide as the image, and as the output."""
        ends = shape.extent[1] == _LANES * self.each and shape.out[1] == _LANES * self.made(shape)
        return ends and self.tiles_beside(shape) == 1

    def tiles_of_image(self, shape: Shape) -> int:
        return ceil(shape.out[0] / self.rows) * self.tiles_beside(shape)

    def blocks(self, shape: Shape) -> int:
        return self.parts * shape.batch * self.tiles_of_image(shape)

    def read_rows(self, shape: Shape) -> int:
        """Rows of the input that a tile keeps, in whole products."""
        read = (self.rows - 1) * shape.stride[0] + shape.kernel[0]
        return aligned(min(read, shape.extent[0] + shape.stride[0] - 1), self.at_once)

    def given_bytes(self, chain: ChainShape) -> int:
        """Bytes of shared memory for the input of a tile."""
        return 2 * self.read_rows(chain.conv) * _LANES * self.each * _stored_depth(chain)

    def shared_bytes(self, chain: ChainShape) -> int:
        """The input of a tile, the product's weights, and two rows of results of each warp."""
        staged = 2 * 2 * self.warps * OCTET * ceil(self.made(chain.conv) / 2) * STEP
        factors = self.across * aligned(2 * _CHANNELS * _stored_depth(chain), BANK)
        return aligned(self.given_bytes(chain), BANK) + factors + staged + BANK

    def registers(self, chain: ChainShape) -> int:
        """Of a thread, about: for two channels weights, sums of all rows that are under way, rows of the halo and
        what a product leaves."""
        shape, sides = chain.conv, sum(self.sides(chain.conv))
        sums = self.made(shape) * (older(shape) + 1)
        return 2 * (shape.taps + sums + 2 * self.each * self.at_once + sides) + _OTHERS

    def refuse_shape(self, shape: Shape, gpu: Gpu) -> str | None:
        """Why images have no such quads, whatever lies in registers and in shared memory."""
        if (reason := _refuse_window(shape, gpu)) is not None:
            return reason
        if self.each % shape.stride[1] or self.at_once % shape.stride[0]:
            return Reason("{} columns and {} rows are no whole steps", self.each, self.at_once)
        columns = _LANES * self.each * self.at_once
        if columns > _COLUMNS or columns % OCTET:
            return Reason("a product has up to {} columns, a multiple of eight, not {}", _COLUMNS, columns)
        if max(self.sides(shape)) > self.each:
            return Reason("windows reach beyond the {} columns of the lane beside", self.each)
        if self.tiles_beside(shape) == 0:
            return Reason("{} columns a lane leave a tile no results that are its own", self.each)
        return None

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        if (reason := self.refuse_shape(chain.conv, gpu)) is not None:
            return reason
        return self.refuse_block(chain.conv, self.registers(chain), self.shared_bytes(chain), gpu)

    def seconds(self, chain: ChainShape, target: Target) -> float:
        issued, functions = self._clocks(chain)
        held = _ISSUED * issued + _FUNCTIONS * functions
        load = Load(self.threads, self.registers(chain), self.shared_bytes(chain), self.given_bytes(chain), 0.0)
        return self.seconds_of(chain, self.blocks(chain.conv), load, issued, held, target)

    def _clocks(self, chain: ChainShape) -> tuple[float, float]:
        """Of a scheduler for a warp's part of a tile: of all instructions, and of special functions."""
        shape, made = chain.conv, self.made(chain.conv)
        read = min(self.read_rows(shape), (self.rows - 1) * shape.stride[0] + shape.kernel[0])
        steps = ceil(chain.given / STEP)
        before, epilogue = (ops * (0.5 if ops <= _TANGENT_OPS else _LONGER) for ops in (chain.before, shape.epilogue))
        of_row = 2 * self.each * (2 + before) + 4 * sum(self.sides(shape)) + (25 + 3 * steps) / self.at_once
        of_result = 2 * made * (shape.taps + epilogue) + _STORED * ceil(made / 2) / 2
        # Rows of results that are not the tile's are made too.
        results = self.rows + older(shape) * (1 if self.rows < shape.out[0] else 0.5)
        issued = read * of_row + results * of_result
        tangents = 2 * _TANGENT * (read * self.each * (chain.before > 2) + self.rows * made * (shape.epilogue > 2))
        shuffles = _SHUFFLE * 2 * sum(self.sides(shape)) * read
        return issued, max(tangents, shuffles)

    def sums(self, chain: ChainShape) -> Sums:
        """Of each tile's channels, from the registers of the warp that has them all."""
        tiles, shared = self.tiles_of_image(chain.conv), self.shared_bytes(chain)
        kept = max(shared, 4 * (_CHANNELS * self.across + 4 * self.threads) + BANK)
        return Sums(tiles, shared, tiles, chain.conv.batch * self.parts, kept)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those on the halo included."""
        shape = chain.conv
        tiles, channels = shape.batch * self.tiles_of_image(shape), aligned(shape.channels, STEP)
        columns = _LANES * self.each
        read = self.read_rows(shape) * columns * aligned(chain.given, STEP)
        return 2 * tiles * channels * (read + self.rows * _LANES * self.made(shape) * shape.taps)

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::QuadsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 32, 1, 4, false, 2, 1, 4, 8, 8>`"""
        shape = chain.conv
        exact = "true" if self.exact(shape) else "false"
        sizes = (aligned(chain.given, STEP), shape.pads[1], self.each, exact, self.at_once, self.across, self.beside)
        words = ", ".join(map(str, (*sizes, wide(chain.given), wide(shape.channels))))
        return f"{SPACE}::QuadsTile<{shape.window}, {words}{shape.element}>"


def _stored_depth(chain: ChainShape) -> int:
    """Numbers that a row of a factor takes, in whole runs: as SwizzledRows has them."""
    depth = aligned(chain.given, STEP)
    return aligned(depth, 64 if depth > 32 else 32 if depth > 16 else 16)


def _refuse_window(shape: Shape, gpu: Gpu) -> str | None:
    """Why quads are not for a window, whatever their width."""
    if (reason := refuse_gpu(gpu)) is not None:
        return reason
    if any(gap != 1 for gap in shape.dilation):
        return "lanes keep neighbouring rows, and the window is dilated"
    if not all(_WINDOWS[0] <= extent <= _WINDOWS[1] for extent in shape.kernel):
        return Reason("registers hold windows of {} to {} rows and columns", *_WINDOWS)
    if any(step > extent for step, extent in zip(shape.stride, shape.kernel, strict=True)):
        return "windows step over what none of them reads"
    return None


_EACH, _AT_ONCE = (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 6, 8)
_BLOCKS = ((1, 5), (1, 4), (1, 3), (1, 2), (2, 2), (3, 1), (2, 1))
"""Warpgroups of a block, and blocks beside each other."""


def _of_image(chain: ChainShape) -> Iterator[tuple[int, int]]:
    """Columns of lanes that suit an image, and rows of tiles: those that leave few columns or rows without results."""
    shape = chain.conv
    for each in _EACH:
        if each % shape.stride[1]:
            continue
        probe = QuadsTile(each, 1, 1, 1, 1, 1)
        if not 0 < probe.tiles_beside(shape) * _LANES * each <= max(1.6 * shape.extent[1], shape.extent[1] + 4):
            continue
        for parts in range(1, 9):
            rows = ceil(shape.out[0] / parts)
            if ceil(shape.out[0] / rows) == parts and (parts == 1 or rows >= shape.kernel[0]):
                yield each, rows


def quads_tiles(chain: ChainShape) -> Iterator[QuadsTile]:
    """The tiles that may be some for a product and a depthwise convolution."""
    for (each, rows), at_once, (across, beside) in product(_of_image(chain), _AT_ONCE, _BLOCKS):
        columns = _LANES * each * at_once
        if at_once % chain.conv.stride[0] == 0 and columns % OCTET == 0 and columns <= _COLUMNS:
            yield QuadsTile(each, at_once, rows, across, ceil(chain.conv.channels / (across * _CHANNELS)), beside)
