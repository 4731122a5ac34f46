"""Tiles of `wgmma.py`, `band.py` and `grouped_wgmma.py` whose warps add up the columns of what they store, and leave
the means of images."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.means import L2_RATE, LAST, ROUND
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.groups import GroupedProduct
from bolt_build.families.cutlass.kinds.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.kinds.grouped_wgmma import GROUP_TILES, GroupTile
from bolt_build.families.cutlass.kinds.kind import gpu_of
from bolt_build.families.cutlass.kinds.wgmma import WGMMA_TILES, WgmmaTile
from bolt_build.families.cutlass.product import Product, Work
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

WHOLE = "whole"
"""How a candidate says that tiles have whole images, whose means a warp has by itself: nobody is waited for."""
_WAYS = {LAST: False, WHOLE: True}
_STRIP = 64
"""Rows whose sums a warpgroup leaves at once."""
_ASKED = 8
"""Sums of an image that a thread asks for at once."""
ADDING = 3
"""Instructions that adding up takes of a result: it comes from shared memory, becomes fp32, and is of an image or not.
A guess, as is that an image's last warp is seen by `ROUND` as the last block of a depthwise convolution is."""
_SLICES = "slices of the depth leave sums that are no results yet"


def _stated(whole: bool) -> Named:
    return (("sums", WHOLE if whole else LAST),)


def _extents(tile: WgmmaTile | BandTile | GroupTile) -> dict[str, Any]:
    """The fields of a tile, with or without means."""
    return {each.name: getattr(tile, each.name) for each in fields(tile)}


def _refuse_counted(images: int, across: int) -> str | None:
    """Why warps cannot be counted where a row has so many tiles; None where they can."""
    if images * across <= MOST_COUNTERS:
        return None
    return Reason("{} parts of images are more than the {} that there are counters for", images * across, MOST_COUNTERS)


def _positions(tile: WgmmaTile | BandTile, product: Product) -> int:
    """Rows of an image, with those of a band that are no pixels."""
    return Numbering.of(product).image if isinstance(tile, BandTile) else product.m // product.images


def _refuse_images(tile: WgmmaTile | BandTile, product: Product) -> str | None:
    """Why a tile does not have whole images; None where it has."""
    if tile.cooperative:
        return "several warpgroups have rows of an image"
    positions = _positions(tile, product)
    if isinstance(tile, BandTile):
        if tile.m % positions == 0:
            return None
        return Reason("{} positions of an image do not divide the {} of a tile", positions, tile.m)
    if tile.halved:
        return "halves of tiles have no whole images"
    return None if positions <= tile.m else Reason("an image has {} pixels, a tile {} rows", positions, tile.m)


