"""Tiles of the kernels for a product and the depthwise convolution behind it that leave what lies between in planes of
channels, where rows of a window are bands of matrices: WGMMA makes the product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.grouped.kind import Load, Sums
from bolt_build.families.grouped.neighbours.chain_tile import OCTET, STEP, ChainShape
from bolt_build.families.grouped.neighbours.warpgroup_tile import BANK, WARPS, WarpgroupTile, refuse_gpu
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_COLUMNS = 128
"""Columns of a product at most: registers have the results of two."""
_WIDE = 32
"""Columns of results of a tile at most."""
_HALF, _WHOLE = 8, 16
"""Rows of results of a tile at most: where both halves of an instruction have the same ones, and where they do not."""
_WINDOWS = (2, 5)
"""Rows and columns of windows whose bands take eight words."""
_STEPS = (1, 2)
_WORDS = 8
"""Of a row of a window in shared memory."""
_MAKES, _CONVOLVES = 28, 44
"""Registers of a thread beside what it multiplies, in both steps: what nvcc took."""
# This and what the class has were fitted to 61 times of an H200, and are off by a twelfth.
_ISSUED = 2.73
"""Clocks of a scheduler for each instruction of a warp beside others."""
_HIGH, _FEW, _CROWDED = 3, 2, 1.35
"""Windows of more rows over more than so many times eight columns take so much longer: registers spill."""
_TANGENT, _PRODUCT, _ACCESS = 8, 7, 4
"""The same for a special function, for a product of 16 x 8 by 16 and for 128 bytes of shared memory."""


@dataclass(frozen=True)
class TurnedTile(WarpgroupTile):
    """`rows` by `columns` results, and products of `at_once` rows of the halo. A block has `across` warpgroups
    and one of `parts` of the channels, in rounds; a multiprocessor has room for `beside` blocks."""

    rows: int
    columns: int
    at_once: int
    across: int
    parts: int
    beside: int

    kind: ClassVar[str] = "turned"
    begin, loads, alone, most_registers, most_rounds = 0.064e-6, 47e9, 4.04, 255, 8

    @property
    def extent(self) -> tuple[int, ...]:
        """What of an image it computes, and a product."""
        return (self.rows, self.columns, self.at_once)

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions, {self.at_once} rows a product"

    def images(self, shape: Shape) -> int:
        """Images of a block: two that one tile each has, of eight rows at most."""
        one = self.rows == shape.out[0] and self.columns == shape.out[1]
        return 2 if one and self.rows <= _HALF and shape.stride[0] == 1 and shape.batch > 1 else 1

    def halves(self, shape: Shape) -> str:
        """What both halves of an instruction's rows are, as the C++ enumeration has it."""
        return "columns" if shape.stride[1] > 1 else "images" if self.images(shape) == 2 else "rows"

    def tiles(self, shape: Shape) -> tuple[int, int]:
        """Of an image, down and across."""
        return ceil(shape.out[0] / self.rows), ceil(shape.out[1] / self.columns)

    def tiles_of_image(self, shape: Shape) -> int:
        down, across = self.tiles(shape)
        return down * across

    def blocks(self, shape: Shape) -> int:
        return self.parts * ceil(shape.batch / self.images(shape)) * self.tiles_of_image(shape)

    @property
    def eights(self) -> int:
        """Times eight columns of results."""
        return ceil(self.columns / OCTET)

    def left(self, shape: Shape) -> int:
        """Columns in front of the image that planes have: none where windows of eight results see all of it."""
        return 0 if self.columns == shape.out[1] and self.eights == 1 else shape.pads[1]

    def runs(self, shape: Shape) -> tuple[int, int]:
        """Times eight columns of a row of a plane, and of those that windows step over, which lie behind."""
        step, left, whole = shape.stride[1], self.left(shape), self.columns == shape.out[1]
        counts = []
        for run in range(step):
            begin = (run + shape.pads[1] - left) % step
            taps = (shape.kernel[1] - begin + step - 1) // step
            needed = self.columns - 1 + taps - (run + shape.pads[1] - left - begin) // step
            there = (shape.extent[1] + left - run + step - 1) // step
            counts.append(max(1, ceil((min(needed, there) if whole else needed) / OCTET)))
        return (counts[0], counts[1] if step > 1 else 0)

    def across_of(self, shape: Shape) -> int:
        """Columns of a row of a plane."""
        return OCTET * sum(self.runs(shape))

    def read_rows(self, shape: Shape) -> int:
        """Rows of the halo of a tile, those outside the image too."""
        return (self.rows - 1) * shape.stride[0] + shape.kernel[0]

    def lines(self, shape: Shape) -> tuple[tuple[int, int], ...]:
        """Of tiles below each other the rows of the halo that are in the image, and those above it."""
        tops = range(-shape.pads[0], shape.out[0] * shape.stride[0] - shape.pads[0], self.rows * shape.stride[0])
        ends = ((top, min(shape.extent[0], top + self.read_rows(shape))) for top in tops)
        return tuple((self.images(shape) * (end - max(0, top)), max(0, -top)) for top, end in ends)

    def there(self, shape: Shape) -> int:
        """Rows of the halo that images have, of the tile that has most."""
        return max(there for there, _ in self.lines(shape))

    def products(self, shape: Shape) -> int:
        return ceil(self.there(shape) / self.at_once)

    def plane(self, shape: Shape) -> int:
        """Times 16 bytes of a channel's plane."""
        read = self.read_rows(shape)
        lines = read if self.images(shape) == 2 else ceil(read / 2)
        return 2 * lines * sum(self.runs(shape)) + 1

    def given_bytes(self, chain: ChainShape) -> int:
        """Bytes of shared memory for the input of a tile."""
        pixels = self.products(chain.conv) * self.at_once * self.across_of(chain.conv)
        return aligned(2 * pixels * aligned(chain.given, STEP), BANK)

    def shared_bytes(self, chain: ChainShape) -> int:
        """The input of a tile, and planes and bands of each warp that has channels."""
        shape = chain.conv
        of_warp = STEP * (16 * self.plane(shape) + 4 * _WORDS * shape.kernel[0] + 4)
        return self.given_bytes(chain) + min(self.warps, self.share(shape)) * of_warp + BANK

    def begins(self, shape: Shape) -> int:
        """Rows from which on a lane reads matrices."""
        high = shape.kernel[0]
        return {"rows": high + 1, "images": 2 * high, "columns": high}[self.halves(shape)]

    def sets(self, shape: Shape) -> int:
        """Instructions' results that a warp has of a channel."""
        return ceil(self.eights / 2) if self.halves(shape) == "columns" else self.eights

    def registers(self, chain: ChainShape) -> int:
        """Of a thread, about: first for weights and what products leave, then for matrices and results."""
        shape = chain.conv
        steps = ceil(chain.given / STEP)
        made = min(2, self.products(shape)) * self.at_once * self.across_of(shape) // 2 + _MAKES
        loads = ceil(self.begins(shape) * sum(self.runs(shape)) / 4)
        convolved = 24 * self.sets(shape) + 5 * loads + _CONVOLVES
        return max(4 * steps + made, convolved)

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        if (reason := _refuse_window(chain.conv, gpu) or self._refuse_extent(chain.conv)) is not None:
            return reason
        return self.refuse_block(chain.conv, self.registers(chain), self.shared_bytes(chain), gpu)

    def _refuse_extent(self, shape: Shape) -> str | None:
        """Why images have no such tiles."""
        most = _WHOLE if self.halves(shape) == "rows" else _HALF
        if self.rows > most or self.columns > _WIDE:
            form = "tiles have up to {} rows and {} columns, not {} and {}"
            return Reason(form, most, _WIDE, self.rows, self.columns)
        if (columns := self.at_once * self.across_of(shape)) > _COLUMNS:
            return Reason("a product has up to {} columns, not {}", _COLUMNS, columns)
        staged = self.images(shape) * aligned(self.rows, 2) * OCTET * self.eights
        if staged + 4 > OCTET * self.plane(shape):
            return Reason("results of {} rows have no room where their halo was", self.rows)
        return None

    def seconds(self, chain: ChainShape, target: Target) -> float:
        issued, busy = self._clocks(chain)
        held = max(_ISSUED * issued, busy)
        load = Load(self.threads, self.registers(chain), self.shared_bytes(chain), self.given_bytes(chain), 0.0)
        return self.seconds_of(chain, self.blocks(chain.conv), load, issued, held, target)

    def _clocks(self, chain: ChainShape) -> tuple[float, float]:
        """Of a scheduler for a warp's part of a tile: of all instructions, and what keeps the busiest of special
        functions, tensor cores and shared memory."""
        shape, runs = chain.conv, self.runs(chain.conv)
        steps, pixels = ceil(chain.given / STEP), self.products(shape) * self.at_once * self.across_of(shape)
        high, sets = shape.kernel[0], self.sets(shape)
        made, results = pixels / 2, STEP * 4 * sets  # numbers of a lane
        matrices = self.begins(shape) * sum(runs)
        multiplies = STEP * high * sets * (2 if shape.stride[1] > 1 else 1)
        words = STEP * high * sum(min(2, run) for run in runs if run)
        issued = made * (2.5 + chain.before / 2) + results * (2 + shape.epilogue / 2) + 1.3 * (multiplies + words)
        issued += STEP * matrices / 4 + 250
        issued *= _CROWDED if high > _HIGH and sets > _FEW else 1
        tangents = _TANGENT * (made * (chain.before > 2) + results * (shape.epilogue > 2))
        # WGMMA reads its right factor for all four warps.
        tensor = _PRODUCT * multiplies + pixels * steps / 2
        shared = _ACCESS * (STEP * matrices + words + pixels / 4 + results + pixels * steps / 16)
        return issued, max(tangents, tensor, shared)

    def sums(self, chain: ChainShape) -> Sums:
        """Of each tile's channels, from the registers of the warp that has them all."""
        shape, shared = chain.conv, self.shared_bytes(chain)
        tiles, images = self.tiles_of_image(shape), self.images(shape)
        kept = max(shared + 4 * images * STEP * self.share(shape), 16 * self.threads + BANK)
        return Sums(tiles, shared, tiles, ceil(shape.batch / images) * self.parts, kept)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those on the halo and with zeros included."""
        shape = chain.conv
        tiles = ceil(shape.batch / self.images(shape)) * self.tiles_of_image(shape)
        channels = aligned(shape.channels, STEP)
        pixels = self.products(shape) * self.at_once * self.across_of(shape)
        multiplied = 2 * 16 * OCTET * STEP * shape.kernel[0] * self.sets(shape) * shape.stride[1]
        return tiles * channels * (2 * pixels * aligned(chain.given, STEP) + multiplied)

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::TurnedTile<bolt::grouped::Window<5, 5, 1, 1, 1, 1>, 112, bolt::grouped::Halves::rows, 14, 2,
        14, 14, 2, 2, 2, 0, 7, 2, 3, 42, 4, 1, 1, 1, 8, 8>`"""
        shape = chain.conv
        lines = dict.fromkeys(self.lines(shape))
        alike = next(iter(lines)) if len(lines) == 1 else (0, 0)
        sizes = (
            aligned(chain.given, STEP), f"{SPACE}::Halves::{self.halves(shape)}", *alike, self.rows, self.columns,
            shape.pads[1], self.left(shape), *self.runs(shape), self.at_once, self.products(shape), self.across,
            ceil(shape.channels / STEP), self.parts, *self.tiles(shape), self.beside, wide(chain.given),
            wide(shape.channels),
        )  # fmt: skip
        return f"{SPACE}::TurnedTile<{shape.window}, {', '.join(map(str, sizes))}{shape.element}>"


