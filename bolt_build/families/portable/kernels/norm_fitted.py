"""How a GPU normalises in slabs that registers hold, in as many clusters as it holds at once: these have all slabs, one
each, or one after the other with the next one on its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside
from bolt_build.families.common.cost import moved
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels import norm_ahead, norm_held
from bolt_build.families.portable.kernels.clusters import clusters_at_once
from bolt_build.families.portable.kernels.norm_ahead import AheadTile
from bolt_build.families.portable.kernels.norm_held import HeldTile, emit_held
from bolt_build.families.portable.kernels.norm_held_nest import HeldNest, held_nest_for
from bolt_build.families.portable.kernels.norm_nest import element_bytes, operands_share, serves
from bolt_build.targets import Gpu, Target

CLUSTERS = range(3, 9)
"""Blocks of a cluster. Those of one or two are of multiprocessors side by side, which a GPU has for all of them."""
_FULL = 0.7
"""The part of what a GPU holds at once that slabs of one cluster each take at least: of fewer slabs, it holds clusters
of four or eight as well."""
_MANY = {"one": False, "many": True}


@dataclass(frozen=True)
class FittedTile:
    """Slabs are cut as `held` says. Each cluster has one, or `many` one after the other: as many clusters as the GPU
    says that it holds share all slabs."""

    held: HeldTile
    many: bool

    @property
    def parameters(self) -> Named:
        return (*self.held.parameters, ("slabs", "many" if self.many else "one"))

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> FittedTile:
        return FittedTile(HeldTile.read(reader), reader.word("slabs", _MANY))

    @property
    def ahead(self) -> AheadTile:
        """The kernel that has many of them."""
        return AheadTile(self.held, 2)

    def turns(self, nest: HeldNest, gpu: Gpu) -> float:
        """Slabs of each cluster, as far as is known without the GPU."""
        return nest.slabs(self.held.width) / clusters_at_once(self.held.cluster, self.held.resident, gpu)


def tiles(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[FittedTile]:
    """Of each width of slabs and each size of clusters one kernel: with threads enough at once, in many blocks, with
    few idle threads. Which clusters are best is for a GPU to say."""
    most = dict[tuple[int, int, bool], FittedTile]()

    def rank(tile: FittedTile) -> tuple[bool, int, int, float]:
        held = tile.held
        roomy = held.resident <= held.at_once(element, gpu)[0]
        return roomy, min(held.threads * held.resident, _THREADS), held.resident, held.used(nest)

    for tile in _legal(nest, element, gpu):
        size = tile.held.across, tile.held.cluster, tile.many
        most[size] = max(most.get(size, tile), tile, key=rank)
    yield from most.values()


def _legal(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[FittedTile]:
    """Clusters that hold one slab each, and are all there at once, but for those that `held` has too; and clusters that
    hold several, of which registers have room for all that a thread wants."""
    for held in norm_held.tiles(nest, element, gpu, CLUSTERS):
        one = FittedTile(held, many=False)
        if held.cluster not in norm_held.CLUSTERS and _FULL <= one.turns(nest, gpu) <= 1:
            yield one
        if held.resident != held.at_once(element, gpu)[0]:
            continue
        shared = one.ahead.shared(nest, element)
        if shared <= gpu.shared_memory:
            blocks = min(held.resident, beside(held.threads, 1, shared, gpu))
            many = FittedTile(replace(held, resident=blocks), many=True)
            if many.turns(nest, gpu) > 1:
                yield many


def refuse_tile(tile: FittedTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if tile.held.cluster not in CLUSTERS or tile.held.threads not in norm_held.THREADS:
        return "there are kernels of 3 to 8 blocks, and of 32 to 512 threads in whole warps"
    if (reason := norm_held.refuse_cut(tile.held, nest, element, gpu)) is not None:
        return reason
    return norm_ahead.refuse_shared(tile.ahead, nest, element, gpu) if tile.many else None


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := norm_held.refuse(problem, gpu)) is not None:
        return reason
    return None if gpu.warpgroup_mma else "blocks form clusters from sm_90 on"


_ALL = 0.92
"""A guess at what slabs take that are all there at once, of what is predicted of those that `held` cuts: many of these
were in clusters of which one or two began when the others had ended."""
_BEGIN, _MEET, _STREAM, _ISSUED, _THREADS = 4.9e-6, 0.5e-6, 0.85, 0.4, 512
"""Of many slabs: seconds until the first one has come and while the last one goes, as `ahead` has them; guesses at the
seconds of a slab for a step of a cluster's size, and at what memory takes, which reads the next slab meanwhile; the
part of instructions that no memory hides; and threads of a multiprocessor below which these wait for each other."""


def _seconds(problem: KernelProblem, tile: FittedTile, target: Target) -> float:
    """Of many slabs, each turn takes as long as memory for all that are there, or as a block for its own."""
    if not tile.many:
        return _ALL * norm_held.seconds(problem, tile.held, target)
    gpu, nest, element = target.gpu, held_nest_for(problem), element_bytes(problem)
    assert gpu is not None, "registers are a GPU's"
    turns = tile.turns(nest, gpu)
    reached = norm_held.lines(tile.held, nest, element) * operands_share(nest)
    memory = moved(problem.nbytes, target) / reached * _STREAM / turns
    own = norm_held.alone(tile.held) + log2(tile.held.cluster) * _MEET
    few = max(1.0, _THREADS / (tile.held.threads * tile.held.resident))
    return float(_BEGIN + ceil(turns) * max(memory, own) + _ISSUED * few * norm_held.issued(tile.held, nest, gpu))


def _emit(problem: KernelProblem, tile: FittedTile, at: StepExpressions) -> StepCode:
    if not tile.many:
        return emit_held(problem, tile.held, "norm_in_registers", "", at)
    return emit_held(problem, tile.held, "norm_in_registers_ahead", "0, ", at)


FORM: Form[FittedTile] = Form(
    "fitted",
    serves,
    _refuse,
    lambda problem, gpu: tiles(held_nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, held_nest_for(problem), element_bytes(problem), gpu),
    _seconds,
    FittedTile.read,
    _emit,
)
