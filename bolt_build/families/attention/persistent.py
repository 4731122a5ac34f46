"""Kernels of WGMMA whose blocks stay on a multiprocessor and go through tiles in turn; one warpgroup copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from bolt_build.families.attention.kind import (
    DISTANCES,
    L2,
    POWERS,
    Kind,
    gpu_of,
    norm,
    powers_of,
    registers_beside,
)
from bolt_build.families.attention.shape import SPACE, Shape, aligned
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WHEN = {"own": (False, False), "next": (True, False), "turns": (True, True)}
"""Whether the next step's scores are computed ahead, and whether warpgroups take turns."""
_ROWS = 64
"""Queries of a warpgroup."""
_KEYS = (64, 96, 128, 192)
_STAGES = (2, 3)
_BLOCKS = {1: (1, 2, 3, 4), 2: (1,), 3: (1,), 4: (1,)}
"""Blocks that a multiprocessor should hold, by warpgroups that compute."""
_BESIDE = 2
"""More of them only one tile of a head is for: for several they have not been timed."""
_COPYING, _MASKING, _COMPUTING = 24, 32, 240
"""Registers of a thread that copies, of one that masks keys besides, and the most of one that computes."""
_OTHERS, _MASKED = 28, 30
"""Registers of a thread beside scores, powers and results, and where keys are masked: those that nvcc took."""
_BARRIERS = 512
"""Bytes of barriers, at most."""
_BOX = 64
"""Elements of a box of heads that are longer than half of it."""


_FIRST, _TILE, _WARPGROUP = 3.3e-6, 0.2e-6, 0.06e-6
"""Seconds until the first tile's keys are there; of a tile beside its steps; and more of each of its warpgroups. These
and those that follow were fitted to the times of 48 kernels for 14 shapes on an H100."""
_PRODUCTS, _POWERS, _STEP = 1.09, 0.3, 0.033e-6
"""Part of the nominal times of products and of powers, and seconds of a step, in which nothing else of a multiprocessor
is computed."""
_COPY = 0.77e-6
"""Seconds from the time when a step's keys are used to that when others are there."""
_SHOWN = 2.0
"""How much longer a step takes whose keys and values L2 brings more slowly than that, of what it takes beyond it: so
that heads of 256 elements, 64 KiB a step, are within a quarter of the one time that an H200 has given of them, and
shorter heads as they were."""
_HIDES = 0.17
"""Part of a step that causal tiles take beside their steps: the last looks through scores and hides some."""
_LAST = 0.45
"""Part of the shortest causal tile by which some blocks have more to do."""
_OF_ROWS, _OF_KEYS = 40.0, 16.0
"""Elements of masks that a multiprocessor takes from shared memory a clock: of constant ones, which L2 brings for every
tile, and of those of keys. The first, and the next, were fitted to 22 kernels for six shapes on an H100, off by 6%; the
second is that of other kernels, for a GPU has not timed these loads yet."""
_MEMORY = 0.88
"""Part of the memory's bandwidth that is reached: copies of a tile are under way while another is computed."""


@dataclass(frozen=True)
class _Pace:
    """Parts of the nominal times of products and of powers, and seconds of a step, that a warpgroup waits for by
    itself; and what it leaves of the time in which nothing else is computed."""

    products: float
    powers: float
    step: float
    busy: float


_PACES = {
    "own": _Pace(1.0, 0.6, 0.62e-6, 1.0),
    "next": _Pace(0.2, 2.25, 0.24e-6, 0.92),
    "turns": _Pace(0.2, 2.25, 0.24e-6, 0.9),
}


