"""How a GPU normalises in slabs that registers hold, in clusters of other sizes than `held` has, which it holds all at
once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.norms import norm_held
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest_for
from bolt_build.families.portable.kernels.norms.norm_nest import element_bytes
from bolt_build.targets import Gpu, Target

CLUSTERS = (3, 5, 6, 7)
"""Blocks of a cluster: those that `held` has no clusters of."""
_LEAST, _FULL, _THREADS = 128, 0.7, 512
"""Threads of a block at least: clusters of blocks of a warp took three times as long as an H200's memory. The part of
what a GPU holds at once that slabs take at least: of fewer slabs, it holds clusters of four or eight as well. And
threads of a multiprocessor beyond which more of them are not better."""


def turns(tile: HeldTile, nest: HeldNest, gpu: Gpu) -> float:
    """The slabs, over what a GPU holds of them at once."""
    return nest.slabs(tile.width) / clusters_at_once(tile.cluster, tile.resident, gpu)


def tiles(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[HeldTile]:
    """Of each width of slabs and each size of clusters one kernel of which all clusters are there at once and registers
    have room for all that a thread wants: with threads enough, in many blocks, with few idle threads. Which clusters
    are best is for a GPU to say."""
    most = dict[tuple[int, int], HeldTile]()

    def rank(tile: HeldTile) -> tuple[int, int, float]:
        return min(tile.threads * tile.resident, _THREADS), tile.resident, tile.used(nest)

    for tile in norm_held.tiles(nest, element, gpu, CLUSTERS):
        if (
            tile.threads >= _LEAST
            and tile.resident <= tile.at_once(element, gpu)[0]
            and _FULL <= turns(tile, nest, gpu) <= 1
        ):
            size = tile.across, tile.cluster
            most[size] = max(most.get(size, tile), tile, key=rank)
    yield from most.values()


def refuse_tile(tile: HeldTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if tile.cluster not in CLUSTERS or tile.threads not in norm_held.THREADS:
        return "there are kernels of 3, 5, 6 or 7 blocks, and of 32 to 512 threads in whole warps"
    return norm_held.refuse_cut(tile, nest, element, gpu)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := norm_held.refuse(problem, gpu)) is not None:
        return reason
    return None if gpu.warpgroup_mma else "blocks form clusters from sm_90 on"


_ALL = 0.85
"""What slabs take that are all there at once, of what is predicted of those that `held` cuts. Fitted to 23 kernels that
an H200 has timed."""


def _seconds(problem: KernelProblem, tile: HeldTile, target: Target) -> float:
    return _ALL * norm_held.seconds(problem, tile, target)


FORM: Form[HeldTile] = replace(
    norm_held.FORM,
    algorithm="fitted",
    refuse=_refuse,
    tiles=lambda problem, gpu: tiles(held_nest_for(problem), element_bytes(problem), gpu),
    refuse_tile=lambda problem, tile, gpu: refuse_tile(tile, held_nest_for(problem), element_bytes(problem), gpu),
    seconds=_seconds,
)