def _refuse_window(shape: Shape, gpu: Gpu) -> str | None:
    """Why planes are not for a window, whatever their extent."""
    if (reason := refuse_gpu(gpu)) is not None:
        return reason
    if any(gap != 1 for gap in shape.dilation):
        return "bands have neighbouring taps, and the window is dilated"
    if not all(_WINDOWS[0] <= extent <= _WINDOWS[1] for extent in shape.kernel):
        return Reason("bands have room for windows of {} to {} rows and columns", *_WINDOWS)
    if shape.stride[0] != shape.stride[1] or shape.stride[0] not in _STEPS:
        return Reason("windows step by one or two, down as across, not by {} and {}", *shape.stride)
    if any(pad >= extent for pad, extent in zip(shape.pads, shape.kernel, strict=True)):
        return "windows lie outside the image"
    return None


_BLOCKS = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))
"""Warpgroups of a block, and blocks beside each other."""


def _cuts(extent: int, most: int) -> Iterator[int]:
    """Equal parts of an extent, of `most` at most: as large as can be, and the next smaller ones."""
    least = ceil(extent / most)
    yield from dict.fromkeys(ceil(extent / parts) for parts in range(least, min(extent, least + 2) + 1))


def turned_tiles(chain: ChainShape) -> Iterator[TurnedTile]:
    """The tiles that may be some for a product and a depthwise convolution."""
    shape = chain.conv
    if shape.stride[0] != shape.stride[1] or shape.stride[0] not in _STEPS:
        return
    most = _WHOLE if shape.stride[0] == 1 else _HALF
    for rows, columns in product(_cuts(shape.out[0], most), _cuts(shape.out[1], _WIDE)):
        probe = TurnedTile(rows, columns, 1, 1, 1, 1)
        largest = min(_COLUMNS // probe.across_of(shape), probe.there(shape))
        if largest < 1:
            continue
        # Products of equal heights, and of half of that.
        heights = dict.fromkeys(
            ceil(probe.there(shape) / ceil(probe.there(shape) / height)) for height in (largest, ceil(largest / 2))
        )
        groups = ceil(shape.channels / STEP)
        for at_once, (across, beside) in product(heights, _BLOCKS):
            if across > 1 and groups <= WARPS * (across - 1):
                continue
            # With all warps of a block, or but some of the last four: more blocks may suit a GPU better. Fewer blocks
            # have channels for several rounds.
            shares = [*range(WARPS * across, WARPS * (across - 1), -1), *_longer(groups, WARPS * across)]
            for parts in dict.fromkeys(ceil(groups / share) for share in shares):
                yield TurnedTile(rows, columns, at_once, across, parts, beside)


def _longer(groups: int, warps: int) -> Iterator[int]:
    """Times 16 channels of a block that are several rounds of its warps."""
    for parts in range(ceil(groups / warps) - 1, 0, -1):
        if (share := ceil(groups / parts)) <= TurnedTile.most_rounds * warps:
            yield share
