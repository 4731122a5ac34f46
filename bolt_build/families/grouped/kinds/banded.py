"""Kernels for large filters of one channel each on tensor cores whose windows go down an image: a row of the window is
a band of a matrix, and the sums of all rows of the output that a row of the input is part of are in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_held, refuse_shared, refuse_threads
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Kind, Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.singles import Singles
from bolt_build.families.grouped.kinds.tensor_core import instruction
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_OCTET, _RUNS = 8, 16
"""Positions of a row that are one row of a product, and the rows that it has."""
_WIDEST, _HIGHEST = 17, 13
"""Columns of a window, for eight neighbours read 24, and rows, whose sums and bands are in registers."""
_STAGES = 6
"""Rows of the input in shared memory, of which all but one are still being copied."""
_LEAST_TAPS = 20
"""Taps below which memory takes longer than arithmetic, whatever unit does it."""
_OTHERS = 36
"""Registers of a thread beside bands, sums, a row's factors and what it copies and stores: what nvcc took, at most."""
_REGISTERS = 240
_THREADS = (128, 512)
_CHANNELS = (16, 24, 32, 48)
"""Channels that a block should have: whole sectors of memory."""
_MOST_ROWS = 9
"""Rows of a window up to which registers have room for blocks of more channels than the fewest."""
_ROWS = (1, 2, 3, 4, 6, 8)
"""Parts of an image along its rows."""
_BEGIN = 1.4e-6
"""Seconds until the first rows of blocks in turn and their bands are there. Fitted to 11 times of an H100."""
_ROW, _COPY = 44, 4.8
"""Clocks of a multiprocessor for a warp's row of the input, and for each copy of a thread there: what its loads, copies
and stores take, all of which go one way."""
_PRODUCT, _HALF, _SHARE = 6.5, 2 / 3, 1.4
"""Clocks of a scheduler for a product of 16 x 8 by 16, the part of one that half the depth takes, and the part of them
that comes on top. With the two above fitted to 19 times of an H200 over windows of 3x11 to 13x17, and off by 4%."""
_WAIT = 350
"""Clocks from one row to the next where few warps share a multiprocessor. A guess."""


@dataclass(frozen=True)
class BandedTile(Numbered, Singles):
    """`pairs` pairs of channels, a warp each, of `segments` segments: `rows` rows of an image, 8 * `across` positions
    wide. A block goes down all segments at once."""

    kind: ClassVar[str] = "banded"

    pairs: int
    across: int
    segments: int
    rows: int

    def __str__(self) -> str:
        return f"{self.segments} times {self.rows} rows of {self.columns} with {self.channels} channels as bands"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return 2 * self.pairs

    @property
    def columns(self) -> int:
        return _OCTET * self.across

    @property
    def threads(self) -> int:
        return 32 * self.pairs

    def pixels(self, shape: Shape) -> int:
        """Of a row of the input, in all segments: as Banded has them."""
        return self.segments * (self.columns + _OCTET * (_reach(shape) - 1))

    @property
    def used(self) -> int:
        """Rows of a product that there are."""
        return self.across * self.segments

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has its segments, whatever `run` says."""
        shape = _apart(shape)
        groups = ceil(shape.batch * ceil(shape.out[0] / self.rows) / self.segments)
        return self.parts(shape) * ceil(shape.out[1] / self.columns) * groups

    def shared_bytes(self, shape: Shape) -> int:
        """Rows of the input, and two rows of sums on their way to memory."""
        plane = 32 * self.copies(shape) + (2 if self.pairs > _OCTET else 4)
        return self.pairs * (4 * _STAGES * plane + 16 * (_OCTET * self.used + 2))

    def copies(self, shape: Shape) -> int:
        """Of a thread, of a row of the input."""
        return ceil(self.pixels(shape) / 32)

    def stores(self, shape: Shape) -> int:
        """Of a thread, of a row of the output."""
        return ceil(_OCTET * self.used * self.channels / wide(shape.filters, self.channels) / self.threads)

    def registers(self, shape: Shape) -> int:
        """Of a thread: bands and sums of two channels, where copies come from and where stores go, and others."""
        of_row = 2 * (_reach(shape) + 4)
        return of_row * shape.kernel[0] + 2 * (self.copies(shape) + self.stores(shape)) + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if instruction(gpu) != _RUNS:
            return "multiplies 16 columns of the input at once, with instructions of depth 16"
        if shape.filters % 2:
            return "computes two channels a warp, which an odd number of them has not"
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if self.used > _RUNS:
            return Reason("a product has {} rows of eight positions, not {}", _RUNS, self.used)
        if (reason := refuse_held(self.registers(shape), _REGISTERS, self.threads, gpu)) is not None:
            return reason
        if (reason := _apart(shape).refuse_waste(self.rows, self.columns)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu, blocks = gpu_of(target), self.blocks(shape, run)
        shape = _apart(shape)
        high = shape.kernel[0]
        # Rows of zeros above whole images are left out.
        rows = self.rows + high - 1 - (shape.pads[0] if self.rows >= shape.out[0] else 0)
        clock = 128 / (target.rate("fp32") / 2 / gpu.sms)
        products = 2 * high * (1 if _reach(shape) == 2 else 1 + _HALF) * _PRODUCT / 4
        busy = rows * self.pairs * (_ROW + _COPY * self.copies(shape) + _SHARE * products) * clock
        read = 2 * rows * self.pixels(shape) * self.channels
        load = Load(self.threads, self.registers(shape), self.shared_bytes(shape), read, busy)
        busiest = ceil(blocks / gpu.sms)
        rounds = ceil(busiest / occupancy(load, gpu))
        computed = max(busiest * busy, rounds * rows * _WAIT * clock)
        return limited_by(shape, load, blocks, rounds * _BEGIN + computed, target)

    def sums(self, shape: Shape) -> Sums | None:
        """None: neighbouring positions of a channel lie in several threads."""
        return None

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::BandedTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 8, 7, 2, 56, 6, 8>`"""
        sizes = (self.pairs, self.across, self.segments, self.rows, _STAGES, wide(shape.filters, self.channels))
        return f"{SPACE}::BandedTile<{shape.window}, {', '.join(map(str, sizes))}{shape.element}>"


