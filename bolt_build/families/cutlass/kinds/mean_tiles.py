"""Tiles of `wgmma.py`, `band.py` and `grouped_wgmma.py` whose warps add up the columns of what they store, and leave
the means of images."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.means import L2_RATE, LAST, ROUND
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.band import BAND_TILES, BandTile, Numbering
from bolt_build.families.cutlass.kinds.grouped_wgmma import GROUP_TILES, GroupTile
from bolt_build.families.cutlass.kinds.kind import gpu_of
from bolt_build.families.cutlass.kinds.wgmma import WGMMA_TILES, WgmmaTile
from bolt_build.families.cutlass.product import Product, Work, aligned
from bolt_build.families.cutlass.settings import Settings
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

WHOLE = "whole"
"""How a candidate says that tiles have whole images, whose means a warp has by itself, or with its tile's others."""
_WAYS = {LAST: False, WHOLE: True}
_STRIP = 64
"""Rows whose sums a warpgroup leaves at once."""
_ASKED = 8
"""Sums of an image that a thread asks for at once."""
_ADDING = 3
"""Instructions that adding up takes of a result: it comes from shared memory, becomes fp32, and is of an image or not.
A guess, as is that an image's last warp is seen by `ROUND` as the last block of a depthwise convolution is."""
_LEFT = 2048
"""Bytes, at most, that warpgroups leave each other of a tile's image."""
_SLICES = "slices of the depth leave sums that are no results yet"


def _stated(whole: bool) -> Named:
    return (("sums", WHOLE if whole else LAST),)


def _extents(tile: WgmmaTile | BandTile) -> dict[str, Any]:
    """The fields of a tile without means."""
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
    positions = _positions(tile, product)
    if isinstance(tile, WgmmaTile) and tile.halved:
        return "halves of tiles have no whole images"
    if positions > tile.m:
        return Reason("an image has {} positions, a tile {} rows", positions, tile.m)
    if tile.cooperative and 2 * positions <= tile.m:
        form = "warpgroups that share a tile have one image, and {} positions are not most of its {} rows"
        return Reason(form, positions, tile.m)
    return None


def _tiles_down(tile: WgmmaTile | BandTile, product: Product) -> int:
    """Tiles of whole images. The rows behind these are computed twice."""
    return ceil(product.images / max(1, tile.m // _positions(tile, product)))


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
        tile, whole = WgmmaTile.read(reader), reader.word("sums", _WAYS)
        return cls(**_extents(tile), whole=whole)

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        return _positions(self, product)

    def store_bytes(self, residual: bool) -> int:
        """With what warpgroups that share a tile leave each other: `TensorSums` of warpgroup_store.h."""
        return super().store_bytes(residual) + (_LEFT if self.whole and self.cooperative else 0)

    def rows_of(self, product: Product) -> Product:
        """The product as its tiles have it."""
        return replace(product, m=_tiles_down(self, product) * self.m) if self.whole else product

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
        alone = super().seconds(rows, replace(work, m=rows.m, functions=work.functions + _ADDING), target)
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
        tile, whole = BandTile.read(reader), reader.word("sums", _WAYS)
        return cls(**_extents(tile), whole=whole)

    def positions(self, product: Product) -> int:
        """Rows of an image."""
        return _positions(self, product)

    def stages(self, gpu: Gpu, product: Product) -> int:
        """Beside what warpgroups that share a tile leave each other."""
        left = _LEFT if self.whole and self.cooperative else 0
        return super().stages(replace(gpu, shared_memory=gpu.shared_memory - left), product)

    def blocks(self, product: Product) -> int:
        if not self.whole:
            return super().blocks(product)
        return aligned(_tiles_down(self, product), self.cluster) * ceil(product.n / self.n)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := super().refuse(gpu, product)) is not None:
            return reason
        return _refuse_images(self, product) if self.whole else None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := super().refuse_whole(gpu, product)) is not None:
            return reason
        return None if self.whole else _refuse_counted(product.images, ceil(product.n / self.n))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        alone = super().seconds(product, replace(work, functions=work.functions + _ADDING), target)
        if self.whole:
            return alone
        return alone + _ending(product, _rounds(self.blocks(product), self, target), target)

    def __str__(self) -> str:
        return f"{super().__str__()}, with means{' of whole images' if self.whole else ''}"


@dataclass(frozen=True)
class MeanGroupTile(GroupTile):
    """The same of groups."""

    tile: MeanWgmmaTile | MeanBandTile

    @classmethod
    def read(cls, reader: Reader) -> MeanGroupTile:
        tile = MeanBandTile.read(reader) if reader.has("bands") else MeanWgmmaTile.read(reader)
        return cls(tile, reader.number("groups"))


def of_wgmma(tile: WgmmaTile, *, whole: bool) -> MeanWgmmaTile:
    """The tile, as it leaves means."""
    return MeanWgmmaTile(**_extents(tile), whole=whole)


def of_bands(tile: BandTile, *, whole: bool) -> MeanBandTile:
    """The same of bands."""
    return MeanBandTile(**_extents(tile), whole=whole)


def of_groups(tile: GroupTile, *, whole: bool) -> MeanGroupTile:
    """The same of groups."""
    own = tile.tile
    inner = of_bands(own, whole=whole) if isinstance(own, BandTile) else of_wgmma(own, whole=whole)
    return MeanGroupTile(inner, tile.groups)


_WHOLE = (False, True)
MEAN_TILES = tuple(of_wgmma(tile, whole=whole) for tile in WGMMA_TILES for whole in _WHOLE)
MEAN_BAND_TILES = tuple(of_bands(tile, whole=whole) for tile in BAND_TILES for whole in _WHOLE)
MEAN_GROUP_TILES = tuple(of_groups(tile, whole=whole) for tile in GROUP_TILES for whole in _WHOLE)
