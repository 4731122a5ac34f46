"""Kernels for filters of one channel each over volumes: a block goes through the planes of its tile and reads each
once, while the next ones are copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, gcd

from bolt_build.families.common.blocks import refuse_held, refuse_shared, refuse_threads
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.grouped.kind import Kind, Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.kinds.singles import Singles, strip_pitch
from bolt_build.families.grouped.shape import SPACE, Depths, Shape, aligned, wide
from bolt_build.targets import Gpu, Target

_WHERE = {"registers": True, "shared": False}
_OTHERS = 40
"""Registers of a thread beside weights, sums and a row of the input."""
_REGISTERS = 224
"""Most registers of a thread: with more, some are spilled to memory."""
_THREADS = (32, 512)
_EFFICIENCY, _ALONE = 0.65, 0.32
"""Parts of the multiprocessor's instructions a second that these kernels reach, and that a warp of each scheduler
reaches by itself. Fitted, as what follows is, to 52 times of an H100, off by 16% on average."""
_LATE = 0.06
"""What instructions take longer where a plane is asked for when the one in front is computed, over the planes that have
room."""
_BEGIN, _PLANE = 2e-6, 0.35e-6
"""Seconds until a block's first plane and its weights are there, and of its wait for each plane."""
_CHANNELS = (16, 32, 64)
"""Channels that a block should have: whole sectors of memory."""
_EACH = (7, 4, 8, 2)
_STAGES = (3, 2, 4)
_POSITIONS = 256
"""Most positions of a tile."""


