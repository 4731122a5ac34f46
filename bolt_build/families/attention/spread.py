"""Kernels of a cluster of blocks, which have parts of the keys of the same queries: few queries that read many keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from bolt_build.families.attention.kind import WARPS, Kind, Steps, gpu_of
from bolt_build.families.attention.shape import SPACE, Shape
from bolt_build.families.attention.warp import WarpTile
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_EXCHANGE = 1.0e-6
"""Seconds of the two barriers of a cluster, and of reads from other blocks between them."""
_LARGEST = 16
"""Blocks of Hopper's largest clusters, which need nearly all multiprocessors of a part of the GPU that has 16 or 18."""
_RATE = 27e9
"""Bytes a second that a block takes from memory, with the copies that it has under way. Fitted to an H200's times of
five shapes of decoders' tokens."""
_FILLED = 2
"""Tiles of queries a multiprocessor with which nothing is gained."""


@dataclass(frozen=True)
class SpreadTile:
    """Queries, warps and steps as of `tile`; each of `blocks` blocks takes some of the steps, and what they sum up is
    added up at the end."""

    tile: WarpTile
    blocks: int

    @property
    def keys(self) -> int:
        return self.tile.keys

    @property
    def parameters(self) -> Named:
        (_, *sizes) = self.tile.parameters
        return (("kind", "spread"), *sizes, ("blocks", self.blocks))

    @classmethod
    def read(cls, reader: Reader) -> SpreadTile:
        reader.word("kind", {"spread": "spread"})
        return cls(WarpTile(*map(reader.number, ("down", "across", "fragments", "keys"))), reader.number("blocks"))

    def __str__(self) -> str:
        return f"{self.tile}, of clusters of {self.blocks}"

    def _steps(self, shape: Shape) -> int:
        return ceil(shape.keys / self.keys)

    def shared_bytes(self, shape: Shape) -> int:
        return self.tile.shared_bytes(shape, apart=True)

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (steps := self._steps(shape)) < self.blocks:
            return Reason("blocks of a cluster are {}, steps of keys {}", self.blocks, steps)
        if (count := self.tile.blocks(shape)) >= _FILLED * gpu.sms:
            return Reason("{} tiles of queries fill {} multiprocessors by themselves", count, gpu.sms)
        if (reason := self.tile.refuse(shape, gpu, apart=True)) is not None:
            return reason
        if self.blocks == _LARGEST and (count := self.tile.blocks(shape)) > (most := self._at_once(shape, gpu)):
            return Reason("clusters of {} are {} at once, not {}", self.blocks, most, count)
        return None

    def seconds(self, shape: Shape, target: Target) -> float:
        steps = ceil(self._steps(shape) / self.blocks)
        computed = self.tile.seconds_of_blocks(shape, self.blocks, Steps(steps, steps), target, apart=True)
        copied = 2 * steps * self.keys * sum(shape.of_heads) / _RATE + WARPS.begin + target.launch_seconds
        alone = max(computed, copied) + _EXCHANGE
        return alone + (self._rounds(shape, gpu_of(target)) - 1) * (alone - target.launch_seconds)

    def _rounds(self, shape: Shape, gpu: Gpu) -> int:
        """How many clusters are one behind the other."""
        return ceil(self.tile.blocks(shape) / self._at_once(shape, gpu))

    def _at_once(self, shape: Shape, gpu: Gpu) -> int:
        return clusters_at_once(self.blocks, self.tile.occupancy(shape, gpu, apart=True), gpu)

    def flops(self, shape: Shape) -> int:
        return self.tile.flops(shape)

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::SpreadTile<bolt::attention::WarpTile<64, 64, 1, 4, 1, 64, 8, 8, 8>, 4>`"""
        return f"{SPACE}::SpreadTile<{self.tile.cxx(shape)}, {self.blocks}>"


def tiles(shape: Shape) -> Iterator[SpreadTile]:
    """The tiles that may be some for a problem: of few queries."""
    for down, across, keys, blocks in product((1, 2), (1, 2, 4, 8), (32, 64, 128, 256), (2, 4, 8, _LARGEST)):
        if keys % (16 * across) == 0:
            yield SpreadTile(WarpTile(down, across, 1, keys), blocks)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if shape.causal or shape.window:
        return "has queries that all read the same keys"
    if shape.prepared:
        return "has no kernel for masks in the order of scores"
    return None


KIND = Kind("spread", _serves, tiles, SpreadTile.read)
