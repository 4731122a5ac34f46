"""Kernels for one product on Hopper: WGMMA, which multiplies with four warps at once, and TMA."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import (
    HOPPER,
    MANY_IN_TURNS,
    NARROW,
    REGISTERS,
    refuse_whole,
    too_many_sums,
    wasted_rows,
)
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import seconds
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.settings import DEFAULT, Settings
from bolt_build.families.cutlass.slices import counts, refuse
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

BARRIERS = 2048
"""Bytes of shared memory that are kept for barriers."""
_PLENTY = {1: 4, 2: 4, 3: 3}
"""Stages below which the pipeline gets the room of wider, or more, boxes of the output and the residual, by how many
warpgroups share a tile. Those of three are larger."""
_ROOM = {1: 32, 2: 32, 3: 48}
"""KiB of the residual's boxes where the pipeline has plenty of stages."""
_SINGLE_ROOM = 16
"""The same of a block that has half of a multiprocessor."""


MANY_SUMS = 192
"""Registers of a thread that sums take at most where two warpgroups take turns, beside whom a warpgroup loads with few:
those of 128 x 192, which reads less of the factors for each product than 128 x 128 does."""
TURNS = {"pingpong": False, "cooperative": True}
"""Two warpgroups compute tiles in turns, or each tile together, as three do where its rows are 192."""
SCHEDULES = {"pingpong": (False, 2), "cooperative": (True, 1), "pairs": (True, 2), "single": (False, 1)}
"""Whether warpgroups compute a tile together, and teams of them that take tiles in turns."""
SUMS = {3: ("three", 96), 4: ("four", 64)}
"""So many warpgroups in a word, and registers of a thread that hold sums where they share a multiprocessor's."""
CLUSTERS = {"1x1": (1, 1), "2x1": (2, 1), "1x2": (1, 2)}
F16 = ", bolt::portable::f16"
_BESIDE, _SYSTEMS = 2, 1024
"""Blocks of one warpgroup on a multiprocessor, and the shared memory of each that the system keeps."""
NARROW_RESULTS, _SHORT_ROWS = 32, 1.27
"""Columns up to which products of at most 16 channels took longer than with a warp's instructions, and how much longer
than predicted they take: an H100's times of 20 of them."""
_RAGGED = 1.45
"""How much longer than predicted results in fp32 take whose rows begin between sectors: an H100's times of four kernels
for 1024 x 768 by 768 x 30522, 1.27 to 1.55 times."""
_FILLED = 0.55
"""Part of the last waves that tiles fill at least."""
_WIDE_ROWS = 16 * 40 * 4
"""Bytes of shared memory through which a warp stores results in fp32."""
_BANDS = ((2, 2), (4, 3), (8, 6))
"""Widths of bands, and the tiles that there must be along both axes before `warpgroup_order.h` goes in such bands."""