@dataclass(frozen=True)
class PersistentTile:
    """64 queries of a head for each of `groups` warpgroups, in steps of `keys` keys, of which `stages` have room. A
    block takes one such tile after the other; a multiprocessor has room for `blocks`. `ahead` and `turns` are as in
    WarpgroupTile."""

    groups: int
    keys: int
    stages: int
    ahead: bool
    turns: bool
    blocks: int

    @property
    def parameters(self) -> Named:
        sizes = (("groups", self.groups), ("keys", self.keys), ("stages", self.stages))
        return (("kind", "persistent"), *sizes, ("scores", self._when), ("blocks", self.blocks))

    @classmethod
    def read(cls, reader: Reader) -> PersistentTile:
        reader.word("kind", {"persistent": "persistent"})
        groups, keys, stages = map(reader.number, ("groups", "keys", "stages"))
        return cls(groups, keys, stages, *reader.word("scores", _WHEN), reader.number("blocks"))

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys} of {self.groups} warpgroups, tiles in turn for {self.blocks} blocks"

    @property
    def _when(self) -> str:
        return next(word for word, each in _WHEN.items() if each == (self.ahead, self.turns))

    @property
    def rows(self) -> int:
        return _ROWS * self.groups

    def _registers(self, shape: Shape) -> int:
        """Scores and results in fp32; powers in half precision, where scores were if there are no next ones."""
        powers = self.keys // 4 if self.ahead else 0
        others = _MASKED if shape.of_keys else _OTHERS
        return self.keys // 2 + shape.of_heads[1] // 2 + powers + others

    def room(self, shape: Shape) -> int:
        """Registers that a thread which computes may have: the warpgroup that copies gives most of its own."""
        launched = registers_beside(self.groups + 1, self.blocks)
        kept = _MASKING if shape.of_keys else _COPYING
        return min(_COMPUTING, (launched * (self.groups + 1) - kept) // self.groups // 8 * 8)

    def shared_bytes(self, shape: Shape, gpu: Gpu) -> int:
        """Queries of two tiles where there is room for them, else of one, results where there is, and `stages` steps of
        keys and values: `Persistent` of persistent_block.h."""
        deep, wide = (aligned(each, _BOX) if each > _BOX // 2 else each for each in shape.of_heads)
        queries = self.groups * aligned(_ROWS * 2 * deep, 1024)
        steps = self.stages * (aligned(2 * self.keys * deep, 1024) + aligned(2 * self.keys * wide, 1024))
        if shape.prepared:
            steps += self.stages * 2 * self.rows * self.keys
        if shape.of_keys:
            steps += self.stages * aligned(4 * self.keys + 4) + 16
        tiles = 2 if 2 * queries + steps + _BARRIERS <= self._most(gpu) else 1
        results = 4 * self.groups * aligned(32 * wide, 1024)
        held = tiles * queries + steps
        held += results if held + results + _BARRIERS <= self._most(gpu) else 0
        return held + 8 * (2 * tiles * self.groups + 4 * self.stages)

    def _most(self, gpu: Gpu) -> int:
        """Bytes that one of its blocks may have: the system takes 1 KiB of each."""
        return (gpu.shared_memory + 1024) // self.blocks - 1024

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (registers := self._registers(shape)) > (room := self.room(shape)):
            return Reason("takes {} registers of a thread, one that computes has {}", registers, room)
        if self.rows >= 2 * shape.queries and self.groups > 1:
            return Reason("half of its {} rows or more would be beyond the {} queries", self.rows, shape.queries)
        if self.turns and self.groups == 1:
            return "turns are for several warpgroups"
        if self.blocks > _BESIDE and shape.queries > _ROWS:
            return Reason("over {} blocks are for images of at most {} queries", _BESIDE, _ROWS)
        if (shared := self.shared_bytes(shape, gpu)) > (most := self._most(gpu)):
            return Reason("takes {} bytes of shared memory, one of {} blocks has {}", shared, self.blocks, most)
        return None

    def _tiles(self, shape: Shape) -> int:
        return shape.pairs * ceil(shape.queries / self.rows)

    def _steps(self, shape: Shape, tile: int) -> list[int]:
        """Steps of each warpgroup that has queries of a head's tile."""
        firsts = (tile * self.rows + _ROWS * group for group in range(self.groups))
        begin, _ = shape.span(tile * self.rows, self.rows)
        ends = (shape.span(first, min(_ROWS, shape.queries - first))[1] for first in firsts if first < shape.queries)
        return [ceil((end - begin) / self.keys) for end in ends]

    def _costs(self, shape: Shape, target: Target, blocks: int) -> list[float]:
        """Seconds of the tiles of a head, the longest first: of what a multiprocessor computes for all its warpgroups,
        of the chain of one of them, and of copies."""
        gpu, scores = gpu_of(target), _ROWS * self.keys
        beside = ceil(blocks / gpu.sms)
        clock = target.rate("fp32") / (2 * 128 * gpu.sms)
        products = 2 * scores * sum(shape.of_heads) * gpu.sms / target.rate("fp16")
        powers, masked = powers_of(shape, scores) / (POWERS * clock), _masked(shape, scores) / clock
        pace, more = _PACES[self._when], _HIDES if shape.causal else 0.0
        busy = pace.busy * (_PRODUCTS * products + _POWERS * powers + _STEP) + masked
        chain = pace.products * products + pace.powers * powers + pace.step + 2 * masked
        # All blocks ask L2 for keys and values at once.
        brought = 2 * self.keys * sum(shape.of_heads) * blocks / (L2 * target.bandwidth)
        chain += _SHOWN * max(0.0, brought - _COPY)
        found = []
        for tile in range(ceil(shape.queries / self.rows)):
            steps = [each + more for each in self._steps(shape, tile)]
            waits = (chain, _COPY / (self.stages - 1))
            both = norm((beside * sum(steps) * busy, *(max(steps) * each for each in waits)))
            found.append(both + _TILE + _WARPGROUP * beside * len(steps))
        return sorted(found, reverse=True)

    def seconds(self, shape: Shape, target: Target) -> float:
        """Blocks take turns at a head's tiles, and of causal ones those of both ends of a round."""
        sms, tiles = gpu_of(target).sms, self._tiles(shape)
        blocks = min(tiles, sms * self.blocks)
        costs = self._costs(shape, target, blocks)
        if shape.causal:
            longest = max(costs[0], sum(costs) / len(costs) * tiles / blocks + _LAST * costs[-1])
        else:
            rounds, rest = divmod(ceil(tiles / blocks), len(costs))
            longest = rounds * sum(costs) + sum(costs[:rest])
        return norm((shape.nbytes / (_MEMORY * target.bandwidth), longest + _FIRST)) + target.launch_seconds

    def flops(self, shape: Shape) -> int:
        scores = self.rows * self.keys * shape.steps(self.rows, self.keys)
        return int(2 * self._tiles(shape) * scores * sum(shape.of_heads))

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::PersistentTile<128, 128, 2, 128, 2, true, true, 1, 8>`"""
        sizes = (shape.depth, shape.columns, self.groups, self.keys, self.stages)
        how = map(boolean, (self.ahead, self.turns))
        words = (*map(str, sizes), *how, str(self.blocks), str(shape.widths[2]))
        return f"{SPACE}::PersistentTile<{', '.join(words)}{shape.element}>"


def _masked(shape: Shape, scores: int) -> float:
    """Clocks in which a step's scores begin with their mask."""
    if not shape.mask:
        return 0.0
    if shape.relative:
        return scores / DISTANCES
    return scores / (_OF_ROWS if shape.prepared else _OF_KEYS)


def tiles(shape: Shape) -> Iterator[PersistentTile]:
    """The tiles that may be some for a problem: steps of 64 to 192 keys, of equal parts of all keys, or of all."""
    parts = (aligned(ceil(shape.keys / count)) for count in (1, 2, 3))
    most = aligned(shape.keys)
    sizes = dict.fromkeys((*(size for size in _KEYS if size < most), *parts))
    for groups, keys, (ahead, turns) in product(_BLOCKS, sizes, _WHEN.values()):
        if keys <= _KEYS[-1] and (keys >= _KEYS[0] or keys == most):
            for stages, blocks in product(_STAGES, _BLOCKS[groups]):
                yield PersistentTile(groups, keys, stages, ahead, turns, blocks)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "the GPU has no WGMMA"
    if shape.widths != (8, 8, 8):
        return Reason("copies heads of whole 16 bytes, not of {} and {} elements", shape.depth, shape.columns)
    if shape.twice:
        return "adds one mask"
    if shape.mask and not (shape.of_keys or shape.prepared or shape.relative):
        return "copies no computed masks whose queries have rows of their own"
    return None


KIND = Kind("persistent", _serves, tiles, PersistentTile.read)