@dataclass(frozen=True)
class VolumeTile(Singles):
    """`down` rows of `across * each` positions of `lanes * vector` channels. A thread has `vector` channels of `each`
    neighbouring columns. `stages` planes of the input are in shared memory. `held`: weights are in registers."""

    vector: int
    lanes: int
    each: int
    across: int
    down: int
    stages: int
    held: bool

    @property
    def parameters(self) -> Named:
        names = ("vector", "lanes", "each", "across", "down", "stages")
        where = next(word for word, held in _WHERE.items() if held is self.held)
        return (("kind", "volume"), *((name, getattr(self, name)) for name in names), ("weights", where))

    @classmethod
    def read(cls, reader: Reader) -> VolumeTile:
        reader.word("kind", {"volume": "volume"})
        vector, lanes, each, across, down, stages = map(
            reader.number, ("vector", "lanes", "each", "across", "down", "stages")
        )
        return cls(vector, lanes, each, across, down, stages, reader.word("weights", _WHERE))

    def __str__(self) -> str:
        where = "registers" if self.held else "shared memory"
        return f"{self.down}x{self.across * self.each} with {self.channels} channels, weights in {where}"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of the output that a block has of a plane."""
        return self.down, self.across * self.each

    @property
    def threads(self) -> int:
        return self.lanes * self.across * self.down

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: neighbouring strips lie in different banks."""
        return strip_pitch(self.channels, self.each * shape.stride[1])

    def row_pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a row of the halo: what a warp reads at once lies in different banks."""
        row, step = shape.halo(*self.extent)[1] * self.pitch(shape), shape.stride[0]
        begins = [self._begins(thread, shape) for thread in range(32)]
        return min((row + more for more in range(0, _BANKS // 2, 8)), key=lambda row: (_ways(begins, row * step), row))

    def _begins(self, thread: int, shape: Shape) -> tuple[int, int]:
        """The line of a thread, and the bytes behind its begin."""
        lane, strip, line = (
            thread % self.lanes,
            thread // self.lanes % self.across,
            thread // (self.lanes * self.across),
        )
        return line, 2 * (strip * self.each * shape.stride[1] * self.pitch(shape) + lane * self.vector)

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has `run` planes of the output, as far apart as dilated windows leave them."""
        depths = depths_of(shape)
        between = apart(depths)
        return self.parts(shape) * shape.tiles(*self.extent) * ceil(depths.out / (run * between)) * between

    def shared_bytes(self, shape: Shape) -> int:
        """Halos of planes, and weights where they are not in registers."""
        weights = 0 if self.held else 4 * shape.taps * self.channels
        return 2 * self.stages * shape.halo(*self.extent)[0] * self.row_pitch(shape) + weights

    def registers(self, shape: Shape) -> int:
        """Of a thread: its weights, the sums of all planes that are under way, a row of the input, and others."""
        span = min(shape.halo(1, self.each)[1], shape.kernel[1] * self.each)
        weights = shape.taps if self.held else shape.kernel[1]
        return self.vector * (weights + (live(depths_of(shape)) + 1) * self.each + span) + _OTHERS

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if (reason := refuse_held(self.registers(shape), _REGISTERS, self.threads, gpu)) is not None:
            return reason
        if (reason := shape.refuse_waste(*self.extent)) is not None and self.extent != _LEAST:
            return reason
        return refuse_shared(self.shared_bytes(shape), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        gpu, depths = gpu_of(target), depths_of(shape)
        height, width = shape.halo(*self.extent)
        results = self.vector * self.each
        outs = min(run, ceil(depths.out / apart(depths)))
        planes = (outs - 1) * step(depths) + depths.kernel
        there = min(planes, ceil(depths.extent / depths.dilation))
        span = min(shape.halo(1, self.each)[1], shape.kernel[1] * self.each)
        # Of a plane: loads and conversions, conditions, the loop.
        of_plane = shape.kernel[0] * (span * (1 + self.vector) + 4 + live(depths)) + 60
        if not self.held:
            of_plane += live(depths) * (shape.kernel[0] * shape.kernel[1] + results)
        of_results = shape.taps * results + (shape.epilogue - 2) * results + 3 * self.each
        thread = there * of_plane + outs * of_results + shape.taps * (3 + self.vector) + 100
        copies = 20 * there * height * width * ceil(self.channels / wide(shape.channels, self.channels))
        warps = ceil(self.threads / 32)
        # A clock, a multiprocessor: 128 instructions of a thread.
        busy = (32 * warps * thread + copies) / (target.rate("fp32") / 2 / gpu.sms)
        read = 2 * there * height * width * self.channels
        load = Load(self.threads, self.registers(shape), self.shared_bytes(shape), read, busy)
        blocks = self.blocks(shape, run)
        busiest = ceil(blocks / gpu.sms)
        together = min(busiest, occupancy(load, gpu))
        full, left = divmod(busiest, together)
        computed = busy * sum(count / _reached(count * warps) for count in (*[together] * full, left) if count)
        computed *= 1 + _LATE / self.stages
        waits = ceil(busiest / together) * (_BEGIN + planes * _PLANE)
        return limited_by(shape, load, blocks, computed, target, waits)

    def sums(self, shape: Shape) -> Sums | None:
        """None: means of volumes are a step of their own."""
        return None

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::VolumeTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>,
        bolt::grouped::Depths<16, 16, 3, 1, 1, 1>, 2, 16, 7, 2, 7, 3, 32, 512, true, 8, 8>`"""
        depths = depths_of(shape)
        numbers = (depths.extent, depths.out, depths.kernel, depths.stride, depths.dilation, depths.pad)
        third = f"{SPACE}::Depths<{', '.join(map(str, numbers))}>"
        pitches = self.pitch(shape), self.row_pitch(shape)
        sizes = (self.vector, self.lanes, self.each, self.across, self.down, self.stages, *pitches)
        words = (
            *map(str, sizes),
            boolean(self.held),
            str(wide(shape.channels, self.channels)),
            str(wide(shape.filters)),
        )
        return f"{SPACE}::VolumeTile<{shape.window}, {third}, {', '.join(words)}{shape.element}>"


_BANKS = 128
"""Bytes that shared memory gives at once."""


def _ways(begins: list[tuple[int, int]], row: int) -> int:
    """Times that a bank is asked for different words by threads whose lines are `row` elements apart."""
    words = {(line * row * 2 + bytes_) // 4 for line, bytes_ in begins}
    counts = [0] * 32
    for word in words:
        counts[word % 32] += 1
    return max(counts)


_LEAST = (4, 4)
"""The tile that there is for any plane."""


def _reached(warps: int) -> float:
    """Part of the instructions a second that so many warps of a multiprocessor reach."""
    return min(_EFFICIENCY, _ALONE * warps / 4)


def depths_of(shape: Shape) -> Depths:
    """The third axis, which every problem of this kind has."""
    assert shape.depths is not None, "is asked about volumes alone"
    return shape.depths


def apart(depths: Depths) -> int:
    """Planes of the output from one that a block has to the next: their windows have the same planes of the input."""
    return depths.dilation // gcd(depths.dilation, depths.stride)


def step(depths: Depths) -> int:
    """Planes of the input, of those that a block reads, from a window to the next."""
    return depths.stride // gcd(depths.dilation, depths.stride)


def live(depths: Depths) -> int:
    """Planes of the output that a plane of the input is part of, at most."""
    return ceil(depths.kernel / step(depths))


def _parts(extent: int) -> tuple[int, ...]:
    """Equal parts of an extent: few large ones, and more that are smaller."""
    least = ceil(extent / 16)
    return tuple(dict.fromkeys(ceil(extent / parts) for parts in (least, least + 1, 2 * least, 4 * least)))


def tiles(shape: Shape) -> Iterator[VolumeTile]:
    """The tiles that may be some for a problem: weights are in registers where those are few."""
    found = dict.fromkeys(aligned(ceil(shape.filters / max(1, round(shape.filters / wanted)))) for wanted in _CHANNELS)
    seen = set[VolumeTile]()
    for vector, each, channels, stages in product((2, 4), _EACH, found, _STAGES):
        for columns, down in product((*_parts(shape.out[1]), _LEAST[1]), (*_parts(shape.out[0]), _LEAST[0])):
            across = ceil(columns / each)
            if down * across * each > _POSITIONS:
                continue
            for held in (True, False):
                tile = VolumeTile(vector, channels // vector, each, across, down, stages, held)
                if tile not in seen:
                    seen.add(tile)
                    yield tile


def _serves(shape: Shape) -> bool:
    """One result a channel, over volumes."""
    return shape.of_group == (1, 1) and shape.depths is not None


KIND = Kind("volume", _serves, tiles, VolumeTile.read, ("bolt_grouped/volume.h",))
