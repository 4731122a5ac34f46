"""Kernels for filters of one channel each: bound by bytes, arithmetic on the CUDA cores in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, gcd
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.blocks import refuse_shared, refuse_threads
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.grouped.kind import Kind, Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.singles import strip_pitch
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, planes, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WHERE = {"registers": True, "shared": False}
_FLOATS = 80
"""Weights of a thread that it keeps as floats; more of them stay in half precision."""
_HELD = 64
"""Registers of a thread that weights may take."""
_UNROLLED = 800
"""Multiplications of a thread and tile that are written out: with more, instructions are what a kernel waits for."""
_THREADS = (64, 512)
_EFFICIENCY, _HALF = 0.7, 3.0
"""Part of the multiprocessor's instructions a second that these kernels come near with many warps, and the warps of a
multiprocessor that reach half of it: a warp waits for shared memory and for its own sums. Fitted, as those below, to
the times of 65 problems of an H200, off by 20% on average, and by 17% over 26 others."""
_BEGIN, _TILE = 0.5e-6, 0.03e-6
"""Seconds until blocks in turn have their first halo and weights, and those of each tile beside what is computed."""
_ALONE = 1.5
"""Clocks from an instruction of a thread to its next: few warps are as slow as each of them, so that threads of fewer
results take less where images are few."""
_COPY, _THREAD = 37, 170
"""Instructions of a copy of a halo's part, and of a thread for its place, its loop and its barriers."""


