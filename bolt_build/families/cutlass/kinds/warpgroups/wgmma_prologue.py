"""Kernels for one product on Hopper whose A operand is transformed as it is loaded: TMA brings it to shared memory,
and WGMMA reads it from the registers in which it was transformed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import (
    F16,
    LEAST_STAGES,
    TURNS,
    WgmmaTile,
    stages,
    store_bytes,
)
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import seconds
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.problems.prologue import Prologue
from bolt_build.families.cutlass.prologue_kind import images_for
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_MOST_REGISTERS = {2: 176, 3: 112, 4: 80}
"""Registers of a thread that its sums and two halves of a step of its A operand may take, by how many warpgroups
share a multiprocessor's."""

# Fitted to 307 kernels on an H200, off by 5%: seconds in which a warp transforms 16 x 16 elements.
AFFINE, GATE = 3.2e-8, 2.6e-8
# Fitted to 22 kernels on an H200 that share a depth, each beside the usual form of its shape (`prologue_forms.json`):
# off by 5%.
_DEEP_AFFINE, _DEEP_GATE = 4.8e-8, 6.5e-8
"""The same where two warpgroups share the depth: they are in each other's way, and gates gain nothing."""
_EXCHANGE = 4.0e-7
"""Seconds in which they add up 64 x 64 sums of a tile, behind two barriers: nothing is multiplied meanwhile."""


@dataclass(frozen=True)
class PrologueTile:
    """A tile, in clusters of one, and the images whose gates lie beside a step; 0 where there are scales of all.

    `deep`: so many warpgroups compute a tile of 64 rows together, each its part of every step's columns, and add up
    their sums. A warpgroup alone waits longer for what it transforms than for its products.
    """

    tile: WgmmaTile
    images: int = 0
    deep: int = 1

    header: ClassVar[str] = "gemm_prologue_warpgroup"
    memory_mb: ClassVar[int] = WgmmaTile.memory_mb

    @property
    def parameters(self) -> Named:
        of = (("prologue", "gate"), ("images", self.images)) if self.images else (("prologue", "affine"),)
        deep = (("deep", self.deep),) if self.deep > 1 else ()
        return (*self.tile.parameters, *deep, *of)

    @classmethod
    def read(cls, reader: Reader) -> PrologueTile:
        """Raises ValueError."""
        kind = reader.word("prologue", {"gate": True, "affine": False})
        images = reader.number("images") if kind else 0
        return cls(WgmmaTile.read(reader), images, reader.number("deep", 1))

    @property
    def multiplying(self) -> int:
        """Warpgroups of a block that compute."""
        return self.tile.warpgroups * self.tile.teams * self.deep

    @property
    def table_bytes(self) -> int:
        """Shared memory of scales, shifts or gates of a step."""
        return self.tile.k * (2 * self.images if self.images else 2 * 4)

    @property
    def left_registers(self) -> int:
        """Registers of a thread that hold a step of the A operand."""
        return self.tile.m // (64 * self.tile.warpgroups) * self.tile.k // 16 * 4 // self.deep

    @property
    def exchange_bytes(self) -> int:
        """Shared memory through which warpgroups add up their sums: `DepthExchange` of shared_depth.h."""
        if self.deep == 1:
            return 0
        numbers = self.tile.n // 4  # of a thread
        at_once = numbers if numbers <= 16 else 16 if numbers % 16 == 0 else 12
        return self.tile.teams * 256 * at_once * 4

    @property
    def group(self) -> str:
        if self.deep > 1:
            return "WGMMA that shares the depth"
        if self.tile.pairs:
            return "pairs of WGMMA"
        return "three of WGMMA" if self.multiplying == 3 else "WGMMA"

    def stages(self, gpu: Gpu, residual: bool) -> int:
        """Stages of the pipeline that shared memory has room for."""
        tile, taken = self.tile, self.exchange_bytes
        stored = store_bytes(
            tile.n // self.deep, tile.warpgroups, residual, tile.stage_bytes, taken, teams=tile.teams * self.deep
        )
        return stages(gpu.shared_memory, tile.stage_bytes + self.table_bytes, taken + stored)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        # Fewer bytes come to each multiprocessor where narrow tiles are at work on more of them.
        one_wave = self.deep > 1 and self.tile.blocks(product.m, product.n) <= gpu.sms
        if (reason := self.tile.refuse(gpu, product, again=one_wave)) is not None:
            return reason
        registers, most = self.tile.accumulators + self.left_registers, _MOST_REGISTERS[self.multiplying]
        if registers > most:
            return Reason("its accumulators and A operand take {} registers of a thread, over {}", registers, most)
        if (count := self.stages(gpu, product.residual)) < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", count, LEAST_STAGES)
        return self.tile.refuse_whole(gpu, product)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """Predicted time."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        affine, gate, added = AFFINE, GATE, 0.0
        if self.deep > 1:
            affine, gate = _DEEP_AFFINE, _DEEP_GATE
            added = ceil(self.tile.blocks(work.m, work.n) / gpu.sms) * _EXCHANGE * self.tile.n / 64 / speed
        before = self.left_registers / 4 * (gate if self.images else affine) / speed
        return added + seconds(self.tile, work, target, before=before)

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::WarpgroupPrologue<128, 128, 64, false>`"""
        tile = self.tile
        values = (tile.m, tile.n, tile.k, boolean(tile.cooperative))
        more = (
            f"{product.element or F16}, {tile.teams}, {self.deep}" if tile.pairs or self.deep > 1 else product.element
        )
        return f"{SPACE}::WarpgroupPrologue<{', '.join(map(str, values))}{more}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def __str__(self) -> str:
        shared = f" whose depth {self.deep} share" if self.deep > 1 else ""
        return (
            f"{self.tile}{shared} with gates of {self.images} images"
            if self.images
            else f"{self.tile}{shared} with scales"
        )


_ROWS = {False: (64, 128), True: (128, 256)}
_COLUMNS = (16, 32, 64, 96, 128, 192, 256)
_DEPTHS = (32, 64, 128)
_TILES = tuple(
    WgmmaTile(m, n, k, cooperative)
    for cooperative, k, n in every(TURNS.values(), _DEPTHS, _COLUMNS)
    for m in _ROWS[cooperative]
)
_THREE = tuple(WgmmaTile(192, n, k, True) for k, n in every(_DEPTHS, (32, 64, 96, 128, 192)))
_PAIRS = tuple(WgmmaTile(m, n, k, True, pairs=True) for k, n, m in every((32, 64), (16, 32, 64, 128), (128, 256)))
_SHARE = 2
_DEEP = tuple(WgmmaTile(64, n, k, False) for k, n in every((64, 128), (32, 64, 96, 128)))
"""Warpgroups that share the depth of a tile, and the tiles: another two have the next one meanwhile."""


def tiles(prologue: Prologue) -> tuple[PrologueTile, ...]:
    """All tiles; of those whose rows may be of gates of more images than there is room for, none."""
    found = []
    for tile, deep in (*((tile, 1) for tile in (*_TILES, *_THREE, *_PAIRS)), *((tile, _SHARE) for tile in _DEEP)):
        if (images := images_for(tile.m, prologue)) is not None:
            found.append(PrologueTile(tile, images, deep))
    return tuple(found)
