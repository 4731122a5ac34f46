"""Tiles of `wgmma.py`, `band.py` and `grouped_wgmma.py` that have whole images, and leave the means of what they store
of each."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GROUP_TILES, GroupTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_SUMS: Named = (("sums", "whole"),)
"""How a candidate says that tiles have whole images, whose means a warp has by itself, or with its tile's others."""
_ADDING = 10
"""Instructions that adding up takes of a result where a warp looks at its rows once for each image that these are of.
Warpgroups that share a tile look at them once, which takes no time that shows."""
_BANDS, GROUPS = 1.08, 1.2
"""How much longer kernels of bands take in all, and those of groups. With `_ADDING` they were fitted to the 14 kernels
of `product_mean_kernels.py` on an H200, each against its convolution and mean apart: off by 7%, and
each decided as measured."""
_LEFT = 2048
"""Bytes, at most, that warpgroups leave each other of a tile's image."""
_SLICES = "slices of the depth leave sums that are no results yet"


def _extents(tile: WgmmaTile | BandTile) -> dict[str, Any]:
    """The fields of a tile without means."""
    return {each.name: getattr(tile, each.name) for each in fields(tile)}


def _refuse_images(tile: WgmmaTile | BandTile, positions: int) -> str | None:
    """Why a tile does not have whole images of so many rows; None where it has."""
    if positions > tile.m:
        return Reason("an image has {} positions, a tile {} rows", positions, tile.m)
    if tile.cooperative and 2 * positions <= tile.m:
        form = "warpgroups that share a tile have one image, and {} positions are not most of its {} rows"
        return Reason(form, positions, tile.m)
    return None


def _tiles_down(tile: WgmmaTile | BandTile, images: int, positions: int) -> int:
    """Tiles of whole images. The rows behind these are computed twice."""
    return ceil(images / max(1, tile.m // positions))


def _functions(tile: WgmmaTile | BandTile, work: Work) -> int:
    """Instructions of a result, with those that add it up."""
    return work.functions + (0 if tile.cooperative else _ADDING)


@dataclass(frozen=True)
class MeanWgmmaTile(WgmmaTile):
    """A tile of WGMMA that leaves means."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_SUMS)

    @classmethod
    def read(cls, reader: Reader) -> MeanWgmmaTile:
        tile = WgmmaTile.read(reader)
        reader.word("sums", {"whole": "whole"})
        return of_wgmma(tile)

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        return product.m // product.images

    def store_bytes(self, residual: bool) -> int:
        """With what warpgroups that share a tile leave each other: `TensorSums` of warpgroup_store.h."""
        return super().store_bytes(residual) + (_LEFT if self.cooperative else 0)

    def rows_of(self, product: Product) -> Product:
        """The product as its tiles have it."""
        return replace(product, m=_tiles_down(self, product.images, self.positions(product)) * self.m)

    def refuse(self, gpu: Gpu, product: Product, *, again: bool = False) -> str | None:
        if (reason := super().refuse(gpu, self.rows_of(product), again=again)) is not None:
            return reason
        return _refuse_images(self, self.positions(product))

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        return super().refuse_whole(gpu, self.rows_of(product))

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return _SLICES

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return super().orders(self.rows_of(product), gpu)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        rows = self.rows_of(product)
        return super().seconds(rows, replace(work, m=rows.m, functions=_functions(self, work)), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means of whole images"


@dataclass(frozen=True)
class MeanBandTile(BandTile):
    """The same of bands."""

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_SUMS)

    @classmethod
    def read(cls, reader: Reader) -> MeanBandTile:
        tile = BandTile.read(reader)
        reader.word("sums", {"whole": "whole"})
        return of_bands(tile)

    def positions(self, product: Product) -> int:
        """Rows of an image, with those that are no pixels."""
        return Numbering.of(product).image

    def stages(self, gpu: Gpu, product: Product) -> int:
        """Beside what warpgroups that share a tile leave each other."""
        left = _LEFT if self.cooperative else 0
        return super().stages(replace(gpu, shared_memory=gpu.shared_memory - left), product)

    def blocks(self, product: Product) -> int:
        down = _tiles_down(self, product.images, self.positions(product))
        return aligned(down, self.cluster) * ceil(product.n / self.n)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        return super().refuse(gpu, product) or _refuse_images(self, self.positions(product))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        return _BANDS * super().seconds(product, replace(work, functions=_functions(self, work)), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means of whole images"


@dataclass(frozen=True)
class MeanGroupTile(GroupTile):
    """The same of groups."""

    tile: MeanWgmmaTile | MeanBandTile

    @classmethod
    def read(cls, reader: Reader) -> MeanGroupTile:
        tile = MeanBandTile.read(reader) if reader.has("bands") else MeanWgmmaTile.read(reader)
        return cls(tile, reader.number("groups"))


def of_wgmma(tile: WgmmaTile) -> MeanWgmmaTile:
    """The tile, as it leaves means."""
    return MeanWgmmaTile(**_extents(tile))


def of_bands(tile: BandTile) -> MeanBandTile:
    """The same of bands."""
    return MeanBandTile(**_extents(tile))


def of_groups(tile: GroupTile) -> MeanGroupTile:
    """The same of groups."""
    own = tile.tile
    return MeanGroupTile(of_bands(own) if isinstance(own, BandTile) else of_wgmma(own), tile.groups)


MEAN_TILES = tuple(of_wgmma(tile) for tile in FEW_SUMS)
MEAN_BAND_TILES = tuple(of_bands(tile) for tile in BAND_TILES)
MEAN_GROUP_TILES = tuple(of_groups(tile) for tile in GROUP_TILES)
