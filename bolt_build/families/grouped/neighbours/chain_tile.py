"""Tiles of the kernels for a depthwise convolution and the product behind it: what is legal, and what it should take.

A depthwise convolution alone is bound by bytes, and a product behind it by the same bytes again. In one kernel what
lies between stays in registers. Both are computed on tensor cores: a tap of eight channels is a product with a diagonal
matrix, which wastes seven of eight multiplications, but needs no instruction for each number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, gcd
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Load, Sums, gpu_of, limited_by, occupancy
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

OCTET = 8
"""Positions beside each other, channels and results that an 8 x 8 matrix has."""
STEP = 16
"""Channels of a step of the depth."""
_SUMS = 160
"""Registers of a thread that sums of the product may take."""
MOST_REGISTERS = 240
"""Registers of a thread at most."""
_WARPS = (1, 16)
MULTIPLY = 4096
"""Operations of an instruction: 16 x 8 results of 16 channels."""
# Fitted to the times of 79 problems of an H200, of tuned networks and of others, and off by 14%; 40 others by 16%. What
# is predicted to be fastest takes 6% longer than the fastest tried, of both.
_EFFICIENCY = 0.45
"""Part of what tensor cores, shared memory and instructions give that these kernels reach, with one block on a
multiprocessor."""
_BESIDE = 0.12
"""The exponent with which it grows with the blocks beside each other: one multiplies while another waits."""
_CLOCKS = 2.4
"""Clocks of an instruction of a warp where nothing else keeps it waiting: few others are there to hide what it waits
for."""
_SLAB = 0.2e-6
"""Seconds in which the warps of a block wait for each other and for a slab of channels."""
_LOADS = 40e9
"""Bytes in a second that come from L2 to a multiprocessor."""
# The same where slabs of the input are copied, and no product makes them: fitted to 32 problems, off by 15%, and 18
# others by 17%.
_COPIED_EFFICIENCY = 0.45
_COPIED_BEGIN = 0.4e-6
"""Seconds until the first slab of blocks in turn is there."""
_COPIED_CLOCKS = 2.2
_COPIED_SLAB = 0.4e-6
_COPIED_LOADS = 69e9


@dataclass(frozen=True)
class ChainShape:
    """A depthwise convolution, whose bytes are those of the whole chain, and the `results` of the product behind it.

    Where there is a product in front of it, `given` are the channels that it reads and `before` counts operations a
    result behind its sum; 0 where there is none.
    """

    conv: Shape
    results: int
    given: int = 0
    before: int = 0

    @property
    def octets(self) -> int:
        """Runs of eight results."""
        return ceil(self.results / OCTET)


@dataclass(frozen=True)
class Busy:
    """Seconds of a multiprocessor's tensor cores, of its other instructions, and of its shared memory."""

    tensor: float
    others: float
    shared: float

    @classmethod
    def of(cls, gpu: Gpu, target: Target, multiplies: float, instructions: float, nbytes: float) -> Busy:
        """Products of 16 x 8 by 16, instructions of a thread, and bytes of shared memory."""
        tensor = multiplies * MULTIPLY / (target.rate("fp16") * gpu.warp_mma_share / gpu.sms)
        # A clock, a multiprocessor: 128 instructions of a thread, or as many bytes of shared memory.
        every_second = target.rate("fp32") / 2 / gpu.sms
        return cls(tensor, instructions / every_second, nbytes / every_second)

    def plus(self, other: Busy) -> Busy:
        return Busy(self.tensor + other.tensor, self.others + other.others, self.shared + other.shared)

    @property
    def longest(self) -> float:
        return max(self.tensor, self.others, self.shared)


def seconds_of(
    chain: ChainShape, load: Load, blocks: int, slabs: int, waits: int, instructions: float, target: Target
) -> float:
    """Predicted time of blocks that have so many slabs of channels one behind the other, and in each so many
    instructions of a warp. A product in front makes them, for which all warps wait so many times."""
    alone = waits * _SLAB + slabs * instructions * _CLOCKS / clocks_a_second(target) + load.read / _LOADS
    gpu = gpu_of(target)
    together = min(occupancy(load, gpu), ceil(blocks / gpu.sms))
    return _in_turn(chain, load, blocks, alone, _EFFICIENCY * together**_BESIDE, target)


def clocks_a_second(target: Target) -> float:
    """Of a multiprocessor."""
    return target.rate("fp32") / (128 * 2 * gpu_of(target).sms)


def _in_turn(chain: ChainShape, load: Load, blocks: int, alone: float, efficiency: float, target: Target) -> float:
    """Predicted time of blocks, of which one by itself takes `alone`."""
    gpu = gpu_of(target)
    busiest = ceil(blocks / gpu.sms)
    waits = ceil(busiest / occupancy(load, gpu)) * alone
    return limited_by(chain.conv, load, blocks, busiest * load.busy / efficiency, target, waits)


