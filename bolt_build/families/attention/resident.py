"""Kernels of WGMMA whose blocks keep a head's keys while their warpgroups go through its queries, each for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.attention.kind import OPERATIONS, POWERS, Kind, gpu_of, mask_clocks, norm, registers_beside
from bolt_build.families.attention.shape import SPACE, Shape, aligned
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROWS = 64
"""Queries of a warpgroup."""
_MOST = 256
"""Keys of the widest instruction."""
_OTHERS, _MULTIPLYING = 47, 41
"""Registers of a thread beside scores, and beside powers and results: those that nvcc took."""
_BOX = 64
"""Elements of a box of heads that are longer than half of it."""
_STAGES = (2, 3, 4)
_BLOCKS = {2: (1, 2), 3: (1, 2), 4: (1,)}
"""Blocks that a multiprocessor should hold, by warpgroups."""

_FIRST, _TILE = 0.9e-6, 0.6e-6
"""Seconds until the first head's keys are there, and of a tile beside what it computes. These and those that follow
were fitted to an H200's times of 15 kernels for 9 shapes; of those of more than 64 keys to a form of these kernels that
summed powers up within turns, which took a little longer."""
_PRODUCTS, _OTHER = 0.75, 1.18
"""Parts of the nominal times of products, and of powers and other instructions, in which nothing else is computed."""
_FEW = 1.13
"""How much longer tiles take where two warpgroups share a multiprocessor: they hide less of each other."""
_MASKED = 2.0
"""How much longer masks take than where other blocks compute meanwhile: they are loaded in front of a tile's scores. By
reckoning; a GPU has not timed these loads yet."""
_LATE = 0.1e-6
"""Seconds by which a block ends later for each head that had no room at the beginning. A guess: heads of 197 keys took
as long in two places as in three."""
_MEMORY = 0.85
"""Part of the memory's bandwidth that is reached: all heads that have room are asked for at once."""


@dataclass(frozen=True)
class ResidentTile(Numbered):
    """64 queries of a head for each of `groups` warpgroups, which take tiles in turn; all `keys` in one step. `stages`
    heads have room, and a multiprocessor has room for `blocks`."""

    kind: ClassVar[str] = "resident"

    groups: int
    keys: int
    stages: int
    blocks: int

    def __str__(self) -> str:
        return f"{_ROWS}x{self.keys} for each of {self.groups} warpgroups, heads in turn for {self.blocks} blocks"

    def _registers(self, shape: Shape) -> int:
        """Scores in fp32, of which powers in half precision and results take the place."""
        return max(self.keys // 2 + _OTHERS, self.keys // 4 + shape.of_heads[1] // 2 + _MULTIPLYING)

    def room(self) -> int:
        """Registers that a thread may have."""
        return min(255, registers_beside(self.groups, self.blocks))

    def shared_bytes(self, shape: Shape) -> int:
        """Queries, or results, of two tiles for each warpgroup, and `stages` heads: `Resident` of resident_kernel.h."""
        deep, wide = (aligned(each, _BOX) if each > _BOX // 2 else each for each in shape.of_heads)
        queries = 2 * self.groups * max(aligned(2 * _ROWS * deep, 1024), 4 * aligned(32 * wide, 1024))
        heads = self.stages * (aligned(2 * self.keys * deep, 1024) + aligned(2 * self.keys * wide, 1024))
        return queries + heads + 8 * (2 * self.groups + 2 * self.stages) + 4 * (2 * self.groups + self.stages)

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (registers := self._registers(shape)) > self.room():
            return Reason(
                "takes {} registers of a thread, there are {} for {} blocks", registers, self.room(), self.blocks
            )
        # The system takes 1 KiB of a block.
        most = (gpu.shared_memory + 1024) // self.blocks - 1024
        if (shared := self.shared_bytes(shape)) > most:
            return Reason("takes {} bytes of shared memory, one of {} blocks has {}", shared, self.blocks, most)
        return None

    def _tiles(self, shape: Shape) -> int:
        return shape.pairs * ceil(shape.queries / _ROWS)

    def seconds(self, shape: Shape, target: Target) -> float:
        gpu, scores = gpu_of(target), _ROWS * self.keys
        clock = target.rate("fp32") / (2 * 128 * gpu.sms)
        products = 2 * scores * sum(shape.of_heads) * gpu.sms / target.rate("fp16")
        powers, others = scores / (POWERS * clock), OPERATIONS * scores / (128 * clock)
        tiles = ceil(self._tiles(shape) / min(gpu.sms * self.blocks, self._tiles(shape)))
        few = _FEW if self.groups * self.blocks < 3 else 1.0
        masked = _MASKED * mask_clocks(shape, scores) / clock
        busy = self.blocks * tiles * (few * (_PRODUCTS * products + _OTHER * (powers + others)) + masked)
        chain = _FIRST + ceil(tiles / self.groups) * (products + powers + others + masked + _TILE)
        moved = shape.nbytes / (_MEMORY * target.bandwidth)
        heads = ceil(tiles / ceil(shape.queries / _ROWS))
        late = _LATE * max(0, min(heads, _STAGES[-1]) - self.stages)
        return norm((moved, busy, chain)) + late + target.launch_seconds

    def flops(self, shape: Shape) -> int:
        return 2 * self._tiles(shape) * _ROWS * self.keys * sum(shape.of_heads)

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::ResidentTile<64, 64, 3, 208, 3, 1, 8>`"""
        sizes = (shape.depth, shape.columns, self.groups, self.keys, self.stages, self.blocks, shape.widths[2])
        return f"{SPACE}::ResidentTile<{', '.join(map(str, sizes))}{shape.element}>"


def tiles(shape: Shape) -> Iterator[ResidentTile]:
    """The tiles that may be some for a problem: of all keys."""
    for groups, each in _BLOCKS.items():
        for blocks in each:
            for stages in _STAGES:
                yield ResidentTile(groups, aligned(shape.keys), stages, blocks)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "the GPU has no WGMMA"
    if shape.widths != (8, 8, 8):
        return Reason("copies heads of whole 16 bytes, not of {} and {} elements", shape.depth, shape.columns)
    if aligned(shape.keys) > _MOST:
        return Reason("has at most {} keys, those of one step, not {}", _MOST, shape.keys)
    if shape.window or shape.capped:
        return "has queries that read all keys, and scores without a cap"
    if shape.mask and not (shape.of_keys or shape.prepared or shape.relative):
        return "copies no computed masks whose queries have rows of their own"
    return None


KIND = Kind("resident", _serves, tiles, ResidentTile.read)
