"""Tiles of the kernel for an inverted residual whose halo stays in registers: a lane has a strip of columns, as in
`strips_tile`, and a warp keeps sums of its positions while it goes through the channels between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.grouped.kind import Load, Sums, gpu_of, limited_by
from bolt_build.families.grouped.neighbours.chain_tile import (
    MOST_REGISTERS,
    MULTIPLY,
    OCTET,
    STEP,
    ChainShape,
    clocks_a_second,
)
from bolt_build.families.grouped.neighbours.strips_tile import (
    STRIPS,
    TILES,
    Strip,
    StripsTile,
    multiply_clocks,
    older,
    refuse_strips,
)
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_MOST_RESULTS = 12 * OCTET
"""Results of a product behind whose sums registers have room for."""
_STORED = 32768
"""Bytes of sums that are stored at once, or more where the input takes more."""
# Fitted to 92 times of an H200, and off by 11%.
_SHARE = 2.5
"""What of the clocks of a scheduler's warps takes longer than if each were used."""
_ROW = 250.0
"""Clocks that a warp waits in a row of the input, one product behind the other."""
_BEGIN = 1.2e-6
"""Seconds until a block has its input, and until it has stored."""


@dataclass(frozen=True)
class InvertedStripsTile(Strip):
    """`width` columns of the input a strip, `rows` rows of results a tile; 8 * `octets` channels between a warp at
    once. `across` warps of a block have other channels of both tiles; a multiprocessor has room for `beside` blocks."""

    beside: int

    kind: ClassVar[str] = "inverted_strips"
    parts: ClassVar[int] = 1

    def __str__(self) -> str:
        return f"{self.rows} rows in strips of {self.width} columns, with all channels of three"

    @property
    def slab(self) -> int:
        """Channels up to whose multiple weights have zeros behind them."""
        return STEP

    @property
    def threads(self) -> int:
        return 32 * self.across

    @cached_property
    def strips(self) -> StripsTile:
        """How it lies on images, as a tile without the product behind."""
        return StripsTile(self.width, self.rows, self.octets, self.across, 1, self.beside)

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results."""
        return ceil(chain.results / OCTET)

    def _groups(self, chain: ChainShape) -> int:
        """Runs of channels between that warps have in turn."""
        return ceil(chain.conv.channels / (OCTET * self.octets))

    def blocks(self, shape: Shape) -> int:
        return ceil(shape.batch * self.strips.tiles_of_image(shape) / TILES)

    def shared_bytes(self, chain: ChainShape) -> int:
        """The input of both tiles, in whose place sums of some rows of results lie."""
        n, given = self.n(chain), self.strips.given_bytes(chain)
        positions = TILES * STRIPS * self.strips.made(chain.conv)
        row = 4 * self.across * positions * (OCTET * n + (0 if n % 2 else OCTET))
        return max(given, min(self.rows, max(1, max(given, _STORED) // row)) * row)

    def registers(self, chain: ChainShape) -> int:
        """Of a thread, about: sums of the product behind and of rows under way, two rows of the halo, constants."""
        shape, made = chain.conv, self.strips.made(chain.conv)
        sums, steps = 4 * self.rows * made * self.n(chain), ceil(chain.given / STEP)
        kept = 4 * made * (older(shape) + 1) + 4 * self.strips.quads(shape) + 4 * self.width + self.strips.taps(shape)
        kept += 2 * steps + 8
        coming = 2 * steps + 4 + shape.kernel[1] * ceil(shape.kernel[0] / 2)
        return sums + self.octets * (kept + coming + self.n(chain)) + 2 * min(self.width, 4) + 28

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes all three on this GPU, None where one does."""
        if (reason := refuse_strips(self.strips, chain, gpu)) is not None:
            return reason
        if chain.results > _MOST_RESULTS:
            return Reason("sums of {} results take more registers than there are", chain.results)
        if self.across > self._groups(chain):
            return Reason("{} channels are less than {} warps take", chain.conv.channels, self.across)
        most = min(MOST_REGISTERS, gpu.registers // (128 * ceil(self.across * self.beside / 4)) // 8 * 8)
        if (registers := self.registers(chain)) > most:
            form = "takes {} registers of a thread, {} threads beside each other have {}"
            return Reason(form, registers, self.threads * self.beside, most)
        shared = self.shared_bytes(chain)
        if self.beside * (shared + 1024) > gpu.shared_memory + 1024:
            return Reason("{} blocks of {} bytes of shared memory do not fit beside each other", self.beside, shared)
        return refuse_shared(shared, gpu)

    def _products(self, chain: ChainShape) -> tuple[float, float, float]:
        """Products of a warp's run of channels, those of half the depth at two thirds of a whole one's time: of the
        first product, of the convolution, and of the product behind."""
        shape, tile = chain.conv, self.strips
        high, across = shape.kernel
        made = self.rows * tile.made(shape)
        steps = aligned(chain.given) // STEP + (2 / 3 if aligned(chain.given) % STEP else 0)
        first = tile.read_rows(shape) * self.width * steps
        convolved = made * high * (across // 2 + 2 / 3 * (across % 2))
        behind = made * self.n(chain) * (1 if self.octets == 2 else 2 / 3)
        return self.octets * first, self.octets * convolved, behind

    def _clocks(self, chain: ChainShape, target: Target) -> float:
        """Of a scheduler for a warp's run of channels: of tensor cores, of other instructions, or of shared memory."""
        shape, tile = chain.conv, self.strips
        products, columns = sum(self._products(chain)), tile.read_rows(shape) * self.width
        beside = tile.read_rows(shape) * sum(tile.sides(shape))
        loads = 16 * columns * ceil(chain.given / STEP) + 8 * self.octets * beside
        made = self.rows * tile.made(shape)
        others = 4 * self.octets * (columns * (chain.before + 1.5) + made * (shape.epilogue + 2)) + 1.5 * products
        return max(multiply_clocks(target) * products, others, loads)

    def seconds(self, chain: ChainShape, target: Target) -> float:
        """Predicted time: what warps of a scheduler take for all their channels, or how long one by itself waits."""
        shape, gpu, clock = chain.conv, gpu_of(target), clocks_a_second(target)
        read = self.strips.given_bytes(chain)
        load = Load(self.threads, self.registers(chain), self.shared_bytes(chain), read, 0.0)
        blocks = self.blocks(shape)
        resident = min(self.beside, ceil(blocks / gpu.sms))
        warps = ceil(self.across * resident / 4)
        groups = ceil(self._groups(chain) / self.across)
        waits = _ROW * self.strips.read_rows(shape)
        alone = _BEGIN + groups * max(waits, _SHARE * warps * self._clocks(chain, target)) / clock
        # Blocks of one wave begin where others of the one before end, but the last ones have less to do.
        waves = max(1.0, blocks / (gpu.sms * resident))
        waves = (waves + ceil(waves)) / 2
        return limited_by(shape, load, blocks, 0.0, target, waves * alone)

    def sums(self, chain: ChainShape) -> Sums | None:
        """None: what its kernels leave is a product's, and no means."""
        return None

    def flops(self, chain: ChainShape) -> int:
        """Operations, those with zeros and those on the halo included."""
        per_block = sum(self._products(chain)) * self._groups(chain)
        return ceil(per_block * self.blocks(chain.conv)) * MULTIPLY

    def cxx(self, chain: ChainShape) -> str:
        """As of strips, with rows of results, and runs of eight results of the product behind."""
        exact = "true" if self.strips.exact(chain.conv) else "false"
        sizes = (aligned(chain.given), chain.conv.pads[1], self.width, exact, self.rows, self.octets, self.across)
        words = ", ".join(map(str, (*sizes, self.beside, self.n(chain), wide(chain.given), wide(chain.results))))
        return f"{SPACE}::InvertedStripsTile<{chain.conv.window}, {words}{chain.conv.element}>"


_WIDTHS, _ROWS, _LANES = (1, 2, 4, 8, 3, 5, 6), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2)
_ACROSS, _BESIDE, _WARPS = (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 6), (8, 12)
"""Warps of a block, blocks beside each other, and warps of them all."""


def inverted_strips_tiles(chain: ChainShape) -> Iterator[InvertedStripsTile]:
    """The tiles that may be some for three: strips that leave few columns and rows without results."""
    shape = chain.conv
    for width, rows in product(_WIDTHS, _ROWS):
        beside = max(1, ceil(shape.extent[1] / (STRIPS * width)))
        if width % shape.stride[1] or beside * STRIPS * width > 1.5 * shape.extent[1] + STRIPS:
            continue
        if ceil(shape.out[0] / rows) * rows > 1.2 * shape.out[0]:
            continue
        for octets, across, blocks in product(_LANES, _ACROSS, _BESIDE):
            if _WARPS[0] <= across * blocks <= _WARPS[1]:
                yield InvertedStripsTile(width, rows, octets, across, blocks)
