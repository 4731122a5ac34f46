"""Kernels for large windows over groups of channels on tensor cores that go down an image: the sums of all rows of the
output that a row of the input is part of are in registers, as weights are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.blocks import refuse_held, refuse_shared, refuse_threads
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Kind, Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.tensor_core import fragments, instruction, load_width, octets, unit, unit_count
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_OCTET, _POSITIONS = 8, 16
"""Channels and positions that an instruction has."""
_STAGES = 4
"""Rows of the input in shared memory, of which all but one are still being copied."""
_LEAST_ROWS = 4
"""Rows of a window from which on it pays to read a row of the input once."""
_MOST_OCTETS = 2
_OTHERS = 48
"""Registers of a thread beside its weights and sums. Not measured."""
_REGISTERS = 224
_THREADS = (64, 512)
# Fitted to 20 times of an H200.
_PRODUCT, _LOAD, _ROW = 8, 12, 120
"""Clocks of a scheduler for a product of 16 x 8 by 16, for the load of its left factor, and for what else a warp does
in a row: copies and stores."""
_WAIT = 900
"""Clocks from one row to the next where few warps share a multiprocessor. A guess."""
_BEGIN = 1.5e-6
"""Seconds until a block has its weights and its first rows. A guess."""


@dataclass(frozen=True)
class DownTile(Numbered):
    """`strips` times 16 positions of `units` units, a warp each for 8 results of one, of which a block computes `rows`
    rows one behind the other."""

    kind: ClassVar[str] = "down"

    units: int
    strips: int
    rows: int
    halves: ClassVar[tuple[DType, ...]] = HALVES

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.columns} of {self.units} units down an image"

    @property
    def columns(self) -> int:
        return _POSITIONS * self.strips

    def warps(self, shape: Shape) -> int:
        return self.units * _tiles(shape) * self.strips

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: an odd number of octets, so that eight neighbours lie in all banks."""
        count = self.units * octets(shape)
        return (count + (count + 1) % 2) * _OCTET

    def parts(self, shape: Shape) -> int:
        """Blocks beside each other along the channels."""
        return ceil(unit_count(shape) / self.units)

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has one run of rows, whatever `run` says."""
        return self.parts(shape) * shape.tiles(self.rows, self.columns)

    def shared_bytes(self, shape: Shape) -> int:
        """Rows of the input, and two rows of sums."""
        width = self.columns + shape.kernel[1] - 1 + shape.kernel[1] * octets(shape) % 2
        sums = self.units * _OCTET * _tiles(shape)
        ring = aligned(2 * _STAGES * width * self.pitch(shape), 16)
        return ring + 2 * 4 * self.columns * (sums + (_OCTET if sums % 16 == 0 else 0))

    def registers(self, shape: Shape) -> int:
        """Of a thread: its weights, the sums of all rows of the output that are under way, and others."""
        return shape.kernel[0] * (2 * _pairs(shape) + 4) + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if instruction(gpu) != 2 * _OCTET:
            return "multiplies two octets at once, with instructions of depth 16"
        threads = 32 * self.warps(shape)
        if (reason := refuse_threads(threads, *_THREADS)) is not None:
            return reason
        if (reason := refuse_held(self.registers(shape), _REGISTERS, threads, gpu)) is not None:
            return reason
        if self.units > unit_count(shape):
            return Reason("{} units are more than there are", self.units)
        if (reason := shape.refuse_waste(self.rows, self.columns, 3)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu = gpu_of(target)
        clock = 128 / (target.rate("fp32") / 2 / gpu.sms)  # seconds
        height, width = shape.halo(self.rows, self.columns)
        pairs, warps = _pairs(shape), self.warps(shape)
        row = pairs * (shape.kernel[0] * _PRODUCT + _LOAD) + _ROW
        busy = height * warps * row / 4 * clock
        read = height * width * self.units * 2 * unit(shape)[0]
        load = Load(32 * warps, self.registers(shape), self.shared_bytes(shape), read, busy)
        blocks = self.blocks(shape, run)
        busiest = ceil(blocks / gpu.sms)
        rounds = ceil(busiest / occupancy(load, gpu))
        alone = rounds * (_BEGIN + height * (_WAIT + row) * clock)
        return limited_by(shape, load, blocks, max(busiest * busy, alone), target)

    def sums(self, shape: Shape) -> Sums | None:
        """None: neighbouring positions of a channel lie in several threads."""
        return None

    def flops(self, shape: Shape) -> int:
        positions = shape.tiles(self.rows, self.columns) * self.rows * self.columns
        results = self.parts(shape) * self.units * _tiles(shape) * _OCTET
        return 2 * positions * results * shape.kernel[0] * _pairs(shape) * 2 * _OCTET

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        return fragments(shape, self.parts(shape) * self.units, _tiles(shape), gpu)

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::DownTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 8, 8, 4, 2, 28, 4, 40, 8, 8>`"""
        given, made = unit(shape)
        sizes = (given, made, self.units, self.strips, self.rows, _STAGES, self.pitch(shape))
        words = map(str, (*sizes, load_width(shape), wide(made, shape.filters)))
        return f"{SPACE}::DownTile<{shape.window}, {', '.join(words)}{shape.element}>"


def _tiles(shape: Shape) -> int:
    """Runs of eight results of a unit."""
    return ceil(unit(shape)[1] / _OCTET)


def _pairs(shape: Shape) -> int:
    """Pairs of octets of a row of the window."""
    return ceil(shape.kernel[1] * octets(shape) / 2)


_UNITS, _STRIPS, _ROWS = (4, 8, 2, 1), (1, 2, 4), (56, 28, 19, 14, 7)


def tiles(shape: Shape) -> Iterator[DownTile]:
    """The tiles that may be some for a problem."""
    heights = dict.fromkeys(min(rows, shape.out[0]) for rows in _ROWS)
    for units, strips, rows in product(_UNITS, _STRIPS, heights):
        yield DownTile(units, strips, rows)


def _serves(shape: Shape) -> bool:
    """Groups of several channels, and large windows side by side."""
    plain = shape.of_group[0] > 1 and shape.dilation == (1, 1) and shape.stride == (1, 1)
    return plain and shape.kernel[0] >= _LEAST_ROWS and octets(shape) <= _MOST_OCTETS and shape.out[0] > 1


KIND = Kind("down", _serves, tiles, DownTile.read, ("bolt_grouped/down.h",))