@dataclass(frozen=True)
class ChainTile(Numbered):
    """`rows` by `columns` positions, and of the results one of `parts`. A warp has 8 positions beside each other in
    twice `pairs` rows, and every `across`-th step of 16 channels of the depth. `stages` slabs of `slab` channels are in
    shared memory, of which all but one are still being copied."""

    kind: ClassVar[str] = "chain"

    rows: int
    columns: int
    pairs: int
    across: int
    slab: int
    stages: int
    parts: int

    @property
    def extent(self) -> tuple[int, ...]:
        """Of a block, and of its warps."""
        return (self.rows, self.columns, self.pairs, self.across)

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions, slabs of {self.slab} channels"

    @property
    def high(self) -> int:
        """Rows of a warp."""
        return 2 * self.pairs

    @property
    def strips(self) -> int:
        """Warps beside and below each other."""
        return self.rows // self.high * (self.columns // OCTET)

    @property
    def warps(self) -> int:
        return self.strips * self.across

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results of a block."""
        return ceil(chain.octets / self.parts)

    def slabs(self, chain: ChainShape) -> int:
        return ceil(chain.conv.channels / self.slab)

    def blocks(self, chain: ChainShape) -> int:
        return self.parts * chain.conv.tiles(self.rows, self.columns)

    def registers(self, chain: ChainShape) -> int:
        """Of a thread, about."""
        return 4 * self.pairs * self.n(chain) + 65 + 15 * self.pairs + 2 * chain.conv.kernel[0]

    def shared_bytes(self, chain: ChainShape) -> int:
        """Slabs with their weights, where sums lie afterwards."""
        shape = chain.conv
        height, width = stored(shape, self.rows, self.columns)
        pitch = self.slab + (0 if self.slab // OCTET % 2 else OCTET)
        taps = shape.kernel[1] * tall(shape)
        n = self.n(chain)
        stage = aligned(2 * height * width * pitch, 16) + self.slab * (2 * taps + 4 + 2 * OCTET * n)
        sums = 4 * self.across * self.rows * self.columns * (OCTET * n + (0 if n % 2 else OCTET))
        return max(self.stages * stage, sums)

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        if (reason := self.refuse_registers(chain, gpu)) is not None:
            return reason
        if self.stages == 1 and self.slabs(chain) > 1:
            return Reason("{} channels are several slabs of {}, which need two stages", chain.conv.channels, self.slab)
        return refuse_shared(self.shared_bytes(chain), gpu)

    def refuse_registers(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why its warps have no room for their sums, None where they have."""
        if not _WARPS[0] <= self.warps <= _WARPS[1]:
            return Reason("blocks have {} to {} warps, not {}", *_WARPS, self.warps)
        if (sums := 4 * self.pairs * self.n(chain)) > _SUMS:
            form = "sums of {} results take {} registers of a thread, over {} do not stay there"
            return Reason(form, OCTET * self.n(chain), sums, _SUMS)
        most = min(MOST_REGISTERS, gpu.registers // (32 * self.warps))
        if (registers := self.registers(chain)) > most:
            return Reason("takes {} registers of a thread, {} threads have {}", registers, 32 * self.warps, most)
        return None

    def instructions(self, chain: ChainShape) -> tuple[float, float, float]:
        """Of a warp's step: products of 16 x 8 by 16, other instructions, and bytes of shared memory."""
        shape, n = chain.conv, self.n(chain)
        down, beside_ = shape.kernel
        apart = shape.stride[0] if down == 1 else gcd(shape.stride[0], shape.dilation[0])
        lines = ((self.high - 1) * shape.stride[0] + (down - 1) * shape.dilation[0]) // apart + 1
        whole, half = 2 * self.pairs * beside_ * (down // 2) + self.pairs * n, 2 * self.pairs * beside_ * (down % 2)
        values = 8 * self.pairs
        others = (
            whole + half + beside_ * (ceil(lines / 2) + 2) + 2 * shape.taps + values * (shape.epilogue + 1) + n + 30
        )
        shared = beside_ * lines * 256 + 256 * n + 64 * shape.kernel[1] * tall(shape)
        return whole + half / 2, others, shared

    def busy(self, chain: ChainShape, target: Target) -> Busy:
        """What a block's depthwise results, their product and its store take."""
        gpu, steps = gpu_of(target), ceil(chain.conv.channels / STEP)
        multiplies, others, shared = self.instructions(chain)
        count, results = self.strips * steps, self.rows * self.columns * OCTET * self.n(chain)
        instructions = count * others * 32 + self._stored(chain)
        return Busy.of(gpu, target, count * multiplies, instructions, count * shared + 8 * self.across * results)

    def _stored(self, chain: ChainShape) -> int:
        """Instructions of threads that add up what warps have of the depth, and store it."""
        return self.rows * self.columns * OCTET * self.n(chain) * (2 * self.across + 6)

    def constant_bytes(self, chain: ChainShape) -> int:
        """Weights and biases that a block reads: those of both."""
        shape = chain.conv
        return shape.channels * (2 * shape.kernel[1] * tall(shape) + 4 + 2 * OCTET * self.n(chain))

    def sums(self, chain: ChainShape) -> Sums | None:
        """None: what its kernels leave is a product's, and no means."""
        return None

    def seconds(self, chain: ChainShape, target: Target) -> float:
        """Predicted time."""
        shape = chain.conv
        height, width = shape.halo(self.rows, self.columns)
        read, constants = 2 * height * width * aligned(shape.channels), self.constant_bytes(chain)
        copies = Busy.of(
            gpu_of(target), target, 0, 12 * read / (2 * wide(shape.channels)) + constants, read + constants
        )
        # Short runs of channels are more requests to L2.
        from_l2 = int(read * (1 + STEP / self.slab)) + constants
        busy = self.busy(chain, target).plus(copies).longest
        load = Load(32 * self.warps, self.registers(chain), self.shared_bytes(chain), from_l2, busy)
        slabs = self.slabs(chain)
        instructions = slabs * self.of_slab(chain) + 2 * self._stored(chain) / 32 / self.warps
        alone = _COPIED_BEGIN + slabs * _COPIED_SLAB + load.read / _COPIED_LOADS
        alone += instructions * _COPIED_CLOCKS / clocks_a_second(target)
        return _in_turn(chain, load, self.blocks(chain), alone, _COPIED_EFFICIENCY, target)

    def of_slab(self, chain: ChainShape) -> float:
        """Instructions of a warp for a slab."""
        multiplies, others, _ = self.instructions(chain)
        return ceil(self.slab // STEP / self.across) * (multiplies + others)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those with zeros included."""
        shape = chain.conv
        positions = shape.tiles(self.rows, self.columns) * self.rows * self.columns
        multiplies = self.instructions(chain)[0]
        return int(multiplies * MULTIPLY * ceil(shape.channels / STEP) * self.parts * positions // (OCTET * self.high))

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::ChainTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 8, 4, 2, 1, 48, 3, 3, 8, 8>`"""
        sizes = (self.rows, self.columns // OCTET, self.pairs, self.across, self.slab, self.stages, self.n(chain))
        widths = (wide(chain.conv.channels), wide(chain.results))
        words = ", ".join(map(str, (*sizes, *widths)))
        return f"{SPACE}::ChainTile<{chain.conv.window}, {words}{chain.conv.element}>"


def stored(shape: Shape, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a halo in shared memory: columns lie in as many runs of one length as windows step over."""
    height, width = shape.halo(rows, columns)
    return height, aligned(width, shape.stride[1])


def tall(shape: Shape) -> int:
    """Halves that a column of a window takes: as DepthwiseFactor reads them."""
    rows = shape.kernel[0]
    return 2 if rows <= 2 else 4 if rows <= 4 else aligned(rows)


_ROWS, _COLUMNS = (2, 4, 8, 14, 16), (8, 16, 32, 56)
_ACROSS, _STEPS, _STAGES = (1, 2, 3, 4, 8), (2, 3, 4, 6, 8), 3
"""A slab has two steps at least: memory gives 64 bytes of a pixel at once."""


def places(chain: ChainShape) -> Iterator[tuple[int, int, int, int]]:
    """Pairs of rows of a warp, rows, columns and warps across the depth that suit an image."""
    shape = chain.conv
    for pairs, rows, columns, across in product((2, 1), _ROWS, _COLUMNS, _ACROSS):
        fits = rows % (2 * pairs) == 0 and rows < shape.out[0] + 2 * pairs and columns < shape.out[1] + OCTET
        if fits and rows // (2 * pairs) * columns // OCTET * across <= _WARPS[1]:
            yield pairs, rows, columns, across


def parts_of(chain: ChainShape) -> tuple[int, ...]:
    """Blocks beside each other, each with some of the results: as few as registers allow, and twice as many."""
    least = ceil(4 * chain.octets / _SUMS)
    return tuple(parts for parts in (least, 2 * least) if parts <= chain.octets)


def chain_tiles(chain: ChainShape) -> Iterator[ChainTile]:
    """The tiles that may be some for two operators."""
    depth = aligned(chain.conv.channels, STEP)
    for pairs, rows, columns, across in places(chain):
        whole = aligned(depth, STEP * across)
        slabs = dict.fromkeys(min(STEP * steps, whole) for steps in _STEPS if steps % across == 0)
        for slab, parts in product(slabs, parts_of(chain)):
            stages = min(_STAGES, ceil(chain.conv.channels / slab))
            yield ChainTile(rows, columns, pairs, across, slab, stages, parts)