def _in_images(tile: WgmmaTile | BandTile, product: Product) -> Product:
    """The product with the rows that lie between whole images in its tiles, which are computed twice."""
    if isinstance(tile, BandTile):
        return product
    together = max(1, tile.m // _positions(tile, product))
    return replace(product, m=ceil(product.images / together) * tile.m)


def _ending(product: Product, rounds: int, target: Target) -> float:
    """Seconds in which sums are there for all, warps are counted and the last one reads: of a block's last tile, or of
    each of its `rounds` where nothing is multiplied meanwhile."""
    strips = ceil(product.m / product.images / _STRIP)
    moved = 2 * 4 * (ceil(product.m / _STRIP) + product.images) * product.n
    return rounds * ROUND * (2 + ceil(strips / _ASKED)) + moved / (L2_RATE * target.bandwidth)


def _rounds(blocks: int, tile: WgmmaTile | BandTile, target: Target) -> int:
    """Tiles of a block behind which nothing is multiplied."""
    return ceil(blocks / gpu_of(target).sms) if tile.teams == 1 else 1


@dataclass(frozen=True)
class MeanWgmmaTile(WgmmaTile):
    """A tile of WGMMA that leaves means: its warps those of `whole` images, or whoever comes last to an image."""

    whole: bool = False

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_stated(self.whole))

    @classmethod
    def read(cls, reader: Reader) -> MeanWgmmaTile:
        return cls(**_extents(WgmmaTile.read(reader)), whole=reader.word("sums", _WAYS))

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        return _positions(self, product)

    def rows_of(self, product: Product) -> Product:
        """The product as its tiles have it."""
        return _in_images(self, product) if self.whole else product

    def refuse(self, gpu: Gpu, product: Product, *, again: bool = False) -> str | None:
        if (reason := super().refuse(gpu, self.rows_of(product), again=again)) is not None:
            return reason
        return _refuse_images(self, product) if self.whole else None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := super().refuse_whole(gpu, self.rows_of(product))) is not None:
            return reason
        return None if self.whole else _refuse_counted(product.images, ceil(product.n / self.n))

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return _SLICES

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return super().orders(self.rows_of(product), gpu)

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        rows = self.rows_of(product)
        alone = super().seconds(rows, replace(work, m=rows.m, functions=work.functions + ADDING), target)
        if self.whole:
            return alone
        return alone + _ending(product, _rounds(self.blocks(product.m, product.n), self, target), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means{' of whole images' if self.whole else ''}"


@dataclass(frozen=True)
class MeanBandTile(BandTile):
    """The same of bands."""

    whole: bool = False

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_stated(self.whole))

    @classmethod
    def read(cls, reader: Reader) -> MeanBandTile:
        return cls(**_extents(BandTile.read(reader)), whole=reader.word("sums", _WAYS))

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        return _positions(self, product)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := super().refuse(gpu, product)) is not None:
            return reason
        return _refuse_images(self, product) if self.whole else None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := super().refuse_whole(gpu, product)) is not None:
            return reason
        return None if self.whole else _refuse_counted(product.images, ceil(product.n / self.n))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        alone = super().seconds(product, replace(work, functions=work.functions + ADDING), target)
        if self.whole:
            return alone
        return alone + _ending(product, _rounds(self.blocks(product), self, target), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means{' of whole images' if self.whole else ''}"


@dataclass(frozen=True)
class MeanGroupTile(GroupTile):
    """The same of groups."""

    whole: bool = False

    @property
    def parameters(self) -> Named:
        return (*super().parameters, *_stated(self.whole))

    @classmethod
    def read(cls, reader: Reader) -> MeanGroupTile:
        return cls(**_extents(GroupTile.read(reader)), whole=reader.word("sums", _WAYS))

    def product(self, what: GroupedProduct) -> Product:
        found = super().product(what)
        return _in_images(self.tile, found) if self.whole else found

    def positions(self, what: GroupedProduct) -> int:
        """Rows of an image."""
        return _positions(self.tile, what.product)

    def refuse_means(self, what: GroupedProduct) -> str | None:
        """Why it leaves no means of images in its way; None where it does."""
        if self.whole:
            return _refuse_images(self.tile, what.product)
        return _refuse_counted(what.product.images, self.columns(what) // self.tile.n)

    def ending(self, what: GroupedProduct, target: Target) -> float:
        """Seconds that means take behind the results."""
        if self.whole:
            return 0.0
        every, tile = replace(self.product(what), n=self.columns(what)), self.tile
        blocks = tile.blocks(every) if isinstance(tile, BandTile) else tile.blocks(every.m, every.n)
        return _ending(what.product, _rounds(blocks, tile, target), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means{' of whole images' if self.whole else ''}"


_WHOLE = (False, True)
MEAN_TILES = tuple(MeanWgmmaTile(**_extents(tile), whole=whole) for tile in WGMMA_TILES for whole in _WHOLE)
MEAN_BAND_TILES = tuple(MeanBandTile(**_extents(tile), whole=whole) for tile in BAND_TILES for whole in _WHOLE)
MEAN_GROUP_TILES = tuple(MeanGroupTile(**_extents(tile), whole=whole) for tile in GROUP_TILES for whole in _WHOLE)
