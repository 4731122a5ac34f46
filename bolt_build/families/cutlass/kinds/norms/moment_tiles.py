"""Tiles of kernels that leave mean and squares of each image and channel of what they store, of parts of images:
those of `wgmma.py`, `band.py`, `resident.py` and `rolling.py`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.kinds.windows.resident import RESIDENT_TILES, ResidentTile
from bolt_build.families.cutlass.kinds.windows.rolling import ROLLING_TILES, RollingTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.settings import Settings
from bolt_build.targets import Gpu, Target

Tile = WgmmaTile | BandTile | ResidentTile | RollingTile

_MOMENTS: Named = (("sums", "moments"),)
"""How a candidate says that its kernel leaves them."""
_BOX, _STRIP = 64, 16
"""Rows of a box, as warpgroups store them, and pixels of a row of a strip that a warp has."""
# Ten kernels of networks on an H200, each against the same one without moments: instructions that adding up takes of a
# result, of bands, whose warps ask which rows are pixels, too; seconds that windows take longer, which products hide
# no more of, and those of 128 by 64 results of a resident tile and of 64 by 32 of a rolling row. With the pass behind
# them kernels are off by 6%, and by 13% at most.
_ADDING, _IN_BANDS = 12, 20
_WINDOWS, _RESIDENT, _ROW = 2.0e-6, 0.64e-6, 0.117e-6


@dataclass(frozen=True)
class Parts:
    """Of images whose moments are left: an image has so many of all `rows`, as a kernel counts them, and a part is what
    it has of `granule` of them."""

    positions: int
    rows: int
    granule: int

    @property
    def most(self) -> int:
        """Parts of an image at most (`ImageMoments::most`)."""
        return (self.positions + self.granule - 2) // self.granule + 1


def _extents(tile: Tile) -> dict[str, Any]:
    """The fields of a tile without moments."""
    return {each.name: getattr(tile, each.name) for each in fields(tile)}


def _read(reader: Reader) -> None:
    reader.word("sums", {"moments": "moments"})


def _with(work: Work, adding: float) -> Work:
    return replace(work, functions=work.functions + round(adding))


def _depths(product: Product) -> int:
    """Images of the product that are one of those that are normalised: depths of a volume."""
    return dict(product.shape)["batch"] // product.images


def _granule(tile: WgmmaTile | BandTile) -> int:
    """Of a warpgroup's boxes those that follow each other (`TileStore::granule`)."""
    return tile.m if tile.warpgroups == 1 else _BOX


@dataclass(frozen=True)
class MomentWgmmaTile(WgmmaTile):
    """A tile of WGMMA that leaves moments."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_MOMENTS)

    @classmethod
    def read(cls, reader: Reader) -> MomentWgmmaTile:
        tile = WgmmaTile.read(reader)
        _read(reader)
        return cls(**_extents(tile))

    def parts(self, product: Product, settings: Settings) -> Parts:
        return Parts(product.m // product.images, product.m, _granule(self))

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "slices of the depth leave sums that are no results yet"

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        # Warps look at a box once for each image that it has rows of.
        images = 1 + _BOX / (product.m // product.images)
        added = super().seconds(product, _with(work, _ADDING * images), target)
        return added + (_WINDOWS if product.taps > 1 else 0.0)

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
        _read(reader)
        return cls(**_extents(tile))

    def parts(self, product: Product, settings: Settings) -> Parts:
        """Of numbered positions, some of which are no pixels."""
        numbered = Numbering.of(product)
        return Parts(numbered.image * _depths(product), numbered.positions, _granule(self))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        return super().seconds(product, _with(work, _IN_BANDS), target) + _WINDOWS

    def __str__(self) -> str:
        return f"{super().__str__()}, with moments of images"


@dataclass(frozen=True)
class MomentResidentTile(ResidentTile):
    """The same of weights in registers: a tile is a part of one image."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_MOMENTS)

    @classmethod
    def read(cls, reader: Reader) -> MomentResidentTile:
        tile = ResidentTile.read(reader)
        _read(reader)
        return cls(**_extents(tile))

    def parts(self, product: Product, settings: Settings) -> Parts:
        return Parts(self.tiles(product) // product.images, self.tiles(product), 1)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        each = self.tiles(product) * self.groups(product) / gpu_of(target).sms
        return super().seconds(product, work, target) + _RESIDENT * each * self.pixels * self.channels / (128 * 64)

    def __str__(self) -> str:
        return f"{super().__str__()}, with moments of images"


@dataclass(frozen=True)
class MomentRollingTile(RollingTile):
    """The same of sums that roll: a warp's pixels of a strip are a part."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_MOMENTS)

    @classmethod
    def read(cls, reader: Reader) -> MomentRollingTile:
        tile = RollingTile.read(reader)
        _read(reader)
        return cls(**_extents(tile))

    def parts(self, product: Product, settings: Settings) -> Parts:
        shape = dict(product.shape)
        strips = ceil(shape["out_h"] / settings.strip) * ceil(shape["out_w"] / self.columns)
        each = strips * (self.columns // _STRIP) * _depths(product)
        return Parts(each, each * product.images, 1)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        rows = product.m / (_BOX * gpu_of(target).sms * self.teams)
        return super().seconds(product, work, target) + _ROW * rows * product.n / 32

    def __str__(self) -> str:
        return f"{super().__str__()}, with moments of images"


def with_moments(tile: Tile) -> MomentWgmmaTile | MomentBandTile | MomentResidentTile | MomentRollingTile:
    """The tile, as it leaves moments."""
    if isinstance(tile, WgmmaTile):
        return MomentWgmmaTile(**_extents(tile))
    if isinstance(tile, BandTile):
        return MomentBandTile(**_extents(tile))
    if isinstance(tile, ResidentTile):
        return MomentResidentTile(**_extents(tile))
    return MomentRollingTile(**_extents(tile))


MOMENT_TILES = tuple(MomentWgmmaTile(**_extents(tile)) for tile in FEW_SUMS)
MOMENT_BAND_TILES = tuple(MomentBandTile(**_extents(tile)) for tile in BAND_TILES)
MOMENT_RESIDENT_TILES = tuple(MomentResidentTile(**_extents(tile)) for tile in RESIDENT_TILES)
MOMENT_ROLLING_TILES = tuple(MomentRollingTile(**_extents(tile)) for tile in ROLLING_TILES if tile.columns >= _STRIP)
