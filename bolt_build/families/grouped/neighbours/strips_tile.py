"""Tiles of the kernels for a product and the depthwise convolution behind it that keep what lies between in
registers: a lane has a strip of columns, and goes down the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Load, Sums, gpu_of, limited_by
from bolt_build.families.grouped.neighbours.chain_tile import (
    MOST_REGISTERS,
    MULTIPLY,
    OCTET,
    ChainShape,
    clocks_a_second,
)
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

STRIPS = 8
"""Strips of a tile beside each other."""
TILES = 2
"""Tiles that a block computes at once: each has half of the rows of all products."""
_WINDOWS = (2, 5)
"""Rows and columns of windows that registers have room for."""
_AMPERE = 80
_NARROW = 4
"""Columns of strips up to which rows outside images are left out."""
# Fitted to 57 times of an H200, and off by a tenth.
_ROW = 250.0
"""Clocks that a warp waits in a row, one product behind the other."""
_SHARE = 1.9
"""What of these clocks takes longer than if each were used."""
_TANGENT_OPS, _LONGER = 3, 0.77
"""Operations of SiLU by its tangent, and what each of a longer function takes on Hopper: fitted to three with GELU."""
_BEGIN = 0.4e-6
"""Seconds until a block has its weights and the first rows."""
_LOADS = 100e9
"""Bytes in a second that come from L2 to a multiprocessor."""


@dataclass(frozen=True)
class Strip(Numbered):
    """`width` columns of the input, `rows` rows of results a tile and 8 * `octets` channels a warp. `across` warps of
    a block have other channels."""

    width: int
    rows: int
    octets: int
    across: int

    @property
    def extent(self) -> tuple[int, ...]:
        """What of an image it computes."""
        return (self.width, self.rows, self.octets)


@dataclass(frozen=True)
class StripsTile(Strip):
    """`width` columns of the input a strip, `rows` rows of results a tile, and 8 * `octets` channels a warp. A block
    has `across` warps and one of `parts` of the channels; a multiprocessor has room for `beside` blocks."""

    parts: int
    beside: int

    kind: ClassVar[str] = "strips"

    def __str__(self) -> str:
        return f"{self.rows} rows in strips of {self.width} columns, {OCTET * self.octets} channels a warp"

    @property
    def slab(self) -> int:
        """Channels up to whose multiple weights have zeros behind them."""
        return OCTET * self.octets

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results of a product behind: none."""
        return 0

    @property
    def threads(self) -> int:
        return 32 * self.across

    def made(self, shape: Shape) -> int:
        """Columns of results of a strip."""
        return self.width // shape.stride[1]

    def sides(self, shape: Shape) -> tuple[int, int]:
        """Columns of strips beside it that a lane has: in front of its own, and behind them."""
        needed = (self.made(shape) - 1) * shape.stride[1] + shape.kernel[1]
        return shape.pads[1], max(0, needed - shape.pads[1] - self.width)

    def quads(self, shape: Shape) -> int:
        return ceil((self.width + sum(self.sides(shape))) / 2)

    def tiles_beside(self, shape: Shape) -> int:
        """Tiles of a row of the output, which share columns."""
        if shape.extent[1] <= STRIPS * self.width and shape.out[1] <= STRIPS * self.made(shape):
            return 1
        left, right = (ceil(side / shape.stride[1]) for side in self.sides(shape))
        own = STRIPS * self.made(shape) - left - right
        return ceil((shape.out[1] - left) / own) if own > 0 else 0

    def exact(self, shape: Shape) -> bool:
        """Whether one tile is as wide as the image, and strips end where the image does, and the output."""
        whole = shape.extent[1] % self.width == 0 and shape.out[1] % self.made(shape) == 0
        return self.tiles_beside(shape) == 1 and whole

    def tiles_of_image(self, shape: Shape) -> int:
        return ceil(shape.out[0] / self.rows) * self.tiles_beside(shape)

    def blocks(self, shape: Shape) -> int:
        return self.parts * ceil(shape.batch * self.tiles_of_image(shape) / TILES)

    def given_bytes(self, chain: ChainShape) -> int:
        """Bytes of shared memory for the input of both tiles."""
        depth = aligned(chain.given)
        pitch = depth + (0 if depth // OCTET % 2 else OCTET)
        return TILES * 2 * self.read_rows(chain.conv) * self.width * (STRIPS * pitch + depth % 64)

    def read_rows(self, shape: Shape) -> int:
        return (self.rows - 1) * shape.stride[0] + shape.kernel[0]

    def shared_bytes(self, chain: ChainShape) -> int:
        """The input of both tiles, and two rows of their results."""
        together = self._together()
        own = self.slab * together
        pitch = own + (OCTET if own > 2 * OCTET and own // OCTET % 2 == 0 else 0)
        row = TILES * STRIPS * self.made(chain.conv) * pitch
        return self.given_bytes(chain) + 2 * 2 * row * (self.across // together)

    def _together(self) -> int:
        """Warps that store together: of a pixel a sector at least."""
        if self.octets > 1 or self.across == 1:
            return 1
        return next((some for some in (2, 3) if self.across % some == 0), self.across)

    def registers(self, chain: ChainShape) -> int:
        """Of a thread, about: sums of all rows that are under way but one, a row of the halo, and weights of both."""
        shape = chain.conv
        sums = 4 * self.made(shape) * older(shape)
        kept = sums + 4 * self.quads(shape) + self.taps(shape) + 2 * ceil(chain.given / 16) + 12
        # Of many columns nvcc keeps the sums of the row that is done as well.
        kept += 4 * max(0, self.made(shape) - OCTET)
        return self.octets * kept + self.made(shape) + 20

    def taps(self, shape: Shape) -> int:
        """Words of the matrices of a window: those of pairs are twice there where windows begin at odd columns too."""
        high, across = shape.kernel
        anywhere = shape.stride[1] % 2 == 1 and self.made(shape) > 1
        return high * (across + (2 * (across // 2) if anywhere else 0))

    def refuse(self, chain: ChainShape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes both on this GPU, None where one does."""
        shape = chain.conv
        if (reason := refuse_strips(self, chain, gpu)) is not None:
            return reason
        if (tiles := self.tiles_of_image(shape)) > 1 and tiles % TILES:
            return Reason("{} tiles of an image are an odd number, and a block would have some of two images", tiles)
        if (self.parts - 1) * self.across * self.slab >= shape.channels:
            return Reason("{} channels leave some of {} blocks without any", shape.channels, self.parts)
        if self.parts * self.across * self.slab < shape.channels:
            return Reason("{} blocks have but {} channels", self.parts, self.parts * self.across * self.slab)
        # Warps lie on four schedulers, each of which has a quarter of the registers.
        most = min(MOST_REGISTERS, gpu.registers // (128 * ceil(self.across * self.beside / 4)) // 8 * 8)
        if (registers := self.registers(chain)) > most:
            form = "takes {} registers of a thread, {} threads beside each other have {}"
            return Reason(form, registers, self.threads * self.beside, most)
        shared = self.shared_bytes(chain)
        if self.beside * (shared + 1024) > gpu.shared_memory + 1024:
            return Reason("{} blocks of {} bytes of shared memory do not fit beside each other", self.beside, shared)
        return refuse_shared(shared, gpu)

    def seconds(self, chain: ChainShape, target: Target) -> float:
        """Predicted time: in a row of the halo warps wait for one product behind the other, and what they share takes
        its time beside that."""
        shape, gpu, clock = chain.conv, gpu_of(target), clocks_a_second(target)
        load = Load(self.threads, self.registers(chain), self.shared_bytes(chain), self.given_bytes(chain), 0.0)
        # Compilers take what registers so many blocks leave.
        resident = min(self.beside, ceil(self.blocks(shape) / gpu.sms))
        warps = ceil(self.across * resident / 4)
        steps = self._steps(shape)
        row = _ROW + _SHARE * warps * self._clocks(chain, target)
        alone = _BEGIN + steps * row / clock + self.given_bytes(chain) * resident / _LOADS
        waves = ceil(self.blocks(shape) / (gpu.sms * resident))
        return limited_by(shape, load, self.blocks(shape), 0.0, target, waves * alone)

    def _steps(self, shape: Shape) -> int:
        """Of a warp down a tile, a row of results or one that is under way each: rows that are outside both images are
        left out, which tiles of whole images have."""
        steps = self.rows + older(shape)
        if self.width > _NARROW or self.rows < shape.out[0]:
            return steps
        return min(steps, ceil((shape.extent[0] + shape.pads[0] % shape.stride[0]) / shape.stride[0]))

    def _clocks(self, chain: ChainShape, target: Target) -> float:
        """Of a scheduler for a warp's row of results: of tensor cores, or of other instructions."""
        shape = chain.conv
        columns, made = self.width * shape.stride[0], self.made(shape)
        high, across = shape.kernel
        # Half a product takes two thirds of the time of a whole one.
        whole = columns * (chain.given // 16 + (2 / 3 if aligned(chain.given) % 16 else 0))
        whole += made * high * (across // 2 + 2 / 3 * (across % 2))
        tensor = whole * multiply_clocks(target)
        # Shared memory gives an A operand in four clocks, to one of four schedulers.
        loads = 16 * columns * ceil(chain.given / 16) / self.octets
        functions = _LONGER if gpu_of(target).warpgroup_mma else 1.0
        before, epilogue = (ops if ops <= _TANGENT_OPS else functions * ops for ops in (chain.before, shape.epilogue))
        others = 4 * (columns * (before + 1) + made * (epilogue + 2)) + 1.5 * whole
        return self.octets * max(tensor, others, loads)

    def sums(self, chain: ChainShape) -> Sums:
        """Of each tile's channels, from the registers of the warp that has them all."""
        tiles, shared = self.tiles_of_image(chain.conv), self.shared_bytes(chain)
        own = OCTET * self.octets * self.across
        kept = max(shared, 4 * (TILES * own + 4 * self.threads))
        return Sums(tiles, shared, 1 if tiles == 1 else tiles // TILES, chain.conv.batch * self.parts, kept)

    def flops(self, chain: ChainShape) -> int:
        """Operations, those with zeros and those on the halo included."""
        shape = chain.conv
        tiles, octets = shape.batch * self.tiles_of_image(shape), ceil(shape.channels / OCTET)
        expanded = ceil(chain.given / 16) * self.read_rows(shape) * self.width
        convolved = ceil(shape.kernel[1] / 2) * shape.kernel[0] * self.rows * self.made(shape)
        return ceil(tiles / TILES) * octets * (expanded + convolved) * MULTIPLY

    def cxx(self, chain: ChainShape) -> str:
        """`bolt::grouped::StripsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 24, 1, 7, true, 2, 9, 1, 8, 8>`"""
        words = ", ".join(map(str, (*self._sizes(chain), wide(chain.given), wide(chain.conv.channels))))
        return f"{SPACE}::StripsTile<{chain.conv.window}, {words}{chain.conv.element}>"

    def _sizes(self, chain: ChainShape) -> tuple[object, ...]:
        exact = "true" if self.exact(chain.conv) else "false"
        pad = chain.conv.pads[1]
        return (aligned(chain.given), pad, self.width, exact, self.octets, self.across, self.beside)


def refuse_strips(tile: StripsTile, chain: ChainShape, gpu: Gpu) -> str | None:
    """Why a chain's images have no such strips, whatever warps do with them."""
    shape = chain.conv
    if (reason := _refuse_window(shape, gpu)) is not None:
        return reason
    if tile.width % shape.stride[1]:
        return Reason("strips of {} columns are no whole steps of {}", tile.width, shape.stride[1])
    if tile.tiles_of_image(shape) == 0:
        return Reason("strips of {} columns have no results that are theirs alone", tile.width)
    return None


def _refuse_window(shape: Shape, gpu: Gpu) -> str | None:
    """Why strips are not for a window, whatever their width."""
    if gpu.sm < _AMPERE:
        return "products of sixteen channels come with sm_80"
    if any(gap != 1 for gap in shape.dilation):
        return "strips keep neighbouring rows, and the window is dilated"
    if not all(_WINDOWS[0] <= extent <= _WINDOWS[1] for extent in shape.kernel):
        return Reason("registers hold windows of {} to {} rows and columns", *_WINDOWS)
    if any(step > extent for step, extent in zip(shape.stride, shape.kernel, strict=True)):
        return "windows step over what none of them reads"
    return None


def multiply_clocks(target: Target) -> float:
    """Clocks of a scheduler for a product of 16 x 8 by 16."""
    gpu = gpu_of(target)
    return MULTIPLY * clocks_a_second(target) * 4 * gpu.sms / (target.rate("fp16") * gpu.warp_mma_share)


def older(shape: Shape) -> int:
    """Rows of results that a row of the halo is part of, but for the one that begins with it."""
    return (shape.kernel[0] - 1) // shape.stride[0]


_WIDTHS, _LANES = (1, 2, 4, 7, 8, 14, 3, 5, 6, 10, 12), (1, 2)
_ACROSS, _BESIDE, _WARPS = (3, 4, 5, 6, 8, 9, 10, 12, 16), (1, 2, 3), (8, 20)
"""Warps of a block, blocks beside each other, and warps of them all."""


def _of_image(chain: ChainShape) -> Iterator[tuple[int, int]]:
    """Widths of strips that suit an image, and rows of tiles: those that leave few columns or rows without results."""
    shape = chain.conv
    for width in _WIDTHS:
        beside = max(1, ceil(shape.extent[1] / (STRIPS * width)))
        if width % shape.stride[1] == 0 and beside * STRIPS * width <= 1.5 * shape.extent[1]:
            for parts in range(1, 9):
                rows = ceil(shape.out[0] / parts)
                if ceil(shape.out[0] / rows) == parts and rows >= shape.kernel[0]:
                    yield width, rows


def strips_tiles(chain: ChainShape) -> Iterator[StripsTile]:
    """The tiles that may be some for a product and a depthwise convolution."""
    for (width, rows), octets, across, beside in product(_of_image(chain), _LANES, _ACROSS, _BESIDE):
        own = OCTET * octets * across
        parts = ceil(chain.conv.channels / own)
        if parts * own < 1.2 * aligned(chain.conv.channels) and _WARPS[0] <= across * beside <= _WARPS[1]:
            yield StripsTile(width, rows, octets, across, parts, beside)
