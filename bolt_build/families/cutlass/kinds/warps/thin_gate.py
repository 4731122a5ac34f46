"""Kernels for a gate of images and the product of few channels that alone reads it: warps multiply their rows with the
gates as they load them (`thin.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.warps.thin import THIN_TILES, ThinTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.problems.prologue import Prologue
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class ThinGateTile:
    """A tile of `thin.py`, whose words of gates come beside those of x."""

    tile: ThinTile

    header: ClassVar[str] = "gemm_thin"
    memory_mb: ClassVar[int] = ThinTile.memory_mb
    group: ClassVar[str] = ThinTile.group
    images: ClassVar[int] = 1
    """A row has gates of its own, whatever image it is of."""

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("prologue", "gate"))

    @classmethod
    def read(cls, reader: Reader) -> ThinGateTile:
        """Raises ValueError."""
        reader.word("prologue", {"gate": True})
        return cls(ThinTile.read(reader))

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        return self.tile.refuse(gpu, product, beside=1)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """Predicted time: that of the product, with the gates' bytes."""
        return self.tile.seconds(product, work, target)

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::ThinGate<96, 24, 16, 16, bolt::cutlass_kernels::ThinLoads::ahead>`"""
        return f"{SPACE}::ThinGate<{self.tile.stated(product)}>"

    def packed(self, product: Product) -> str:
        return self.tile.packed(product)

    def __str__(self) -> str:
        return f"{self.tile} with gates"


def tiles(prologue: Prologue) -> tuple[ThinGateTile, ...]:
    """All tiles; none for scales of all images."""
    return tuple(map(ThinGateTile, THIN_TILES)) if prologue.gate else ()