def _reach(shape: Shape) -> int:
    """Runs of eight neighbours that eight results are made of."""
    return (shape.kernel[1] + 14) // _OCTET


def _apart(shape: Shape) -> Shape:
    """The same over images apart, where windows have gaps: of every second row and column, for example."""
    if shape.dilation == (1, 1):
        return shape
    (high, wide), (rows, columns) = shape.dilation, shape.out
    return replace(
        shape, batch=shape.batch * high * wide, dilation=(1, 1), out=(ceil(rows / high), ceil(columns / wide)),
        extent=(ceil(shape.extent[0] / high), ceil(shape.extent[1] / wide)),
        pads=(shape.pads[0] // high, shape.pads[1] // wide),
    )  # fmt: skip


def tiles(shape: Shape) -> Iterator[BandedTile]:
    """The tiles that may be some for a problem."""
    shape = _apart(shape)
    found = dict.fromkeys(aligned(ceil(shape.filters / max(1, round(shape.filters / wanted)))) for wanted in _CHANNELS)
    if shape.kernel[0] > _MOST_ROWS:
        found[min(_CHANNELS)] = None
    octets = ceil(shape.out[1] / _OCTET)
    least = ceil(octets / _RUNS)
    widths = dict.fromkeys(ceil(octets / parts) for parts in (least, least + 1, 2 * least))
    heights = dict.fromkeys(ceil(shape.out[0] / parts) for parts in _ROWS)
    for channels, across, rows in product(found, widths, heights):
        together = _RUNS // across
        segments = shape.batch * ceil(shape.out[0] / rows)
        for count in dict.fromkeys((together, ceil(together / 2), ceil(together / 4), 1)):
            if count <= segments:
                yield BandedTile(channels // 2, across, count, rows)


def _serves(shape: Shape) -> bool:
    """One result a channel, and large windows side by side. Where they have gaps, images apart begin with a tap."""
    whole = all(pad % gap == 0 for pad, gap in zip(shape.pads, shape.dilation, strict=True))
    plain = shape.of_group == (1, 1) and shape.stride == (1, 1) and whole and _apart(shape).out[0] > 1
    fits = shape.kernel[0] <= _HIGHEST and shape.kernel[1] <= _WIDEST
    return plain and shape.taps >= _LEAST_TAPS and min(shape.kernel) > 1 and fits


KIND = Kind("banded", _serves, tiles, BandedTile.read, ("bolt_grouped/banded.h",))
