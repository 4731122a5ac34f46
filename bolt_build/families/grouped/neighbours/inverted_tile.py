"""Tiles of the kernels for an inverted residual: a product, the depthwise convolution of what it leaves, and a product
of that; or for the first two of them. The widest tensors lie between, and stay in shared memory and registers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import ceil
from typing import ClassVar, Self

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.grouped.kind import Load, Sums, gpu_of
from bolt_build.families.grouped.neighbours.chain_tile import (
    MOST_REGISTERS,
    MULTIPLY,
    OCTET,
    STEP,
    Busy,
    ChainShape,
    ChainTile,
    parts_of,
    places,
    seconds_of,
    stored,
    tall,
)
from bolt_build.families.grouped.shape import SPACE, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

HALOS = 2
"""Slabs of the halo of a tile that does not say how many."""


@dataclass(frozen=True)
class Held:
    """Halos and constants of slabs in shared memory, as kernels have them, and what tiles in C++ call that."""

    cxx: int
    halos: int
    constants: int


@dataclass(frozen=True)
class SlabTile:
    """Positions of a block, warps along them and across the results, and the channels of a slab between; a block has
    one of `parts` of the channels. Of `halos` in shared memory one is expanded while the other is convolved; one alone
    takes less of it, so that more blocks are beside each other, which do both at once. `kind` is what candidates call
    it."""

    rows: int
    columns: int
    pairs: int
    across: int
    slab: int
    parts: int
    halos: int = HALOS

    kind: ClassVar[str]

    @property
    def parameters(self) -> Named:
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        return (("kind", self.kind), *(pair for pair in named if pair != ("halos", HALOS)))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Raises ValueError."""
        reader.word("kind", {cls.kind: cls.kind})
        return cls(*(reader.number(each.name, HALOS if each.name == "halos" else None) for each in fields(cls)))

    @property
    def extent(self) -> tuple[int, ...]:
        """Of a block, and of its warps."""
        return (self.rows, self.columns, self.pairs, self.across)

    def held(self, slabs: int) -> Held:
        """What of so many slabs of a block lies in shared memory."""
        if slabs == 1:
            return Held(1, 1, 1)
        return Held(0, 1, 2) if self.halos == 1 else Held(2, 2, 3)


