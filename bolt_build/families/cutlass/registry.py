"""The kinds of kernels of this family, a line each. Of kernels predicted alike, an earlier kind's comes first."""

from __future__ import annotations

import functools

from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.cutlass.kinds.kind import Kind
from bolt_build.families.cutlass.kinds.norms import normed_images, wgmma_means
from bolt_build.families.cutlass.kinds.norms.normed_volumes import NormedVolumes
from bolt_build.families.cutlass.kinds.norms.sliced_norm import SlicedNorm
from bolt_build.families.cutlass.kinds.norms.wgmma_norm import WgmmaNorm
from bolt_build.families.cutlass.kinds.norms.wgmma_prenorm import WgmmaPrenorm
from bolt_build.families.cutlass.kinds.warpgroups import (
    sliced_prologue,
    wgmma,
    wgmma_chain,
    wgmma_prologue,
    wgmma_sliced,
)
from bolt_build.families.cutlass.kinds.warpgroups.gated import (
    GATED_WARP_TILES,
    GATED_WGMMA_TILES,
    GatedKind,
    GatedWarpTile,
    GatedWgmmaTile,
)
from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GroupedWgmma
from bolt_build.families.cutlass.kinds.warpgroups.kept import KeptActivation
from bolt_build.families.cutlass.kinds.warpgroups.shuffled import Shuffled
from bolt_build.families.cutlass.kinds.warps import thin, thin_chain, thin_gate, warp, warp_chain
from bolt_build.families.cutlass.kinds.windows import band, resident, resident_chain, rolling
from bolt_build.families.cutlass.kinds.windows.grouped_band import GroupedBands
from bolt_build.families.cutlass.kinds.windows.pooled import Pooled
from bolt_build.families.cutlass.kinds.windows.stem import Stem
from bolt_build.families.cutlass.kinds.windows.volume import Volumes
from bolt_build.families.cutlass.one_product import ProductKind
from bolt_build.families.cutlass.product_chain import ChainKind
from bolt_build.families.cutlass.prologue_kind import PrologueKind

KINDS: tuple[Kind, ...] = (
    GroupedBands(),
    GroupedWgmma(),
    ProductKind(warp.TILES, warp.WarpTile.read),
    ProductKind(wgmma.WGMMA_TILES, wgmma.WgmmaTile.read),
    ProductKind(wgmma_sliced.SLICED_TILES, wgmma_sliced.SlicedTile.read),
    ProductKind(band.BAND_TILES, band.BandTile.read),
    ProductKind(resident.RESIDENT_TILES, resident.ResidentTile.read),
    ProductKind(rolling.ROLLING_TILES, rolling.RollingTile.read),
    ProductKind(thin.THIN_TILES, thin.ThinTile.read),
    ProductKind(warp.NARROW_TILES, warp.WarpTile.read, narrow=True),
    ChainKind(wgmma_chain.tiles, wgmma_chain.WgmmaChainTile.read),
    ChainKind(warp_chain.tiles, warp_chain.WarpChainTile.read),
    ChainKind(resident_chain.tiles, resident_chain.ResidentChainTile.read),
    ChainKind(thin_chain.tiles, thin_chain.ThinChainTile.read),
    GatedKind(GATED_WGMMA_TILES, GatedWgmmaTile.read),
    GatedKind(GATED_WARP_TILES, GatedWarpTile.read),
    Stem(),
    Pooled(),
    PrologueKind(wgmma_prologue.tiles, wgmma_prologue.PrologueTile.read),
    PrologueKind(sliced_prologue.tiles, sliced_prologue.SlicedPrologueTile.read),
    PrologueKind(thin_gate.tiles, thin_gate.ThinGateTile.read),
    WgmmaNorm(),
    SlicedNorm(),
    WgmmaPrenorm(),
    Volumes(),
    *wgmma_means.kinds(keeps=True),
    *wgmma_means.kinds(keeps=False),
    *normed_images.kinds(),
    NormedVolumes(),
    Shuffled(),
    KeptActivation(),
)


@functools.lru_cache(maxsize=4096)
def kinds_for(problem: KernelProblem) -> tuple[Kind, ...]:
    """The kinds that are for problems of this sort."""
    return tuple(kind for kind in KINDS if kind.serves(problem))


def kind_of(problem: KernelProblem, candidate: Candidate) -> Kind | None:
    """The kind of a candidate for the problem, None where it is of none."""
    return next((kind for kind in kinds_for(problem) if kind.reads(candidate)), None)