@dataclass(frozen=True)
class WgmmaTile:
    """Rows, columns and depth that a block computes at a time, in turns of two warpgroups or by both together.

    `cluster` counts the blocks along m and n that load together what they have in common. `pairs`: two warpgroups
    compute a tile together, and another two the next one meanwhile. Twice as many warps hide what epilogues wait for.
    `single`: one warpgroup computes all tiles of a block, which leaves half of a multiprocessor to another block.
    """

    m: int
    n: int
    k: int
    cooperative: bool
    cluster: tuple[int, int] = (1, 1)
    pairs: bool = False
    single: bool = False

    header: ClassVar[str] = "_warpgroup"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    reads_images: ClassVar[bool] = True
    loads: ClassVar[int] = 8

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        return self.m * self.n // (128 * self.warpgroups)

    @property
    def warpgroups(self) -> int:
        """That compute a tile together."""
        return sharing(self.m, self.cooperative)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage of the pipeline, its barriers apart."""
        return (self.m + self.n) * self.k * 2

    def store_bytes(self, residual: bool) -> int:
        """Shared memory through which the output goes, and the residual comes."""
        return store_bytes(self.n, self.warpgroups, residual, self.stage_bytes, teams=self.teams)

    def stages(self, gpu: Gpu, residual: bool, *, wide: bool = False) -> int:
        """Stages of the pipeline that shared memory has room for beside the output and the barriers."""
        taken = self.store_bytes(residual) if not wide else 4 * self.warpgroups * self.teams * _WIDE_ROWS
        return stages(shared_of(gpu.shared_memory, self.single), self.stage_bytes, taken)

    def blocks(self, m: int, n: int) -> int:
        """Blocks that a product of so many rows and columns takes, in whole clusters."""
        down, across = self.cluster
        return ceil(ceil(m / self.m) / down) * down * ceil(ceil(n / self.n) / across) * across

    @property
    def group(self) -> str:
        """In turns, together, or three together: what an epilogue hides behind, or costs, is less sure than the rest
        of the prediction."""
        if self.warpgroups > 2:
            return "three of WGMMA together"
        if self.accumulators > REGISTERS:
            return MANY_IN_TURNS
        if self.single:
            return "single WGMMA"
        return "WGMMA in turns" if self.teams > 1 else "WGMMA together"

    @property
    def schedule(self) -> str:
        """`pingpong`, `cooperative`, `pairs` or `single`."""
        if self.single:
            return "single"
        return "pairs" if self.pairs else "cooperative" if self.cooperative else "pingpong"

    @property
    def teams(self) -> int:
        """Of warpgroups, that take tiles in turns."""
        return SCHEDULES[self.schedule][1]

    @property
    def parameters(self) -> Named:
        names = {shape: name for name, shape in CLUSTERS.items()}
        cluster = (("cluster", names[self.cluster]),) if self.cluster != (1, 1) else ()
        return (("m", self.m), ("n", self.n), ("k", self.k), ("warpgroups", self.schedule), *cluster)

    @classmethod
    def read(cls, reader: Reader) -> WgmmaTile:
        m, n, k = map(reader.number, ("m", "n", "k"))
        together, teams = reader.word("warpgroups", SCHEDULES)
        cluster = reader.word("cluster", CLUSTERS, "1x1")
        pairs, single = together and teams == 2, not together and teams == 1
        return cls(m, n, k, together, cluster, pairs=pairs, single=single)

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::WarpgroupTile<128, 128, 64, false, 1, 1>`"""
        teams = (self.teams,) if self.pairs or self.single or product.element else ()
        values = (self.m, self.n, self.k, boolean(self.cooperative), *self.cluster, *teams)
        return f"{SPACE}::WarpgroupTile<{', '.join(map(str, values))}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def refuse(self, gpu: Gpu, product: Product, *, again: bool = False) -> str | None:
        """`again`: rows may be read again for every few columns."""
        reason = refuse_product(gpu, product, any_columns=product.wide)
        return reason or self._refuse_size(product, again) or self._refuse_room(gpu, product)

    def _refuse_size(self, product: Product, again: bool) -> str | None:
        if self.n > 2 * max(product.n, NARROW):
            return Reason("over half of its columns would be beyond the {} of the product", product.n)
        if not again and self.n <= NARROW and product.n > 2 * self.n:
            return Reason("a narrow tile reads the rows again for every {} of {} columns", self.n, product.n)
        if self.k > _DEPTHS[0] and self.k >= 2 * product.depth:
            return Reason("half of its depth would be beyond the {} of the product", product.depth)
        if self.k < 32 and product.depth > (self.k if product.taps == 1 else 32):
            return Reason("steps of {} are for few channels, here are {}", self.k, product.depth)
        if self.k < 32 and product.taps == 1 and product.n <= NARROW_RESULTS:
            return Reason(
                "of {} channels {} columns are too few beside what a warp's instructions take", product.depth, product.n
            )
        down, across = ceil(product.m / self.m), ceil(product.n / self.n)
        if down < self.cluster[0] or across < self.cluster[1]:
            return Reason("there are {}x{} tiles, fewer than in a cluster", down, across)
        return wasted_rows(self.m, product.m)

    def _refuse_room(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := too_many_sums(self.accumulators, self.most_sums(product))) is not None:
            return reason
        if (reason := self.refuse_sums(product)) is not None:
            return reason
        stages = self.stages(gpu, product.residual, wide=product.wide)
        if stages < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", stages, LEAST_STAGES)
        return None

    def most_sums(self, product: Product) -> int:
        """Registers of a thread that sums may take. More than `REGISTERS` were measured of products without windows."""
        return MANY_SUMS if self.schedule == "pingpong" and self.k == 64 and product.taps == 1 else REGISTERS

    def refuse_sums(self, product: Product) -> str | None:
        """Why its threads cannot hold their sums beside those of the other warpgroups, None where they can."""
        word, most = SUMS.get(self.warpgroups * self.teams, ("two", self.most_sums(product)))
        if self.accumulators > most:
            return Reason(
                f"a thread would hold {{}} sums, {word} warpgroups leave room for {{}}", self.accumulators, most
            )
        return None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        blocks = self.blocks(product.m, product.n)
        if (reason := refuse_whole(blocks, self.m * self.n, gpu, product, wide=True)) is not None:
            return reason
        if product.wide and product.residual:
            return "adds residuals to results in half precision"
        waves = ceil(blocks / gpu.sms)
        if self.single and waves > _BESIDE:
            return Reason("{} tiles are more than {} blocks on each of {} multiprocessors", blocks, _BESIDE, gpu.sms)
        if waves > 1 and not self.single and blocks < _FILLED * waves * gpu.sms:
            return Reason(
                "{} tiles fill little more than half of {} waves over {} multiprocessors", blocks, waves, gpu.sms
            )
        return None

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return refuse_product(gpu, product) or refuse(self, gpu, product)

    def counts(self, gpu: Gpu, product: Product) -> tuple[int, ...]:
        return counts(self, gpu, product)

    def cut(self, product: Product) -> int:
        """Warpgroups cut the list of all steps."""
        return ceil(product.depth / self.k) * product.taps

    def usual(self, product: Product, gpu: Gpu) -> Settings:
        """The kernel's own."""
        return DEFAULT

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """Where there is more than one wave and more than one row and column of tiles."""
        down, across = ceil(product.m / self.m), ceil(product.n / self.n)
        if min(down, across) < 2 or down * across <= gpu.sms:
            return ()
        bands = [width for width, least in _BANDS if min(down, across) >= least]
        # Without a setting, blocks follow each other along the axis with fewer tiles.
        other = "n" if across > down else "m"
        found = [Settings(swizzle=width) for width in bands]
        found.append(Settings(along=other))
        found += [Settings(swizzle=width, along=other) for width in bands[-1:]]
        return tuple(found)

    def allowed(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return (self.usual(product, gpu), *self.orders(product, gpu))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        ragged = product.wide and product.access != 8
        longer = _RAGGED if ragged else _SHORT_ROWS if self.k < 32 and product.taps == 1 else 1.0
        return seconds(self, work, target) * longer

    def __str__(self) -> str:
        cluster = "" if self.cluster == (1, 1) else f" in clusters of {self.cluster[0]}x{self.cluster[1]}"
        return f"{self.m}x{self.n}x{self.k} {self.schedule}{cluster}"


def sharing(m: int, cooperative: bool) -> int:
    """Warpgroups that compute a tile of so many rows: `sharing` of sharing.h."""
    return (2 if m % 128 == 0 else 3) if cooperative else 1


def shared_of(shared_memory: int, single: bool) -> int:
    """Shared memory of a block, of so much that one may have. The system keeps some of each block's."""
    return (shared_memory + _SYSTEMS) // _BESIDE - _SYSTEMS if single else shared_memory


def stages(shared_memory: int, stage: int, taken: int) -> int:
    """Stages of so many bytes that shared memory has room for beside what is taken and the barriers."""
    return max(0, shared_memory - taken - BARRIERS) // (stage + 16)


@functools.cache
def store_bytes(n: int, together: int, residual: bool, stage: int, taken: int = 0, *, teams: int | None = None) -> int:
    """Shared memory through which an output goes whose tiles have `n` columns, and its residual comes: `StoreBoxes` of
    warpgroup_store.h. `together`: warpgroups that share a tile; unless `teams` says otherwise, one alone has another
    that takes tiles in turns with it."""

    staged, single = 2 * together * (teams or (2 if together == 1 else 1)), (together, teams) == (1, 1)
    room, plenty = (_SINGLE_ROOM if single else _ROOM[together], _PLENTY[together]) if residual else (0, _PLENTY[1])

    def boxes(width: int, room: int) -> int:
        box = 64 * width * 2
        loaded = min(room * 1024 // (together * box), 16)
        return (staged + together * loaded) * box

    def enough(width: int) -> bool:
        return stages(shared_of(HOPPER.shared_memory, single), stage, taken + boxes(width, room)) >= plenty

    width = 64 if n % 64 == 0 and enough(64) else 32 if n % 32 == 0 else 16
    return boxes(width, room if enough(width) else min(room, 16))


# Measured on an H200 over the convolutions of ResNet-50, VGG and RepVGG: seldom is another faster there.
_USUAL = (
    WgmmaTile(128, 128, 64, cooperative=False),
    WgmmaTile(128, 64, 64, cooperative=False),
    WgmmaTile(64, 128, 64, cooperative=False),
    WgmmaTile(64, 64, 64, cooperative=False),
    WgmmaTile(64, 256, 64, cooperative=False),
    WgmmaTile(256, 128, 64, cooperative=True),
    WgmmaTile(128, 256, 64, cooperative=True),
    WgmmaTile(256, 64, 64, cooperative=True),
    WgmmaTile(256, 64, 32, cooperative=True),
    WgmmaTile(128, 64, 32, cooperative=False),
)
# A warpgroup's instruction computes 64 rows, and all columns of the tile. Two warpgroups that share a tile need 64 rows
# each.
_ROWS = {False: (64, 128), True: (128, 256)}
_COLUMNS = (16, 32, 64, 96, 128, 192, 256)
_DEPTHS = (16, 32, 64, 128)
WAVES = (
    *((192, n) for n in (32, 64, 96, 128, 160, 192)),
    (64, 160),
    (128, 160),
)
"""Rows and columns of tiles, in steps of 64, with which some products alone fill whole waves: for example 6304 rows of
768 columns are 132 tiles of 192 x 192, and 3200 rows are 125 of 128 x 160. Three warpgroups share 192 rows."""
MANY = tuple(
    WgmmaTile(128, n, 64, cooperative=False, cluster=cluster)
    for n, cluster in every((192, 160), ((2, 1), (1, 1), (1, 2)))
)
"""Tiles whose sums take most registers. Those in clusters come first, which took less of a GPU's power."""
_PAIRS = ((128, 128), (128, 96), (128, 64), (256, 64), (128, 32), (256, 32))
"""Rows and columns of tiles for pairs of warpgroups: longer epilogues than sums are what they are for."""

SINGLE = tuple(
    WgmmaTile(m, n, k, cooperative=False, cluster=cluster, single=True)
    for cluster, k, (m, n) in every(
        ((1, 1), (1, 2)), (64, 128), ((64, 32), (64, 64), (64, 96), (64, 128), (128, 32), (128, 64))
    )
)
"""Tiles of blocks of which two share a multiprocessor, for products of few tiles."""

WGMMA_TILES = tuple(
    dict.fromkeys(
        _USUAL
        + MANY
        + tuple(
            WgmmaTile(m, n, k, cooperative, cluster)
            for cluster, cooperative, k, n in every(CLUSTERS.values(), (False, True), _DEPTHS, _COLUMNS)
            for m in _ROWS[cooperative]
        )
        + tuple(WgmmaTile(m, n, k, True, pairs=True) for k, (m, n) in every(_DEPTHS, _PAIRS))
        + tuple(WgmmaTile(m, n, 64, m > 64, cluster) for cluster, (m, n) in every(CLUSTERS.values(), WAVES))
        + SINGLE
    )
)

FEW_SUMS = tuple(tile for tile in WGMMA_TILES if tile.accumulators <= REGISTERS)
"""Those whose threads have registers left for more than a plain store."""

_REACH = 127
"""Positions that TMA's windows reach from their corner."""
_STEPS = 8
"""Positions from one of its windows to the next."""
LEAST_STAGES = 3
"""Of a pipeline that keeps TMA ahead of the warpgroups."""


def refuse_product(gpu: Gpu, product: Product, *, any_columns: bool = False) -> str | None:
    """Why no tile is one for the product on this GPU, None where some may be. `any_columns`: results are stored one by
    one."""
    if not gpu.warpgroup_mma:
        return "needs WGMMA"
    if product.access != 8 and not any_columns:
        return Reason("stores 8 columns at once, {} is no multiple", product.n)
    if product.reach > _REACH:
        return Reason("windows reach over {} positions, TMA takes {} at most", product.reach, _REACH)
    if product.step > _STEPS:
        return Reason("the stride is {}, TMA takes {} at most", product.step, _STEPS)
    return None
