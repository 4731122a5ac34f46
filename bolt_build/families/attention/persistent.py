"""Kernels of WGMMA whose blocks stay on a multiprocessor and go through tiles in turn; one warpgroup copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from bolt_build.families.attention.kind import (
    OPERATIONS,
    WARPGROUPS,
    Kind,
    Load,
    Steps,
    gpu_of,
    mask_clocks,
    seconds_of,
)
from bolt_build.families.attention.shape import SPACE, Shape, aligned
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WHEN = {"own": (False, False), "next": (True, False), "turns": (True, True)}
"""Whether the next step's scores are computed ahead, and whether warpgroups take turns."""
_LARGEST = {"kept": False, "trusted": True}
"""Whether nobody looks for larger scores behind the first step of a row: sums tell where powers are to be trusted."""
_ROWS = 64
"""Queries of a warpgroup."""
_KEYS = (64, 80, 96, 128, 160, 176, 192)
_STAGES = (2, 3, 4)
_BLOCKS = {1: (1, 2), 2: (1,), 3: (1,), 4: (1,)}
"""Blocks that a multiprocessor should hold, by warpgroups that compute."""
_COPYING, _COMPUTING = 24, 240
"""Registers of a thread that copies, and the most of one that computes."""
_OTHERS, _MASKED = 28, 36
"""Registers of a thread beside scores, powers and results, and where a mask is loaded: those that nvcc took."""
_BOX = 64
"""Elements of a box of heads that are longer than half of it."""


@dataclass(frozen=True)
class PersistentTile:
    """64 queries of a head for each of `groups` warpgroups, in steps of `keys` keys, of which `stages` have room. A
    block takes one such tile after the other; a multiprocessor has room for `blocks`. `ahead` and `turns` are as in
    WarpgroupTile. The largest score of a row is kept where it has grown by little; with `trusts` a step is not looked
    through for it unless sums of powers are too large."""

    groups: int
    keys: int
    stages: int
    ahead: bool
    turns: bool
    trusts: bool
    blocks: int

    @property
    def parameters(self) -> Named:
        when = next(word for word, each in _WHEN.items() if each == (self.ahead, self.turns))
        sizes = (("groups", self.groups), ("keys", self.keys), ("stages", self.stages))
        largest = next(word for word, trusts in _LARGEST.items() if trusts == self.trusts)
        return (("kind", "persistent"), *sizes, ("scores", when), ("largest", largest), ("blocks", self.blocks))

    @classmethod
    def read(cls, reader: Reader) -> PersistentTile:
        reader.word("kind", {"persistent": "persistent"})
        groups, keys, stages = map(reader.number, ("groups", "keys", "stages"))
        (ahead, turns), trusts = reader.word("scores", _WHEN), reader.word("largest", _LARGEST)
        return cls(groups, keys, stages, ahead, turns, trusts, reader.number("blocks"))

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys} of {self.groups} warpgroups, tiles in turn, {self.blocks} blocks beside each other"

    @property
    def rows(self) -> int:
        return _ROWS * self.groups

    def _registers(self, shape: Shape) -> int:
        """Scores and results in fp32; powers in half precision, where scores were if there are no next ones."""
        powers = self.keys // 4 if self.ahead else 0
        others = _MASKED if shape.mask and not shape.prepared else _OTHERS
        return self.keys // 2 + shape.of_heads[1] // 2 + powers + others

    def room(self) -> int:
        """Registers that a thread which computes may have: the warpgroup that copies gives most of its own."""
        launched = 65536 // (128 * (self.groups + 1) * self.blocks) // 8 * 8
        return min(_COMPUTING, (launched * (self.groups + 1) - _COPYING) // self.groups // 8 * 8)

    def shared_bytes(self, shape: Shape) -> int:
        """Queries, and `stages` steps of keys and values: `Persistent` of persistent_kernel.h."""
        deep, wide = (aligned(each, _BOX) if each > _BOX // 2 else each for each in shape.of_heads)
        queries = aligned(_ROWS * 2 * deep, 1024)
        step = aligned(2 * self.keys * deep, 1024) + aligned(2 * self.keys * wide, 1024)
        return self.groups * queries + self.stages * step + 8 * (2 * self.groups + 4 * self.stages)

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (registers := self._registers(shape)) > (room := self.room()):
            return Reason("takes {} registers of a thread, one that computes has {}", registers, room)
        if self.rows >= 2 * shape.queries and self.groups > 1:
            return Reason("half of its {} rows or more would be beyond the {} queries", self.rows, shape.queries)
        if self.turns and self.groups == 1:
            return "turns are for several warpgroups"
        # The system takes 1 KiB of a block.
        most = (gpu.shared_memory + 1024) // self.blocks - 1024
        if (shared := self.shared_bytes(shape)) > most:
            return Reason("takes {} bytes of shared memory, one of {} blocks has {}", shared, self.blocks, most)
        return None

    def _tiles(self, shape: Shape) -> int:
        return shape.pairs * ceil(shape.queries / self.rows)

    def seconds(self, shape: Shape, target: Target) -> float:
        gpu, (deep, wide) = gpu_of(target), shape.of_heads
        scores = self.rows * self.keys
        read = 2 * self.groups * (_ROWS * deep + self.keys * (deep + wide))
        products, copied = 2 * scores * (deep + wide), 2 * self.keys * (deep + wide)
        load = Load(
            128 * self.groups, gpu.registers // (128 * self.groups * self.blocks), self.shared_bytes(shape), scores,
            (OPERATIONS - 1) * scores, products, read, copied, mask_clocks(shape, scores),
        )  # fmt: skip
        steps = Steps(shape.steps(self.rows, self.keys), ceil(shape.keys / self.keys))
        return seconds_of(shape, load, self._tiles(shape), steps, 1.0, WARPGROUPS, target)

    def flops(self, shape: Shape) -> int:
        scores = self.rows * self.keys * shape.steps(self.rows, self.keys)
        return int(2 * self._tiles(shape) * scores * sum(shape.of_heads))

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::PersistentTile<128, 128, 2, 128, 2, true, true, true, 1, 8>`"""
        sizes = (shape.depth, shape.columns, self.groups, self.keys, self.stages)
        how = map(boolean, (self.ahead, self.turns, self.trusts))
        words = (*map(str, sizes), *how, str(self.blocks), str(shape.widths[2]))
        return f"{SPACE}::PersistentTile<{', '.join(words)}{shape.element}>"


def tiles(shape: Shape) -> Iterator[PersistentTile]:
    """The tiles that may be some for a problem: steps of 64 to 192 keys, of equal parts of all keys, or of all."""
    parts = (aligned(ceil(shape.keys / count)) for count in (1, 2, 3))
    most = aligned(shape.keys)
    sizes = dict.fromkeys((*(size for size in _KEYS if size < most), *parts))
    ways = product(_BLOCKS, sizes, _STAGES, _WHEN.values(), _LARGEST.values())
    for groups, keys, stages, (ahead, turns), trusts in ways:
        for blocks in _BLOCKS[groups] if keys <= _KEYS[-1] and (keys >= _KEYS[0] or keys == most) else ():
            yield PersistentTile(groups, keys, stages, ahead, turns, trusts, blocks)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "the GPU has no WGMMA"
    if shape.widths != (8, 8, 8):
        return Reason("copies heads of whole 16 bytes, not of {} and {} elements", shape.depth, shape.columns)
    if shape.staged:
        return "copies no masks whose queries have rows of their own"
    return None


KIND = Kind("persistent", _serves, tiles, PersistentTile.read)
