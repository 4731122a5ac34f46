"""Kernels for filters of one channel each whose windows slide down an image: the whole halo of a block lies in shared
memory, and each thread goes down its columns without waiting for others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, gcd, prod
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_held, refuse_shared, refuse_threads
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Kind, Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.singles import Singles, strip_pitch
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_OTHERS = 22
"""Registers of a thread beside weights, sums and a row of the input: what nvcc took for an H200, at most."""
_REGISTERS = 224
"""Most registers of a thread: with more, some are spilled to memory."""
_THREADS = (64, 512)
_EFFICIENCY = 0.8
"""Part of the multiprocessor's instructions a second that these kernels reach: fitted to 52 times of an H200."""
_ALONE = 0.26
"""The part that a warp of each scheduler reaches by itself: likewise."""
_CHANNELS = (16, 32, 64, 96)
"""Channels that a block should have: whole sectors of memory."""
_EACH = (7, 4, 5, 2)
_DOWN = (1, 2, 4)
_COLUMNS, _ROWS = 64, 32
"""Most columns and rows of a block."""
_SMALL = 100
"""Positions of an image below which a block may have several images."""


@dataclass(frozen=True)
class SlidingTile(Numbered, Singles):
    """`images` images of `down * rows` by `across * each` positions of `lanes * vector` channels. A thread has `vector`
    channels of `each` neighbouring columns, and goes down `rows` rows of them."""

    kind: ClassVar[str] = "sliding"

    vector: int
    lanes: int
    each: int
    across: int
    rows: int
    down: int
    images: int

    def __str__(self) -> str:
        height, width = self.extent
        several = f"{self.images} images of " if self.images > 1 else ""
        return f"{several}{height}x{width} with {self.channels} channels, {self.rows} rows a thread"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of the output that a block has of an image."""
        return self.down * self.rows, self.across * self.each

    @property
    def threads(self) -> int:
        return self.lanes * self.across * self.down * self.images

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: neighbouring strips lie in different banks."""
        return strip_pitch(self.channels, self.each * shape.stride[1])

    def tiles(self, shape: Shape) -> int:
        """Tiles of an image."""
        return shape.tiles(*self.extent) // shape.batch

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has its tile, whatever `run` says."""
        return self.parts(shape) * self.tiles(shape) * ceil(shape.batch / self.images)

    def shared_bytes(self, shape: Shape) -> int:
        """Halos, and in their place the sums of threads."""
        height, width = shape.halo(*self.extent)
        return max(2 * self.images * height * width * self.pitch(shape), 4 * self.threads * self.vector)

    def registers(self, shape: Shape) -> int:
        """Of a thread: its weights, the sums of all rows of the output that are under way, a row of the input, and
        others."""
        span = min(shape.halo(1, self.each)[1], shape.kernel[1] * self.each)
        return self.vector * (shape.taps + live(shape) * self.each + span) + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if self.down % spread(shape):
            return Reason(
                "rows of the output that share rows of the input lie {} apart, {} threads below each other are no "
                "multiple", spread(shape), self.down,
            )  # fmt: skip
        if (reason := refuse_held(self.registers(shape), _REGISTERS, self.threads, gpu)) is not None:
            return reason
        if (reason := shape.refuse_waste(*self.extent)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu = gpu_of(target)
        height, width = shape.halo(*self.extent)
        results = self.vector * self.each
        step, span = stepped(shape), min(shape.halo(1, self.each)[1], shape.kernel[1] * self.each)
        # Of a row of the output that a thread goes down: loads and conversions, conditions, the loop.
        of_row = step * (span * (1 + self.vector) + 22) + 5 * live(shape)
        of_results = shape.taps * results + (shape.epilogue - 2) * results + 2 * self.each
        constants = shape.taps * (3 + self.vector) + 80
        thread = (self.rows + live(shape) - 1) * of_row + self.rows * of_results + constants
        copies = 20 * self.images * height * width * ceil(self.channels / wide(shape.channels, self.channels))
        warps = ceil(self.threads / 32)
        # A clock, a multiprocessor: 128 instructions of a thread.
        busy = (32 * warps * thread + copies) / (target.rate("fp32") / 2 / gpu.sms)
        read = 2 * self.images * height * width * self.channels
        load = Load(self.threads, self.registers(shape), self.shared_bytes(shape), read, busy)
        blocks = self.blocks(shape, run)
        busiest = ceil(blocks / gpu.sms)
        together = min(busiest, occupancy(load, gpu))
        # Full rounds of blocks, and a last one of fewer warps, which keep a multiprocessor less busy.
        full, left = divmod(busiest, together)
        computed = busy * sum(count / _reached(count * warps) for count in (*[together] * full, left) if count)
        # Nothing is computed until the first blocks have their halos, or the first part of them.
        first = min(blocks, together * gpu.sms) * read / target.bandwidth * (0.5 if self.down == 1 else 1.0)
        rest = limited_by(shape, load, blocks, computed, target)
        return min(first, shape.input_bytes / target.bandwidth) + rest

    def sums(self, shape: Shape) -> Sums:
        """Where the input has lain before."""
        counters = ceil(shape.batch / self.images) * self.parts(shape)
        return Sums.of_tiles(self.tiles(shape), counters, self.shared_bytes(shape))

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::SlidingTile<bolt::grouped::Window<5, 5, 1, 1, 1, 1>, 2, 16, 7, 2, 4, 4, 1, 32, 8, 8>`"""
        load = wide(shape.channels, self.channels)
        sizes = (self.vector, self.lanes, self.each, self.across, self.rows, self.down, self.images, self.pitch(shape))
        words = map(str, (*sizes, load, wide(shape.filters)))
        return f"{SPACE}::SlidingTile<{shape.window}, {', '.join(words)}{shape.element}>"


