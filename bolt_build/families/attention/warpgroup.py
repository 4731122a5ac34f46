"""Kernels of WGMMA, fed by TMA: Hopper's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from bolt_build.families.attention.kind import (
    POLYNOMIAL,
    WARPGROUPS,
    Kind,
    Load,
    Steps,
    mask_clocks,
    others_of,
    powers_of,
    registers_beside,
    seconds_of,
)
from bolt_build.families.attention.shape import SPACE, Shape, aligned, boxed
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WHEN = {"own": (False, False), "next": (True, False), "turns": (True, True)}
"""Whether the next step's scores are computed ahead, and whether warpgroups take turns."""
_POWERS = {"functions": 0, "quarter_polynomials": 4}
"""Of how many powers of two one is a polynomial."""
_ROWS = 64
"""Queries of a warpgroup."""
_KEYS = (64, 96, 128, 192)
_STAGES = (1, 2)
_MOST = 6
"""Most warpgroups that a multiprocessor should have."""
_OTHERS = 30
"""Registers of a thread beside scores, powers and results: those that nvcc took, with room for what it moves."""
_AHEAD = 1.26
"""How much longer a step of scores ahead takes warpgroups without any others beside them: fitted."""
_WIDEST = 256
"""Columns of the widest instruction."""


@dataclass(frozen=True)
class WarpgroupTile:
    """64 queries of a head for each of `groups` warpgroups, in steps of `keys` keys, of which `stages` are copied
    ahead. `ahead`: the next step's scores are computed while this one's powers are multiplied with values. `blocks`
    have room on a multiprocessor, as many as there is room for: that bounds the registers of a thread. One power of
    two of `every` (0: none) is a polynomial. In `turns`, warpgroups that compute ahead begin their products one after
    the other, so that one computes powers while another multiplies."""

    groups: int
    keys: int
    stages: int
    ahead: bool
    blocks: int
    every: int = 0
    turns: bool = False

    @property
    def parameters(self) -> Named:
        when = next(word for word, each in _WHEN.items() if each == (self.ahead, self.turns))
        sizes = (("groups", self.groups), ("keys", self.keys), ("stages", self.stages))
        powers = next(word for word, every in _POWERS.items() if every == self.every)
        return (("kind", "warpgroup"), *sizes, ("scores", when), ("blocks", self.blocks), ("powers", powers))

    @classmethod
    def read(cls, reader: Reader) -> WarpgroupTile:
        reader.word("kind", {"warpgroup": "warpgroup"})
        groups, keys, stages = map(reader.number, ("groups", "keys", "stages"))
        (ahead, turns), blocks = reader.word("scores", _WHEN), reader.number("blocks")
        return cls(groups, keys, stages, ahead, blocks, reader.word("powers", _POWERS), turns)

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys} of {self.groups} warpgroups, {self.blocks} blocks beside each other"

    @property
    def rows(self) -> int:
        return _ROWS * self.groups

    def _registers(self, shape: Shape) -> int:
        """Scores and results in fp32; powers in half precision, where scores were if there are no next ones."""
        wide = shape.of_heads[1]
        powers = self.keys // 4 if self.ahead else 0
        return self.keys // 2 + wide // 2 + powers + _OTHERS

    def room(self) -> int:
        """Registers that a thread may have."""
        return min(255, registers_beside(self.groups, self.blocks))

    def shared_bytes(self, shape: Shape) -> int:
        """Queries, and `stages` steps of keys and values: `Warpgroups` of warpgroup_kernel.h."""
        deep, wide = map(boxed, shape.of_heads)
        queries = aligned(_ROWS * 2 * max(deep, wide), 1024)
        step = aligned(2 * self.keys * deep, 1024) + aligned(2 * self.keys * wide, 1024)
        mask = _ROWS * (self.keys + 8) * shape.mask_size if shape.staged else 0
        return self.groups * (queries + mask) + self.stages * step + 24 * (1 + self.stages)

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (registers := self._registers(shape)) > self.room():
            return Reason(
                "takes {} registers of a thread, there are {} for {} blocks", registers, self.room(), self.blocks
            )
        if self.rows >= 2 * shape.queries and self.groups > 1:
            return Reason("half of its {} rows or more would be beyond the {} queries", self.rows, shape.queries)
        steps = ceil(shape.keys / self.keys)
        if self.stages > steps:
            return Reason("copies {} steps ahead, there are {}", self.stages, steps)
        if self.every and (shape.mask or (steps == 1 and shape.keys % self.keys)):
            return "polynomials are for steps in which no key is hidden, here are none"
        if self.every and (shape.window or shape.capped):
            return "polynomials are for queries that read all keys, and scores without a cap"
        if self.turns and self.groups == 1:
            return "turns are for several warpgroups"
        if self.ahead and self.stages == 1:
            return "the next step's scores take a second stage of keys"
        if (shared := self.shared_bytes(shape)) > gpu.shared_memory:
            return Reason("takes {} bytes of shared memory, a block has {}", shared, gpu.shared_memory)
        # The system takes 1 KiB of a block.
        most = min((gpu.shared_memory + 1024) // (shared + 1024), _MOST // self.groups)
        most = max(n for n in range(1, most + 1) if n == 1 or registers <= replace(self, blocks=n).room())
        if self.blocks != most:
            return Reason("is for {} blocks on a multiprocessor, there is room for {}", self.blocks, most)
        return None

    def _blocks(self, shape: Shape) -> int:
        return shape.pairs * ceil(shape.queries / self.rows)

    def seconds(self, shape: Shape, target: Target) -> float:
        deep, wide = shape.of_heads
        scores = self.rows * self.keys
        # Each warpgroup reads its queries, all keys and all values.
        read = 2 * self.groups * (_ROWS * deep + self.keys * (deep + wide))
        products, copied = 2 * scores * (deep + wide), 2 * self.keys * (deep + wide)
        polynomials = scores / self.every if self.every else 0.0
        others = others_of(shape, scores) + POLYNOMIAL * polynomials + 2 * self.rows * wide
        load = Load(
            128 * self.groups, self.room(), self.shared_bytes(shape), powers_of(shape, scores) - polynomials, others,
            products, read, copied, mask_clocks(shape, scores, copies=True), waits=self.stages == 1,
        )  # fmt: skip
        steps = Steps(shape.steps(self.rows, self.keys), shape.most_steps(self.rows, self.keys))
        pace = replace(WARPGROUPS, alone=_AHEAD * WARPGROUPS.alone) if self.ahead else WARPGROUPS
        return seconds_of(shape, load, self._blocks(shape), steps, 1.0, pace, target)

    def flops(self, shape: Shape) -> int:
        scores = self.rows * self.keys * shape.steps(self.rows, self.keys)
        return int(2 * self._blocks(shape) * scores * sum(shape.of_heads))

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::WarpgroupTile<64, 64, 2, 128, 2, false, false, 2, 0, 8>`"""
        sizes = (shape.depth, shape.columns, self.groups, self.keys, self.stages)
        words = (
            *map(str, sizes),
            boolean(self.ahead),
            boolean(self.turns),
            *map(str, (self.blocks, self.every, shape.widths[2])),
        )
        return f"{SPACE}::WarpgroupTile<{', '.join(words)}{shape.staged_element}>"


def tiles(shape: Shape) -> Iterator[WarpgroupTile]:
    """The tiles that may be some for a problem: steps of 64 to 192 keys, of equal parts of all keys, or of all."""
    parts = (aligned(ceil(shape.keys / count)) for count in (1, 2, 3))
    most = aligned(shape.keys)
    sizes = dict.fromkeys((*(size for size in _KEYS if size < most), *parts))
    for groups, keys, stages, (ahead, turns) in product((1, 2, 3), sizes, _STAGES, _WHEN.values()):
        if keys <= _WIDEST and (keys >= 48 or keys == most):
            for blocks in range(1, _MOST // groups + 1):
                for every in _POWERS.values():
                    yield WarpgroupTile(groups, keys, stages, ahead, blocks, every, turns)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "the GPU has no WGMMA"
    if shape.widths != (8, 8, 8):
        return Reason("copies heads of whole 16 bytes, not of {} and {} elements", shape.depth, shape.columns)
    return None


KIND = Kind("warpgroup", _serves, tiles, WarpgroupTile.read)
