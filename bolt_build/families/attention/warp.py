"""Kernels of the tensor-core instructions of one warp, from sm_75 on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.attention.kind import (
    WARPS,
    Kind,
    Load,
    Steps,
    gpu_of,
    mask_clocks,
    others_of,
    powers_of,
    seconds_of,
)
from bolt_build.families.attention.shape import SPACE, Shape, aligned
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WARPS = (1, 8)
_SUMS = 176
"""Registers of a thread that scores and results may take."""
_HELD = 176
"""Registers of scores, results and queries with which queries stay there too: `held` of warp_kernel.h."""
_OTHERS = 56
"""Registers of a thread beside these."""

_STEPS = (2, 4)
"""Steps of keys and values that have room, and at most where they are spread."""
_MOST_HALVES = 56 << 10
"""Half of what spread blocks have of shared memory there, so that two are on a multiprocessor."""


@dataclass(frozen=True)
class WarpTile(Numbered):
    """16 * `down` * `fragments` queries of a head for `down` warps below each other. `across` warps beside each other
    share the `keys` of a step, and what they sum up is added up at the end."""

    kind: ClassVar[str] = "warp"

    down: int
    across: int
    fragments: int
    keys: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys} of {self.down}x{self.across} warps"

    @property
    def rows(self) -> int:
        return 16 * self.down * self.fragments

    @property
    def _warps(self) -> int:
        return self.down * self.across

    def _sums(self, shape: Shape) -> int:
        """Registers of a thread for its scores and results."""
        return self.fragments * (self.keys // self.across + shape.of_heads[1]) // 2

    def _registers(self, shape: Shape) -> int:
        queries = self.fragments * shape.of_heads[0] // 4
        sums = self._sums(shape)
        return sums + (queries if sums + queries <= _HELD else 4 * self.fragments) + _OTHERS

    def shared_bytes(self, shape: Shape, apart: bool = False) -> int:
        """Queries, two steps of keys and of values or more, a step's part of a mask; or, at the end, sums of warps
        beside each other: those of one, too, where keys of other blocks are `apart` from its own."""
        deep, wide = shape.of_heads
        queries, step = self.rows * (max(deep, wide) + 8), self.keys * (deep + wide + 16)
        steps = min(_STEPS[1], max(_STEPS[0], (_MOST_HALVES - queries) // step)) if apart else _STEPS[0]
        loop = queries + steps * step
        sums = 0 if self.across == 1 and not apart else self.across * self.rows * (wide + 6)
        mask = self.rows * (self.keys + 8 * self.across) * shape.mask_size if shape.staged else 0
        return max(2 * loop + mask, 4 * sums)

    def refuse(self, shape: Shape, gpu: Gpu, apart: bool = False) -> str | None:
        if not _WARPS[0] <= self._warps <= _WARPS[1]:
            return Reason("blocks have {} to {} warps, not {}", _WARPS[0], _WARPS[1], self._warps)
        if (sums := self._sums(shape)) > _SUMS:
            return Reason("scores and results take {} registers of a thread, over {} do not stay in them", sums, _SUMS)
        if self.rows >= 2 * shape.queries and self.rows > 16:
            return Reason("half of its {} rows or more would be beyond the {} queries", self.rows, shape.queries)
        return refuse_shared(self.shared_bytes(shape, apart), gpu)

    def occupancy(self, shape: Shape, gpu: Gpu, apart: bool = False) -> int:
        """Blocks that a multiprocessor holds at once."""
        return occupancy(32 * self._warps, self._registers(shape), self.shared_bytes(shape, apart), gpu)

    def blocks(self, shape: Shape) -> int:
        return shape.pairs * ceil(shape.queries / self.rows)

    def seconds(self, shape: Shape, target: Target) -> float:
        steps = Steps(shape.steps(self.rows, self.keys), shape.most_steps(self.rows, self.keys))
        return self.seconds_of_blocks(shape, 1, steps, target)

    def seconds_of_blocks(self, shape: Shape, parts: int, steps: Steps, target: Target, apart: bool = False) -> float:
        """Predicted time of `parts` blocks for each tile of queries, of so many steps."""
        deep, wide = shape.of_heads
        scores = self.rows * self.keys
        # Each warp reads all keys and values of its part.
        read = 2 * self.down * self.keys * (deep + wide)
        threads, shared = 32 * self._warps, self.shared_bytes(shape, apart)
        products, copied = 2 * scores * (deep + wide), 2 * self.keys * (deep + wide)
        others = others_of(shape, scores) + 2 * self.rows * wide
        powers, masked = powers_of(shape, scores), mask_clocks(shape, scores, copies=shape.staged)
        load = Load(threads, self._registers(shape), shared, powers, others, products, read, copied, masked)
        blocks = parts * self.blocks(shape)
        return seconds_of(shape, load, blocks, steps, gpu_of(target).warp_mma_share, WARPS, target)

    def flops(self, shape: Shape) -> int:
        scores = self.rows * self.keys * shape.steps(self.rows, self.keys)
        return int(2 * self.blocks(shape) * scores * sum(shape.of_heads))

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::WarpTile<64, 64, 4, 1, 1, 64, 8, 8, 8>`"""
        sizes = (shape.depth, shape.columns, self.down, self.across, self.fragments, self.keys, *shape.widths)
        return f"{SPACE}::WarpTile<{', '.join(map(str, sizes))}{shape.staged_element}>"


def tiles(shape: Shape) -> Iterator[WarpTile]:
    """The tiles that may be some for a problem: steps of 16 to 128 keys, or of all keys where those are few."""
    for down, across, fragments in product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2)):
        unit = 16 * across
        most = aligned(shape.keys, unit)
        for keys in dict.fromkeys((*(size for size in (16, 32, 64, 128) if size % unit == 0 and size < most), most)):
            if keys <= 256:
                yield WarpTile(down, across, fragments, keys)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    return None


KIND = Kind("warp", _serves, tiles, WarpTile.read)
