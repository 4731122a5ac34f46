"""Kernels for groups whose products are deep and have few positions: warps of a block share the depth, and weights come
to shared memory in stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.blocks import refuse_shared, refuse_threads
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Kind, Load, gpu_of
from bolt_build.families.grouped.kinds.tensor_core import fragments, instruction, load_width, octets, unit, unit_count
from bolt_build.families.grouped.kinds.warps import (
    Work,
    copied,
    product_clocks,
    read_bytes,
    seconds_of,
    store_waits,
    stored,
)
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_OCTET = 8
_ROWS = 16
"""Positions that an instruction has."""
_SUMS = 112
"""Registers of a thread that sums may take."""
_REGISTERS = 224
"""Most registers of a thread: with more, some are spilled to memory."""
_DEPTH = 256
"""The least depth that warps share."""
_THREADS = (128, 512)
_STAGE = 24 << 10
"""Most bytes of weights of a stage."""
_STEP, _ROUND, _TURN = 60, 120, 100
"""Clocks that a warp waits in a step for its factors, in a round for other warps, and for its turn to add sums."""
_ARRIVES = 700
"""Clocks until weights that a warp asks for are there."""
_COPY, _LOOP = 6, 30
"""Instructions of a warp: for 512 bytes of weights, and for a round."""


@dataclass(frozen=True)
class DeepTile(Numbered):
    """`rows` by `columns` positions of `images` images, of 8 * `n` results of a unit. `warps` warps share the positions
    and `across` the depth. Weights of `depth` steps of each come at once, `stages - 1` times ahead."""

    kind: ClassVar[str] = "deep"

    images: int
    rows: int
    columns: int
    warps: int
    across: int
    n: int
    depth: int
    stages: int
    halves: ClassVar[tuple[DType, ...]] = HALVES

    def __str__(self) -> str:
        several = f"{self.images} images of " if self.images > 1 else ""
        shared = f"the depth shared by {self.across} warps" if self.across > 1 else "weights in stages"
        return f"{several}{self.rows}x{self.columns}, {shared}, {self.n * _OCTET} results"

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.across

    @property
    def positions(self) -> int:
        return self.images * self.rows * self.columns

    @property
    def fragments(self) -> int:
        """Times 16 positions that a warp has."""
        return ceil(self.positions / (_ROWS * self.warps))

    @property
    def registers(self) -> int:
        """Of a thread, about: sums, the A operands of a step and where they lie, and others."""
        return 4 * self.fragments * self.n + 8 * self.fragments + 45

    def _splits(self, shape: Shape) -> int:
        return ceil(ceil(unit(shape)[1] / _OCTET) / self.n)

    def _steps(self, shape: Shape, depth: int) -> int:
        return ceil(shape.taps * octets(shape) / (depth // _OCTET))

    def blocks(self, shape: Shape, run: int) -> int:
        """Each has its tile, whatever `run` says."""
        tiles = shape.tiles(self.rows, self.columns) // shape.batch * ceil(shape.batch / self.images)
        return unit_count(shape) * self._splits(shape) * tiles

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: an odd number of octets, so that eight neighbours lie in all banks."""
        count = octets(shape)
        return (count + (count + 1) % 2) * _OCTET

    def _halo(self, shape: Shape) -> int:
        """Pixels of shared memory. Columns lie in as many turns as windows step over."""
        height, width = shape.halo(self.rows, self.columns)
        return self.images * height * aligned(width, shape.stride[1])

    def shared_bytes(self, shape: Shape, gpu: Gpu) -> int:
        """Stages of weights and halos, in their place the sums; where the depth lies in a halo, and zeros."""
        depth = instruction(gpu)
        weights = self.stages * self.across * self.depth * self.n * 16 * depth
        halos = 2 * self._halo(shape) * self.pitch(shape)
        pitch = _OCTET * (self.n + (self.n + 1) % 2)
        sums = 4 * _ROWS * self.fragments * self.warps * pitch
        table = aligned(4 * self._steps(shape, depth) * (depth // _OCTET), 16)
        return max(weights + halos, sums) + table + 16

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (reason := refuse_threads(self.threads, *_THREADS)) is not None:
            return reason
        if (sums := 4 * self.fragments * self.n) > _SUMS:
            return Reason("its sums take {} registers of a thread, over {} do not stay in them", sums, _SUMS)
        if self.registers > (most := min(_REGISTERS, gpu.registers // self.threads)):
            return Reason("takes {} registers of a thread, {} threads have {}", self.registers, self.threads, most)
        if (self.warps - 1) * _ROWS * self.fragments >= self.positions:
            return Reason("not all of its {} warps have positions", self.warps)
        steps = self._steps(shape, instruction(gpu))
        if steps < 2 * self.across * self.depth:
            return Reason("{} steps of depth are no two rounds of {}", steps, self.across * self.depth)
        if (reason := shape.refuse_waste(self.rows, self.columns)) is not None:
            return reason
        return refuse_shared(self.shared_bytes(shape, gpu), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        height, width = shape.halo(self.rows, self.columns)
        steps, mine = self._steps(shape, 16), self.fragments * self.n
        rounds = ceil(steps / (self.across * self.depth))
        operations = steps * self.warps * mine * 2 * _ROWS * _OCTET * 16
        shared = steps * (self.warps * (self.fragments * 512 + self.n * 256) + self.n * 256)
        weights = steps * self.n * 256
        read = read_bytes(self.images * height * width, unit(shape)[0])
        copies = self.images * copied(shape, 1, height, width, unit(shape)[0])
        fetched = weights / 512 * _COPY + rounds * self.across * self.warps * _LOOP
        # Of a warp: a step of each round, its sums in all turns, and its part of the results.
        of_round = self.depth * (3 + self.n + mine + 2 * self.fragments)
        waits = max(self.depth * _STEP + _ROUND, _ARRIVES / (self.stages - 1) - of_round)
        multiplied = rounds * of_round
        results = stored(shape, self.positions, self.n * _OCTET, unit(shape)[1])
        warps = self.warps * self.across
        work = Work(
            product_clocks(operations, target), (shared + read) / 128,
            copies + fetched + warps * (multiplied + 8 * mine) + results,
            (copies + fetched + results) / warps + multiplied + self.across * 8 * mine,
            rounds * waits + self.across * _TURN + store_waits(1),
        )  # fmt: skip
        load = Load(self.threads, self.registers, self.shared_bytes(shape, gpu_of(target)), read + weights, 0.0)
        return seconds_of(shape, load, work, self.blocks(shape, run), run, target)

    def sums(self, shape: Shape) -> None:
        """None: results of products are not added up."""

    def flops(self, shape: Shape) -> int:
        tiles = self.blocks(shape, 1)
        return 2 * tiles * self.warps * self.fragments * _ROWS * self.n * _OCTET * shape.taps * octets(shape) * _OCTET

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        return fragments(shape, unit_count(shape), self._splits(shape) * self.n, gpu)

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::DeepTile<bolt::grouped::Window<1, 128, 1, 1, 1, 1>, 48, 48, 1, 1, 128, 2, 4, 4, 6, 2, 3, 56,
        8, 8, 16>`"""
        given, made = unit(shape)
        sizes = (given, made, self.images, self.rows, self.columns, self.warps, self.across, self.fragments, self.n)
        widths = (load_width(shape), wide(made, shape.filters), instruction(gpu))
        words = map(str, (*sizes, self.depth, self.stages, self.pitch(shape), *widths))
        return f"{SPACE}::DeepTile<{shape.window}, {', '.join(words)}{shape.element}>"


_EXTENTS = ((4, 8), (7, 7), (8, 8), (4, 16), (7, 14), (8, 16))
_LINES = (16, 32, 64, 128)
_SMALL = 128
"""Positions of an image, or of several, that a block may have together."""


def _extents(shape: Shape) -> Iterator[tuple[int, int, int]]:
    """Images, rows and columns: several small images, or a part of one."""
    if (positions := prod(shape.out)) <= _SMALL:
        for images in (1, 2, 4, 8):
            if images == 1 or (images * positions <= 2 * _SMALL and images <= shape.batch):
                yield images, *shape.out
    height, width = shape.out
    for rows, columns in ((1, line) for line in _LINES) if height == 1 else _EXTENTS:
        yield 1, rows, columns
    if height == 1:
        for parts in (ceil(width / 128), ceil(width / 64)):
            yield 1, 1, ceil(width / parts)


def tiles(shape: Shape) -> Iterator[DeepTile]:
    """The tiles that may be some for a problem."""
    found = ceil(unit(shape)[1] / _OCTET)
    counts = dict.fromkeys(ceil(found / splits) for splits in (ceil(found / 8), 2 * ceil(found / 8)) if splits <= found)
    for (images, rows, columns), n in product(dict.fromkeys(_extents(shape)), counts):
        for warps, across, depth, stages in product((1, 2, 4), (1, 2, 4, 8), (1, 2, 4), (3, 4)):
            tile = DeepTile(images, rows, columns, warps, across, n, depth, stages)
            if across * depth * n * 256 <= _STAGE:
                yield tile


def _serves(shape: Shape) -> bool:
    """Products of several channels that are deep enough for warps to share."""
    return shape.of_group[0] > 1 and shape.taps * octets(shape) * _OCTET >= _DEPTH


KIND = Kind("deep", _serves, tiles, DeepTile.read, ("bolt_grouped/deep.h",))