@dataclass(frozen=True)
class InvertedTile(SlabTile):
    """The same of a chain with a product in front, which makes each slab of the halo in shared memory from all channels
    that it reads: while one slab is expanded, the one in front of it is convolved."""

    kind: ClassVar[str] = "inverted"

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions, slabs of {self.slab} channels between"

    @cached_property
    def behind(self) -> ChainTile:
        """What follows the first product, as a tile."""
        return ChainTile(self.rows, self.columns, self.pairs, self.across, self.slab, 2, self.parts)

    def _pixels(self, chain: ChainShape) -> int:
        height, width = stored(chain.conv, self.rows, self.columns)
        return height * width

    def slabs(self, chain: ChainShape) -> int:
        """Of a block."""
        return ceil(chain.conv.channels / self.slab)

    def slab_bytes(self, chain: ChainShape, slabs: int) -> int:
        """Shared memory for the channels given, slabs of the halo and constants, and pixels inside."""
        shape, tile = chain.conv, self.behind
        depth, n = aligned(chain.given, STEP), tile.n(chain)
        pitch = self.slab + (0 if self.slab // OCTET % 2 else OCTET)
        pixels = self._pixels(chain)
        given = pixels * (depth + (0 if depth // OCTET % 2 else OCTET))
        held = self.held(slabs)
        halos = 2 * (given + held.halos * aligned(pixels) * pitch)
        constants = self.slab * (2 * depth + 8 + 2 * shape.kernel[1] * tall(shape) + 2 * OCTET * n)
        return halos + held.constants * constants + 32 * ceil(pixels / 32)

    def shared_bytes(self, chain: ChainShape) -> int:
        """The same; or sums, which lie there afterwards."""
        n = self.n(chain)
        sums = 4 * self.across * self.rows * self.columns * (OCTET * n + (0 if n % 2 else OCTET))
        return max(self.slab_bytes(chain, self.slabs(chain)), sums)

    def refuse_registers(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why its warps have no room for their sums, None where they have."""
        if (reason := self.behind.refuse_registers(chain, gpu)) is not None:
            return reason
        registers = 4 * self.behind.pairs * self.behind.n(chain) + self.slab + 60
        threads = 32 * self.behind.warps
        most = min(MOST_REGISTERS, gpu.registers // threads)
        if registers > most:
            form = "sums of both products take {} registers of a thread, {} threads have {}"
            return Reason(form, registers, threads, most)
        return None

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes all three on this GPU, None where one does."""
        if (reason := self.refuse_registers(chain, gpu)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(chain), gpu)

    def _expands(self, chain: ChainShape, target: Target) -> Busy:
        """What a block's first product takes: pixels of the halo, 32 at once."""
        runs, depths = ceil(self._pixels(chain) / 32), ceil(chain.given / STEP)
        slabs, octets = ceil(chain.conv.channels / self.slab), self.slab // OCTET
        multiplies = runs * slabs * depths * 2 * octets
        instructions = self._of_run(chain)
        shared = depths * (1024 + 256 * octets) + 1024 * octets
        return Busy.of(gpu_of(target), target, multiplies, runs * slabs * instructions * 32, runs * slabs * shared)

    def _of_run(self, chain: ChainShape) -> float:
        """Instructions of a warp that expands 32 pixels of a slab."""
        octets = self.slab // OCTET
        return ceil(chain.given / STEP) * (2 + 3 * octets) + octets * 8 * (chain.before + 1.5) + 30

    def sums(self, chain: ChainShape) -> Sums | None:
        """None: what its kernels leave is a product's, and no means."""
        return None

    def seconds(self, chain: ChainShape, target: Target) -> float:
        """Predicted time."""
        return self.seconds_of_blocks(chain, chain, self.shared_bytes(chain), target)

    def seconds_of_blocks(self, chain: ChainShape, part: ChainShape, shared: int, target: Target) -> float:
        """Predicted time of blocks of so much shared memory, each of which computes the chain as `part` has it."""
        shape, tile, gpu = part.conv, self.behind, gpu_of(target)
        constants = tile.constant_bytes(part) + shape.channels * (2 * aligned(chain.given, STEP) + 4)
        read = 2 * self._pixels(chain) * aligned(chain.given)
        copies = Busy.of(gpu, target, 0, 12 * read / (2 * wide(chain.given)) + constants, read + constants)
        busy = tile.busy(part, target).plus(self._expands(part, target)).plus(copies).longest
        load = Load(32 * tile.warps, tile.registers(chain), shared, read + constants, busy)
        slabs, runs = ceil(shape.channels / self.slab), ceil(ceil(self._pixels(chain) / 32) / tile.warps)
        instructions = tile.of_slab(part) + runs * self._of_run(part)
        # The first slab is waited for alone, or every one twice: until it is expanded, and until it is convolved.
        waits = slabs + 1 if slabs == 1 or self.halos == HALOS else 2 * slabs
        return seconds_of(chain, load, tile.blocks(chain), slabs, waits, instructions, target)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those with zeros and those on the halo included."""
        multiplies = ceil(self._pixels(chain) / 32) * 2 * ceil(chain.given / STEP) * ceil(chain.conv.channels / OCTET)
        return self.behind.flops(chain) + multiplies * MULTIPLY * self.behind.blocks(chain)

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::InvertedTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 32, 8, 2, 2, 3, 48, 2, 3, 8, 8>`"""
        tile, depth = self.behind, aligned(chain.given, STEP)
        sizes = (depth, self.rows, self.columns // OCTET, self.pairs, self.across, self.slab)
        others = (self.held(self.slabs(chain)).cxx, tile.n(chain), wide(chain.given), wide(chain.results))
        words = ", ".join(map(str, (*sizes, *others)))
        return f"{SPACE}::InvertedTile<{chain.conv.window}, {words}{chain.conv.element}>"

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results of a block."""
        return self.behind.n(chain)


@dataclass(frozen=True)
class ExpandedTile(SlabTile):
    """The same without the product behind: a block has one of `parts` of the channels, which it stores."""

    kind: ClassVar[str] = "expanded"

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions, slabs of {self.slab} channels that are stored"

    @cached_property
    def front(self) -> InvertedTile:
        """What expands the halo, as a tile; sums of no product are behind it."""
        return InvertedTile(self.rows, self.columns, self.pairs, self.across, self.slab, self.parts, self.halos)

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results of a product behind: none."""
        return 0

    def _slabs(self, chain: ChainShape) -> int:
        """Of a block."""
        return ceil(ceil(chain.conv.channels / self.slab) / self.parts)

    def shared_bytes(self, chain: ChainShape) -> int:
        """As of an inverted residual without sums, and what warps store."""
        return self.front.slab_bytes(chain, self._slabs(chain)) + 32 * self.pairs * 24 * self.front.behind.warps

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        if (reason := self.front.refuse_registers(chain, gpu)) is not None:
            return reason
        if self.parts > 1 and self._slabs(chain) * (self.parts - 1) >= ceil(chain.conv.channels / self.slab):
            return Reason("{} channels leave some of {} blocks without any", chain.conv.channels, self.parts)
        return refuse_shared(self.shared_bytes(chain), gpu)

    def seconds(self, chain: ChainShape, target: Target) -> float:
        """Predicted time."""
        # Each of the blocks beside each other has its part of the channels.
        channels = min(chain.conv.channels, self._slabs(chain) * self.slab)
        return self.front.seconds_of_blocks(chain, _part(chain, channels), self.shared_bytes(chain), target)

    def sums(self, chain: ChainShape) -> Sums:
        """Of each warp's positions, from its registers. Where blocks add them up, those of all their channels stay."""
        tiles = chain.conv.tiles(self.rows, self.columns) // chain.conv.batch
        strips, shared = self.front.behind.strips, self.shared_bytes(chain)
        kept = shared + 4 * strips * self._slabs(chain) * self.slab
        return Sums(tiles * strips, shared, tiles, chain.conv.batch * self.parts, kept)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those with zeros and those on the halo included."""
        return self.front.flops(replace(chain, results=0))

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::ExpandedTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 32, 8, 2, 2, 3, 48, 2, 8, 8>`"""
        depth = aligned(chain.given, STEP)
        sizes = (depth, self.rows, self.columns // OCTET, self.pairs, self.across, self.slab)
        others = (self.held(self._slabs(chain)).cxx, wide(chain.given), wide(chain.conv.channels))
        words = ", ".join(map(str, (*sizes, *others)))
        return f"{SPACE}::ExpandedTile<{chain.conv.window}, {words}{chain.conv.element}>"


@functools.lru_cache(maxsize=64)
def _part(chain: ChainShape, channels: int) -> ChainShape:
    """The chain with so many of its channels: hundreds of tiles cut it alike."""
    return replace(chain, conv=replace(chain.conv, channels=channels))


_EXPANDED = (16, 32, 48, 64, 80, 96)
"""Channels of a slab that a first product makes."""
_BESIDE = (1, 2, 4, 8)
"""Blocks that share the channels of a tile."""


def inverted_tiles(chain: ChainShape) -> Iterator[InvertedTile]:
    """The tiles that may be some for three."""
    depth = aligned(chain.conv.channels, STEP)
    for (pairs, rows, columns, across), slab in product(places(chain), _EXPANDED):
        if slab // STEP % across == 0 and slab <= depth:
            for parts, halos in product(parts_of(chain), (HALOS, 1)):
                if halos == HALOS or chain.conv.channels > slab:
                    yield InvertedTile(rows, columns, pairs, across, slab, parts, halos)


def expanded_tiles(chain: ChainShape) -> Iterator[ExpandedTile]:
    """The tiles that may be some for a product and a depthwise convolution."""
    depth = aligned(chain.conv.channels, STEP)
    for (pairs, rows, columns, across), slab in product(places(chain), _EXPANDED):
        if slab // STEP % across == 0 and slab <= depth:
            for parts, halos in product(_BESIDE, (HALOS, 1)):
                if halos == HALOS or ceil(chain.conv.channels / slab) > parts:
                    yield ExpandedTile(rows, columns, pairs, across, slab, parts, halos)
