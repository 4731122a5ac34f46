"""Run-time settings of compiled kernels: slices of the depth, and the order in which persistent blocks take tiles."""

from __future__ import annotations

from math import ceil

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.kernels import kernel_of
from bolt_build.families.cutlass.prediction import default_slices, other_slices
from bolt_build.families.cutlass.product import Product
from bolt_build.families.cutlass.warpgroups import WarpgroupTile
from bolt_build.targets import Target

_MOST_SLICES = 4
"""Other numbers of slices that are worth a measurement."""
_BANDS = ((2, 2), (4, 3), (8, 6))
"""Widths of bands, and the tiles that there must be along both axes before `warpgroup_order.h` goes in such bands."""
_ALONG = {"m": 1, "n": 2}


def slices_of(candidate: Candidate) -> int | None:
    """The number of slices that a candidate names, None for the default (or none at all)."""
    found = dict(candidate.settings).get("slices")
    return None if found is None else int(found)


def variants(product: Product, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
    """The same kernel with other settings than the candidate's, each once."""
    kernel = kernel_of(candidate)
    assert target.gpu is not None
    if kernel.partial:
        default = default_slices(product, kernel, target)
        counts = other_slices(product, kernel, target.gpu, default)[:_MOST_SLICES]
        choices: list[tuple[tuple[str, int | str], ...]] = [(("slices", count),) for count in counts]
    elif isinstance(kernel.tile, WarpgroupTile):
        choices = _orders(product, kernel.tile, target.gpu.sms)
    else:
        choices = []
    found = (Candidate(candidate.family, candidate.parameters, settings) for settings in choices)
    return tuple(variant for variant in found if variant != candidate)


def _orders(product: Product, tile: WarpgroupTile, sms: int) -> list[tuple[tuple[str, int | str], ...]]:
    """Other orders of the tiles, where there is more than one wave and more than one row and column of them."""
    down, across = ceil(product.m / tile.m), ceil(product.n / tile.n)
    if min(down, across) < 2 or down * across <= sms:
        return []
    bands = [width for width, least in _BANDS if min(down, across) >= least]
    # Without a setting, blocks follow each other along the axis with fewer tiles.
    other = "n" if across > down else "m"
    found: list[tuple[tuple[str, int | str], ...]] = [(("swizzle", width),) for width in bands]
    found.append((("along", other),))
    found += [(("swizzle", width), ("along", other)) for width in bands[-1:]]
    return found


def arguments_of(product: Product, candidate: Candidate, target: Target, pitch: int = 0) -> str:
    """The C++ arguments of the kernel with the candidate's settings. `pitch`: elements from a row of the output to the
    next, 0 for dense ones."""
    kernel, given = kernel_of(candidate), dict(candidate.settings)
    settings: list[tuple[str, int]] = []
    if kernel.partial:
        count = slices_of(candidate)
        settings.append(("slices", default_slices(product, kernel, target) if count is None else count))
    if "swizzle" in given:
        settings.append(("swizzle", int(given["swizzle"])))
    if "along" in given:
        settings.append(("along", _ALONG[str(given["along"])]))
    if pitch:
        settings.append(("y_row", pitch))
    return product.arguments(settings)
