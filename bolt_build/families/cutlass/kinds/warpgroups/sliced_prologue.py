"""Kernels for one product of few tiles on Hopper whose A operand is transformed as it is loaded: the blocks of a
cluster share the depth of a tile, and each transforms its own part of it.

One warpgroup waits for what it transforms longer than for its products. Where tiles are few, the depth is what many
multiprocessors can share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import LEAST_STAGES
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_prologue import AFFINE, GATE
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_sliced import SLICED_TILES, SlicedTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.problems.prologue import Prologue
from bolt_build.families.cutlass.prologue_kind import images_for
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_IN_TURNS = 0.76
"""What two blocks of a multiprocessor take of the time that they would take one behind the other: each transforms while
the other multiplies. Fitted to 22 kernels on an H200, as they stand beside the usual ones of their shapes."""


@dataclass(frozen=True)
class SlicedPrologueTile:
    """A tile whose depth a cluster shares, and the images whose gates lie beside a step; 0 where there are scales."""

    tile: SlicedTile
    images: int = 0

    header: ClassVar[str] = "gemm_sliced_prologue"
    memory_mb: ClassVar[int] = SlicedTile.memory_mb
    group: ClassVar[str] = "split-K in clusters"

    @property
    def parameters(self) -> Named:
        of = (("prologue", "gate"), ("images", self.images)) if self.images else (("prologue", "affine"),)
        return (*self.tile.parameters, *of)

    @classmethod
    def read(cls, reader: Reader) -> SlicedPrologueTile:
        """Raises ValueError."""
        kind = reader.word("prologue", {"gate": True, "affine": False})
        images = reader.number("images") if kind else 0
        return cls(SlicedTile.read(reader), images)

    @property
    def table_bytes(self) -> int:
        """Shared memory of scales, shifts or gates of a step."""
        return self.tile.k * (2 * self.images if self.images else 2 * 4)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        if (reason := self.tile.refuse(gpu, product)) is not None:
            return reason
        if (found := self.tile.stages(gpu, self.table_bytes)) < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", found, LEAST_STAGES)
        return None

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """Predicted time."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        before = self.tile.k // 16 * (GATE if self.images else AFFINE) / speed
        alone = self.tile.seconds(product, work, target, before)
        blocks = self.tile.slices * self.tile.blocks(product.m, product.n)
        return alone if blocks <= gpu.sms else _IN_TURNS * alone

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::SlicedPrologue<64, 64, 4>`"""
        tile = self.tile
        return f"{SPACE}::SlicedPrologue<{tile.n}, {tile.k}, {tile.slices}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def __str__(self) -> str:
        return f"{self.tile} with {f'gates of {self.images} images' if self.images else 'scales'}"


def tiles(prologue: Prologue) -> tuple[SlicedPrologueTile, ...]:
    """All tiles; none where their rows may be of gates of more images than there is room for."""
    images = images_for(SlicedTile.m, prologue)
    return () if images is None else tuple(SlicedPrologueTile(tile, images) for tile in SLICED_TILES)
