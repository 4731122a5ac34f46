"""Tiles of products on Hopper whose blocks own whole rows together, and normalise them: `wgmma_norm.py`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil

from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import REGISTERS, too_many_sums, wasted_rows
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import (
    CLUSTERS,
    F16,
    LEAST_STAGES,
    TURNS,
    WgmmaTile,
    stages,
    store_bytes,
)
from bolt_build.families.cutlass.problems.product import Product, aligned
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu

_TURNS = 2
"""Places for the statistics of a row: of one tile while those of the next come in."""


_THROUGH = {"cluster": False, "memory": True}
"""What blocks exchange through."""
_CONSTANTS = 3 * 4
"""Bytes of each column: bias, scale and shift wait in shared memory where the residual of a whole tile does."""
_RESIDUAL = {"ahead": False, "whole": True}
"""Whether a residual comes as far ahead as some boxes reach, or that of a whole tile before its products are there."""


@dataclass(frozen=True)
class NormTile:
    """A WGMMA tile, and how many of them, side by side, are whole rows: the blocks of a cluster, or, `through_memory`,
    any that run at the same time."""

    tile: WgmmaTile
    across: int
    through_memory: bool = False
    whole: bool = False

    @property
    def exchanged_bytes(self) -> int:
        """Shared memory for the statistics of rows: two numbers of each row and tile."""
        if self.through_memory:
            return 0
        return _TURNS * self.across * self.tile.m * 8 * (1 if self.tile.cooperative else self.tile.teams)

    def stages(self, gpu: Gpu, residual: bool) -> int:
        """Stages of the pipeline that shared memory has room for."""
        tile = self.tile
        if self.whole:
            boxes = tile.teams * tile.m * tile.n * 2 + _CONSTANTS * tile.n
        else:
            taken = self.exchanged_bytes
            boxes = store_bytes(tile.n, tile.warpgroups, residual, tile.stage_bytes, taken, teams=tile.teams)
        return stages(gpu.shared_memory, tile.stage_bytes, boxes + aligned(self.exchanged_bytes + 64, 1024))

    @property
    def parameters(self) -> Named:
        tile = self.tile
        through = (("through", "memory"),) if self.through_memory else ()
        cluster = (("cluster", f"{tile.cluster[0]}x{tile.cluster[1]}"),) if tile.cluster != (1, 1) else ()
        residual = (("residual", "whole"),) if self.whole else ()
        return (
            ("m", tile.m), ("n", tile.n), ("k", tile.k), ("warpgroups", tile.schedule), ("norm", self.across), *through,
            *cluster, *residual,
        )  # fmt: skip

    @classmethod
    def read(cls, reader: Reader) -> NormTile:
        m, n, k = map(reader.number, ("m", "n", "k"))
        turns, across = reader.word("warpgroups", TURNS), reader.number("norm")
        through = reader.word("through", _THROUGH, "cluster")
        tile = WgmmaTile(m, n, k, turns, reader.word("cluster", CLUSTERS, "1x1"))
        return cls(tile, across, through, reader.word("residual", _RESIDUAL, "ahead"))

    def cxx(self, product: Product, *, centred: bool, keeps: bool) -> str:
        """`bolt::cutlass_kernels::WarpgroupNorm<128, 192, 64, true, 4, true, false>`"""
        tile = self.tile
        values = (
            tile.m, tile.n, tile.k, boolean(tile.cooperative), self.across, boolean(centred), boolean(keeps),
        )  # fmt: skip
        name = "WarpgroupMemoryNorm" if self.through_memory else "WarpgroupNorm"
        more = product.element
        if self.whole or tile.cluster != (1, 1):
            more = f"{more or F16}, {tile.cluster[0]}, {tile.cluster[1]}, {boolean(self.whole)}"
        return f"{SPACE}::{name}<{', '.join(map(str, values))}{more}>"

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        tile = self.tile
        if tile.n * self.across != product.n:
            return Reason("{} tiles of {} columns are no whole rows", self.across, tile.n)
        if self.through_memory:
            if (reason := self._refuse_waiting(gpu, product)) is not None:
                return reason
        elif tile.m % (8 * self.across):
            return Reason(
                "each block of the cluster would load {} rows for all, no multiple of 8", tile.m // self.across
            )
        if tile.k >= 2 * product.depth:
            return Reason("half of its depth would be beyond the {} of the product", product.depth)
        most = tile.most_sums(product) if self.whole else REGISTERS
        if (reason := wasted_rows(tile.m, product.m) or too_many_sums(tile.accumulators, most)) is not None:
            return reason
        if (reason := tile.refuse_sums(product)) is not None:
            return reason
        if (count := self.stages(gpu, product.residual)) < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", count, LEAST_STAGES)
        return None

    def _refuse_waiting(self, gpu: Gpu, product: Product) -> str | None:
        """Why blocks of the grid, one an SM, do not wait for those of the same rows, None where they do.

        `launch` of warpgroup_launch.h has a grid of whole groups of such blocks."""
        down, across = self.tile.cluster
        bands = ceil(product.m / self.tile.m / down) * down
        if self.across % across:
            return Reason("{} tiles of a row are no whole clusters of {}x{}", self.across, down, across)
        tiles, idle = bands * self.across, gpu.sms % (self.across * down)
        # Where tiles take as many rounds without them, nothing is lost.
        if ceil(tiles / (gpu.sms - idle)) > ceil(tiles / gpu.sms):
            return Reason(
                "{} of {} multiprocessors would stay idle, because rows have {} tiles", idle, gpu.sms, self.across
            )
        if (counted := bands * self.tile.warpgroups) > MOST_COUNTERS:
            return Reason("its blocks would count in {} places, there are {}", counted, MOST_COUNTERS)
        return None

    def __str__(self) -> str:
        through = " through memory" if self.through_memory else ""
        residual = ", its residual ahead" if self.whole else ""
        return f"{self.tile} with whole rows of {self.across} tiles{through}{residual}"


_ROWS = {False: (64, 128), True: (128, 256)}
_COLUMNS = (64, 96, 128, 192, 256)
_DEPTHS = (32, 64, 128)
_ACROSS = (1, 2, 4, 8)
"""Blocks of a cluster, up to the most that every Hopper GPU runs."""
_APART_ROWS = {False: (64, 128), True: (128, 192, 256)}
_APART_COLUMNS = (64, 96, 128, 160, 192, 256)
_APART = range(2, 9)
"""Tiles a row where blocks exchange through memory."""


def norm_tiles(product: Product) -> tuple[NormTile, ...]:
    """All whose tiles side by side are the rows of a product."""
    in_clusters = tuple(
        NormTile(WgmmaTile(m, n, k, cooperative), across)
        for across, n in every(_ACROSS, _COLUMNS)
        if n * across == product.n
        for cooperative, k in every(TURNS.values(), _DEPTHS)
        for m in _ROWS[cooperative]
    )
    sizes = [
        (m, n, cooperative, across)
        for across, n in every(_APART, _APART_COLUMNS)
        if n * across == product.n
        for cooperative in TURNS.values()
        for m in _APART_ROWS[cooperative]
    ]
    through_memory = tuple(
        NormTile(WgmmaTile(m, n, 64, cooperative), across, through_memory=True) for m, n, cooperative, across in sizes
    )
    if not product.residual:
        return in_clusters + through_memory
    # Clusters gained nothing where warpgroups share a tile.
    ahead = tuple(
        NormTile(WgmmaTile(m, n, 64, cooperative, cluster), across, through_memory=True, whole=True)
        for m, n, cooperative, across in sizes
        for cluster in (CLUSTERS.values() if not cooperative else ((1, 1),))
    )
    return ahead + in_clusters + through_memory