@dataclass(frozen=True)
class DepthwiseTile:
    """`rows` by `columns` positions of `lanes` times `vector` results; a thread has `each` positions of a row and
    `vector` results. `held`: weights are in registers, else in shared memory."""

    vector: int
    lanes: int
    rows: int
    columns: int
    each: int
    held: bool
    halves: ClassVar[tuple[DType, ...]] = HALVES

    @property
    def parameters(self) -> Named:
        where = next(word for word, held in _WHERE.items() if held is self.held)
        sizes = (("vector", self.vector), ("lanes", self.lanes), ("rows", self.rows), ("columns", self.columns))
        return (("kind", "depthwise"), *sizes, ("each", self.each), ("weights", where))

    @classmethod
    def read(cls, reader: Reader) -> DepthwiseTile:
        reader.word("kind", {"depthwise": "depthwise"})
        vector, lanes, rows, columns, each = map(reader.number, ("vector", "lanes", "rows", "columns", "each"))
        return cls(vector, lanes, rows, columns, each, reader.word("weights", _WHERE))

    def __str__(self) -> str:
        where = "registers" if self.held else "shared memory"
        return f"{self.rows}x{self.columns} of {self.outputs} results, weights in {where}"

    @property
    def outputs(self) -> int:
        """Results of a block at a position."""
        return self.lanes * self.vector

    @property
    def threads(self) -> int:
        return self.lanes * self.rows * self.columns // self.each

    def inputs(self, shape: Shape) -> int:
        """Channels of a block."""
        return self.outputs // shape.of_group[1]

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: neighbouring strips lie in different banks."""
        return strip_pitch(self.inputs(shape), self.each * shape.stride[1])

    def parts(self, shape: Shape) -> int:
        """Blocks beside each other along the channels."""
        return ceil(shape.filters / self.outputs)

    def blocks(self, shape: Shape, run: int) -> int:
        return self.parts(shape) * ceil(shape.tiles(self.rows, self.columns) / run)

    def shared_bytes(self, shape: Shape) -> int:
        """Two halos, and weights where they are not in registers."""
        height, width = shape.halo(self.rows, self.columns)
        weights = 0 if self.held else aligned(shape.taps * self.outputs)
        return 2 * (2 * height * width * self.pitch(shape) + weights)

    def _weight_registers(self, shape: Shape) -> int:
        weights = shape.taps * self.vector
        return weights if weights <= _FLOATS else weights // 2

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if self.outputs % shape.of_group[1]:
            return Reason("{} results are no whole groups of {}", self.outputs, shape.of_group[1])
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if self.held and shape.taps * self.vector > _FLOATS and self._weight_registers(shape) > _HELD:
            registers = self._weight_registers(shape)
            return Reason("weights would take {} registers of a thread, at most {} are kept there", registers, _HELD)
        if self.held and shape.taps * self.vector * self.each > _UNROLLED:
            count = shape.taps * self.vector * self.each
            return Reason("{} multiplications of a thread would be unrolled, at most {} are", count, _UNROLLED)
        if (reason := shape.refuse_waste(self.rows, self.columns)) is not None and (
            self.rows,
            self.columns,
        ) != min_extent(shape):
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        height, width = shape.halo(self.rows, self.columns)
        results = self.vector * self.each
        columns = shape.kernel[1] * self.each
        if self.held:
            columns = min(columns, shape.halo(1, self.each)[1])
        loads = shape.kernel[0] * columns
        converted = loads * self.vector + (0 if shape.taps * self.vector <= _FLOATS else shape.taps * self.vector)
        if not self.held:
            loads, converted = loads + shape.taps, converted + shape.taps * self.vector
        read = height * width * self.inputs(shape) * 2
        constants = shape.taps * (2 + self.vector) / run
        copies = _COPY * read / (2 * wide(shape.channels, self.inputs(shape))) / self.threads
        others = 2 * loads + (shape.epilogue + 2) * results + copies + constants + _THREAD
        thread = shape.taps * results + converted + others
        # A clock, a multiprocessor: 128 instructions of a thread, or as many bytes of shared memory.
        warps, gpu = ceil(self.threads / 32), gpu_of(target)
        from_shared = loads * self.vector * 2 * self.threads
        every_second = target.rate("fp32") / 2 / gpu.sms
        registers = 40 + (self._weight_registers(shape) if self.held else self.vector) + results + 2 * self.vector
        load = Load(self.threads, registers, self.shared_bytes(shape), read * run, 0.0)
        blocks = self.blocks(shape, run)
        busiest, resident = ceil(blocks / gpu.sms), occupancy(load, gpu)
        together = min(busiest, resident) * warps
        reached = _EFFICIENCY * together / (together + _HALF)
        busy = max(32 * warps * thread / reached, from_shared) / every_second
        alone = _ALONE * thread * 128 / every_second
        waits = ceil(busiest / resident) * (_BEGIN + run * (_TILE + alone))
        return limited_by(shape, load, blocks, busiest * run * busy, target, waits, OVERLAPPED)

    def sums(self, shape: Shape) -> Sums:
        """A float of each thread's results."""
        shared = self.shared_bytes(shape) + 4 * self.threads * self.vector
        tiles = shape.tiles(self.rows, self.columns) // shape.batch
        return Sums.of_tiles(tiles, shape.batch * self.parts(shape), shared)

    def flops(self, shape: Shape) -> int:
        return shape.flops_of_singles

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        return planes(shape, self.parts(shape) * self.outputs)

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::DepthwiseTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 1, 4, 16, 8, 8, 2, 64, true, 8, 8>`"""
        load = wide(shape.channels, self.inputs(shape))
        sizes = (shape.of_group[1], self.vector, self.lanes, self.rows, self.columns, self.each, self.pitch(shape))
        words = (shape.window, *map(str, sizes), boolean(self.held), str(load), str(wide(shape.filters)))
        return f"{SPACE}::DepthwiseTile<{', '.join(words)}{shape.element}>"


def min_extent(shape: Shape) -> tuple[int, int]:
    """The tile that there is for any image."""
    return (1, 32) if shape.out[0] == 1 else (4, 4)


_EXTENTS = ((4, 4), (7, 7), (8, 8), (4, 8), (8, 16), (4, 16), (2, 16), (7, 14), (4, 14), (2, 28), (4, 28))
_LINES = ((1, 16), (1, 32), (1, 64), (1, 128))
_CHANNEL_BYTES = (64, 128, 256)
"""Bytes of a pixel that a block should have: whole sectors and lines of memory."""


def _lanes(shape: Shape, vector: int) -> tuple[int, ...]:
    """Numbers of lanes whose blocks divide the channels evenly, or nearly so, in whole groups."""
    found = []
    each = shape.of_group[1] // gcd(shape.of_group[1], vector)
    for wanted in _CHANNEL_BYTES:
        parts = max(1, round(shape.filters * 2 / wanted))
        found.append(aligned(ceil(shape.filters / parts / vector), each))
    return tuple(dict.fromkeys(found))


def tiles(shape: Shape) -> Iterator[DepthwiseTile]:
    """The tiles that may be some for a problem. Weights are in shared memory where registers have no room."""
    for vector, (rows, columns), each in product((8, 4, 2), _LINES if shape.out[0] == 1 else _EXTENTS, (1, 2, 4)):
        if columns % each == 0:
            held = shape.taps * vector <= 2 * _HELD
            for lanes in _lanes(shape, vector):
                yield DepthwiseTile(vector, lanes, rows, columns, each, held)


def _serves(shape: Shape) -> bool:
    return shape.of_group[0] == 1


KIND = Kind("depthwise", _serves, tiles, DepthwiseTile.read)