def _reached(warps: int) -> float:
    """Part of the instructions a second that so many warps of a multiprocessor reach."""
    return min(_EFFICIENCY, _ALONE * warps / 4)


def spread(shape: Shape) -> int:
    """Rows of the output from one that a thread has to the next: their windows have the same rows of the input."""
    return shape.dilation[0] // gcd(shape.dilation[0], shape.stride[0])


def stepped(shape: Shape) -> int:
    """Rows of the input, of those that a thread reads, from a window to the next."""
    return shape.stride[0] // gcd(shape.dilation[0], shape.stride[0])


def live(shape: Shape) -> int:
    """Rows of the output that a row of the input is part of, at most."""
    return ceil(shape.kernel[0] / stepped(shape))


def _parts(extent: int, most: int) -> tuple[int, ...]:
    """Equal parts of an extent, of at most `most`: few large ones, and more that are smaller."""
    least = ceil(extent / most)
    found = (ceil(extent / parts) for parts in (least, least + 1, 2 * least, 4 * least))
    return tuple(dict.fromkeys(found))


def tiles(shape: Shape) -> Iterator[SlidingTile]:
    """The tiles that may be some for a problem."""
    found = dict.fromkeys(aligned(ceil(shape.filters / max(1, round(shape.filters / wanted)))) for wanted in _CHANNELS)
    counts = (1, 2, 4) if prod(shape.out) <= _SMALL else (1,)
    seen = set[SlidingTile]()
    for vector, each, channels in product((2, 4), _EACH, found):
        for columns, height, down in product(_parts(shape.out[1], _COLUMNS), _parts(shape.out[0], _ROWS), _DOWN):
            across, below = ceil(columns / each), spread(shape) * down
            for images in counts:
                if images <= shape.batch:
                    tile = SlidingTile(vector, channels // vector, each, across, ceil(height / below), below, images)
                    if tile not in seen:
                        seen.add(tile)
                        yield tile


def _serves(shape: Shape) -> bool:
    """One result a channel, in images."""
    return shape.of_group == (1, 1) and shape.out[0] > 1


KIND = Kind("sliding", _serves, tiles, SlidingTile.read, ("bolt_grouped/sliding.h",))
