"""Kernels for large filters of one channel each on tensor cores: a tap of eight channels is a product with a diagonal
matrix, and the sums of all rows of the output that a row of the input is part of are in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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

_OCTET, _POSITIONS = 8, 16
"""Channels and positions that an instruction has."""
_STAGES = 6
"""Rows of the input in shared memory, of which all but one are still being copied."""
_LEAST_TAPS = 20
"""Taps below which memory takes longer than arithmetic, whatever unit does it."""
_OTHERS = 40
"""Registers of a thread beside its weights and sums. Not measured."""
_REGISTERS = 200
_THREADS = (64, 512)
_EFFICIENCY = 0.36
"""Part of the tensor cores' rate that one warp's instructions reach. Fitted to 20 times of an H200, off by 8% on
average."""
_ROW = 0.6e-6
"""Seconds from one row of the input to the next where nothing else keeps a multiprocessor busy: as in `rows.py`."""
_OCTETS, _STRIPS, _ROWS = (4, 2, 6), (2, 1, 4), (56, 28, 14, 7)


@dataclass(frozen=True)
class DiagonalTile(Numbered, Singles):
    """`strips` times 16 positions of `octets` times 8 channels, a warp each, of which a block computes `rows` rows one
    behind the other."""

    kind: ClassVar[str] = "diagonal"

    octets: int
    strips: int
    rows: int

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.columns} with {self.channels} channels on tensor cores"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return _OCTET * self.octets

    @property
    def columns(self) -> int:
        return _POSITIONS * self.strips

    @property
    def threads(self) -> int:
        return 32 * self.octets * self.strips

    @property
    def pitch(self) -> int:
        """Elements of shared memory for a pixel: an odd number of octets, so that eight neighbours lie in all banks."""
        return (self.octets + (self.octets + 1) % 2) * _OCTET

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has one run of rows, whatever `run` says."""
        return self.parts(shape) * shape.tiles(self.rows, self.columns)

    def shared_bytes(self, shape: Shape) -> int:
        return 2 * _STAGES * (self.columns + 2 * _pairs(shape) - 1) * self.pitch

    def registers(self, shape: Shape) -> int:
        """Of a thread: its weights, the sums of all rows of the output that are under way, and others."""
        return shape.kernel[0] * (2 * _pairs(shape) + 4) + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if instruction(gpu) != 2 * _OCTET:
            return "multiplies two taps at once, with instructions of depth 16"
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if (reason := refuse_held(self.registers(shape), _REGISTERS, self.threads, gpu)) is not None:
            return reason
        if self.channels >= 2 * aligned(shape.filters, _OCTET):
            return Reason("half of its channels would be beyond the {} of the convolution", shape.filters)
        if (reason := shape.refuse_waste(self.rows, self.columns, 3)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu = gpu_of(target)
        height, width = shape.halo(self.rows, self.columns)
        # Of a row of the input: an instruction for each row and pair of columns of taps.
        products = self.octets * self.strips * shape.kernel[0] * _pairs(shape) * 2 * _POSITIONS * _OCTET * 2 * _OCTET
        busy = height * products / (_EFFICIENCY * target.rate("fp16") / gpu.sms)
        load = Load(
            self.threads, self.registers(shape), self.shared_bytes(shape), height * width * self.channels * 2, busy
        )
        blocks = self.blocks(shape, run)
        busiest = ceil(blocks / gpu.sms)
        rounds = ceil(busiest / occupancy(load, gpu))
        return limited_by(shape, load, blocks, max(busiest * busy, rounds * height * _ROW), target)

    def sums(self, shape: Shape) -> Sums | None:
        """None: neighbouring positions of a channel lie in several threads."""
        return None

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::DiagonalTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 4, 2, 14, 6, 40, 8, 8>`"""
        load = wide(shape.channels, self.channels)
        words = map(str, (self.octets, self.strips, self.rows, _STAGES, self.pitch, load, wide(shape.filters)))
        return f"{SPACE}::DiagonalTile<{shape.window}, {', '.join(words)}{shape.element}>"


def _pairs(shape: Shape) -> int:
    """Pairs of neighbouring taps of a row."""
    return ceil(shape.kernel[1] / 2)


def tiles(shape: Shape) -> Iterator[DiagonalTile]:
    """The tiles that may be some for a problem."""
    heights = dict.fromkeys(min(rows, shape.out[0]) for rows in _ROWS)
    for octets, strips, rows in product(_OCTETS, _STRIPS, heights):
        yield DiagonalTile(octets, strips, rows)


def _serves(shape: Shape) -> bool:
    """One result a channel, and large windows side by side."""
    plain = shape.of_group == (1, 1) and shape.dilation == (1, 1) and shape.stride == (1, 1)
    return plain and shape.taps >= _LEAST_TAPS and shape.out[0] > 1 and min(shape.kernel) > 1


KIND = Kind("diagonal", _serves, tiles, DiagonalTile.read)
