"""Tiles of `wgmma.py` and `band.py` that leave mean and squares of each image and channel of what they store, of parts
of the image."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.kinds.wgmma import WGMMA_TILES, WgmmaTile
from bolt_build.families.cutlass.product import Product, Work
from bolt_build.targets import Gpu, Target

_MOMENTS: Named = (("sums", "moments"),)
"""How a candidate says that its kernel leaves them."""
_WORDS = {"moments": "moments"}
_BOX = 64
"""Rows of a box, as warpgroups store them."""
_ADDING = 5
"""A guess at the instructions that adding up takes of a result."""
_SLICES = "slices of the depth leave sums that are no results yet"


def _extents(tile: WgmmaTile | BandTile) -> dict[str, Any]:
    """The fields of a tile without moments."""
    return {each.name: getattr(tile, each.name) for each in fields(tile)}


def _granule(tile: WgmmaTile | BandTile) -> int:
    """Rows of a part: of a warpgroup's boxes those that follow each other (`TileStore::granule`)."""
    return tile.m if tile.warpgroups == 1 else _BOX


def _work(work: Work) -> Work:
    return replace(work, functions=work.functions + _ADDING)


@dataclass(frozen=True)
class MomentWgmmaTile(WgmmaTile):
    """A tile of WGMMA that leaves moments."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_MOMENTS)

    @classmethod
    def read(cls, reader: Reader) -> MomentWgmmaTile:
        tile = WgmmaTile.read(reader)
        reader.word("sums", _WORDS)
        return _of_wgmma(tile)

    @property
    def granule(self) -> int:
        return _granule(self)

    def image_rows(self, product: Product) -> tuple[int, int]:
        """Of an image, and of all."""
        return product.m // product.images, product.m

    def refuse(self, gpu: Gpu, product: Product, *, again: bool = False) -> str | None:
        if self.halved:
            return "halves of tiles have no whole boxes of rows"
        return super().refuse(gpu, product, again=again)

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return _SLICES

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        return super().seconds(product, _work(work), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with moments of images"


@dataclass(frozen=True)
class MomentBandTile(BandTile):
    """The same of bands."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_MOMENTS)

    @classmethod
    def read(cls, reader: Reader) -> MomentBandTile:
        tile = BandTile.read(reader)
        reader.word("sums", _WORDS)
        return _of_bands(tile)

    @property
    def granule(self) -> int:
        return _granule(self)

    def image_rows(self, product: Product) -> tuple[int, int]:
        """With those that are no pixels."""
        numbered = Numbering.of(product)
        return numbered.image, numbered.positions

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        return super().seconds(product, _work(work), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with moments of images"


def _of_wgmma(tile: WgmmaTile) -> MomentWgmmaTile:
    return MomentWgmmaTile(**_extents(tile))


def _of_bands(tile: BandTile) -> MomentBandTile:
    return MomentBandTile(**_extents(tile))


def with_moments(tile: WgmmaTile | BandTile) -> MomentWgmmaTile | MomentBandTile:
    """The tile, as it leaves moments."""
    return _of_bands(tile) if isinstance(tile, BandTile) else _of_wgmma(tile)


MOMENT_TILES = tuple(_of_wgmma(tile) for tile in WGMMA_TILES if not tile.halved)
MOMENT_BAND_TILES = tuple(_of_bands(tile) for tile in BAND_TILES)
