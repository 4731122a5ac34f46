"""Kernels for filters of one channel each that go down an image: each row of the input is read and widened once for all
windows that it is part of, with their sums in registers."""

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
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.targets import Gpu, Target

_FLOATS = 80
"""Weights of a thread that it keeps as floats; more of them stay in half precision."""
_OTHERS = 35
"""Registers of a thread beside its weights and sums: what nvcc took for an H200."""
_REGISTERS = 200
"""Most registers of a thread: with more, some are spilled to memory."""
_THREADS = (64, 512)
_EFFICIENCY, _MANY_TAPS, _SEVEN = 0.36, 0.5, 0.85
"""Parts of the multiprocessor's instructions a second that these kernels reach, with windows of up to 9 elements and of
more; and what is left of them where a thread has seven positions. Fitted to 39 times of an H200, off by
16% on average."""
_ROW = 0.75e-6
"""Seconds from one row of the input to the next where nothing else keeps a multiprocessor busy: fitted to the same."""
_CHANNEL_BYTES = (64, 96, 128, 144, 288)
"""Bytes of a pixel that a block should have."""
_ROWS = (4, 28)
"""Fewest and most rows of the output that a block computes, where the image has as many."""


@dataclass(frozen=True)
class RowsTile(Numbered, Singles):
    """`columns` positions of `lanes` times `vector` channels, of which a block computes `rows` rows one behind the
    other; a thread has `each` positions of a row and `vector` channels. `stages` rows of the input are in shared
    memory, of which all but one are still being copied."""

    kind: ClassVar[str] = "rows"

    vector: int
    lanes: int
    columns: int
    each: int
    rows: int
    stages: int

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.columns} with {self.channels} channels"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def threads(self) -> int:
        return self.lanes * self.columns // self.each

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has one run of rows, whatever `run` says."""
        return self.parts(shape) * shape.tiles(self.rows, self.columns)

    def shared_bytes(self, shape: Shape) -> int:
        return 2 * self.stages * shape.halo(1, self.columns)[1] * aligned(self.channels)

    def registers(self, shape: Shape) -> int:
        """Of a thread: its weights, the sums of all rows of the output that are under way, and others."""
        weights = shape.taps * self.vector
        live = ceil(shape.kernel[0] / shape.stride[0])
        held = weights if weights <= _FLOATS else ceil(weights / 2)
        return held + live * self.each * self.vector + self.vector + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if (reason := refuse_held(self.registers(shape), _REGISTERS, self.threads, gpu)) is not None:
            return reason
        if (reason := shape.refuse_waste(self.rows, self.columns)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu = gpu_of(target)
        height, width = shape.halo(self.rows, self.columns)
        results = self.vector * self.each
        span = shape.halo(1, self.each)[1]
        weights = shape.taps * self.vector
        # Of a row of the input: conversions and loads, copies of the next one, the loop and its barrier.
        copies = 25 * width * self.channels / wide(shape.channels, self.channels) / self.threads
        of_input = span * (self.vector + 1) + copies + 25
        of_output = shape.taps * results + (shape.epilogue + 2) * results + (0 if weights <= _FLOATS else weights)
        busy = self.threads * (height * of_input + self.rows * of_output) / (target.rate("fp32") / 2 / gpu.sms)
        load = Load(
            self.threads, self.registers(shape), self.shared_bytes(shape), height * width * self.channels * 2, busy
        )
        blocks = self.blocks(shape, run)
        busiest, resident = ceil(blocks / gpu.sms), occupancy(load, gpu)
        rounds = ceil(busiest / resident)
        reached = (_EFFICIENCY if shape.taps <= 9 else _MANY_TAPS) * (_SEVEN if self.each == 7 else 1.0)
        computed = max(busiest * busy / reached, rounds * height * _ROW)
        return limited_by(shape, load, blocks, computed, target)

    def sums(self, shape: Shape) -> Sums:
        """Where rows of the input have lain before."""
        tiles = shape.tiles(self.rows, self.columns) // shape.batch
        return Sums.of_tiles(tiles, shape.batch * self.parts(shape), self.shared_bytes(shape))

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::RowsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 4, 36, 28, 4, 14, 4, 144, 8, 8>`"""
        load = wide(shape.channels, self.channels)
        sizes = (self.vector, self.lanes, self.columns, self.each, self.rows, self.stages, aligned(self.channels))
        words = map(str, (*sizes, load, wide(shape.filters)))
        return f"{SPACE}::RowsTile<{shape.window}, {', '.join(words)}{shape.element}>"


def _parts(extent: int, unit: int, most: int) -> tuple[int, ...]:
    """Equal parts of an extent, rounded up to whole units, of at most `most`."""
    found = (aligned(ceil(extent / parts), unit) for parts in (1, 2, 4, 8))
    return tuple(dict.fromkeys(part for part in found if part <= most))


def tiles(shape: Shape) -> Iterator[RowsTile]:
    """The tiles that may be some for a problem."""
    heights = [rows for rows in _parts(shape.out[0], 1, _ROWS[1]) if rows >= min(_ROWS[0], shape.out[0])]
    stages = 4 if shape.kernel[0] <= 3 and shape.stride[0] == 1 else 6
    if stages <= shape.stride[0]:
        return
    for vector, each in product((4, 2), (4, 2, 7)):
        lanes = dict.fromkeys(
            ceil(shape.filters / max(1, round(shape.filters * 2 / wanted)) / vector) for wanted in _CHANNEL_BYTES
        )
        for columns, rows, lane in product(_parts(shape.out[1], each, 128), heights, lanes):
            yield RowsTile(vector, lane, columns, each, rows, stages)


def _serves(shape: Shape) -> bool:
    """One result a channel, and windows of more rows than they step over."""
    plain = shape.of_group == (1, 1) and shape.dilation == (1, 1)
    return plain and shape.out[0] > 1 and shape.kernel[0] >= shape.stride[0]


KIND = Kind("rows", _serves, tiles, RowsTile.read)
