"""How a GPU normalises in slabs: neighbouring channels at all positions, which a block or a cluster of blocks keeps in
shared memory, so that each element is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside, refuse_shared
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.geometry import Loop
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.norm_loops import loop_text, loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norm_nest import (
    InSlabs,
    Nest,
    element_bytes,
    nest_for,
    operands_share,
    refuse,
    seconds_of,
    serves,
)
from bolt_build.families.portable.kernels.rows import LANES
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norm import Norm
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = (1, 2, 4, 8), (128, 256, 512)
"""Blocks of a cluster, and threads of a block."""
_MOST_ACROSS = 64
"""Loads of a slab's width that are tried."""


@dataclass(frozen=True)
class SlabTile(InSlabs):
    """`across` loads of `LANES` channels make a slab. The `cluster` blocks of a slab, of `threads` threads, share its
    positions evenly, and keep one of `chunks` equal parts of their share at once. Where a block has two `slabs`, so
    many `clusters` run at once, and each computes one slab after the other while it copies the next; with one there
    are as many clusters as slabs (0).
    """

    slabs: int
    across: int
    cluster: int
    chunks: int
    threads: int
    clusters: int = 0

    @property
    def parameters(self) -> Named:
        return (("slabs", self.slabs),)

    @property
    def settings(self) -> Named:
        found = ("across", self.across), ("cluster", self.cluster), ("chunks", self.chunks), ("threads", self.threads)
        return (*found, ("clusters", self.clusters)) if self.clusters else found

    @staticmethod
    def read(reader: Reader) -> SlabTile:
        return SlabTile(
            reader.number("slabs"), reader.number("across"), reader.number("cluster"), reader.number("chunks"),
            reader.number("threads"), reader.number("clusters") if reader.has("clusters") else 0,
        )  # fmt: skip

    def share(self, nest: Nest) -> int:
        """Positions of a block."""
        return ceil(nest.many / self.cluster)

    def chunk(self, nest: Nest) -> int:
        """Positions that a block keeps at once."""
        return ceil(self.share(nest) / self.chunks)

    def shared(self, nest: Nest, element: int) -> int:
        """Bytes of shared memory of a block (`slab_bytes`)."""
        elements = self.slabs * self.chunk(nest) * self.width * element
        return elements + 4 * self.parts_of_sums * self.width + 16 * self.width // nest.group


def tiles(nest: Nest, element: int, gpu: Gpu) -> Iterator[SlabTile]:
    """Slabs of every width that channels are a multiple of, in blocks that keep their share whole, if they can; as
    large a part of it as leaves room for a second or a fourth block; and blocks of two slabs."""
    loads = nest.channels.extent // LANES
    for across in range(1, min(loads, _MOST_ACROSS) + 1):
        if loads % across:
            continue
        for cluster in CLUSTERS:
            for threads in THREADS:
                chunks = dict[int, None]()
                for blocks in (1, 2, 4):
                    one = SlabTile(1, across, cluster, 1, threads)
                    bare = one.shared(nest, 0)
                    room = (gpu.shared_memory // blocks - 1024 * (blocks > 1) - bare) // (one.width * element)
                    if room > 0:
                        chunks[ceil(one.share(nest) / room)] = None
                for parts in chunks:
                    yield SlabTile(1, across, cluster, parts, threads)
                two = SlabTile(2, across, cluster, 1, threads)
                most = beside(threads, _REGISTERS[1], two.shared(nest, element), gpu)
                for blocks in range(1, most + 1):
                    yield SlabTile(2, across, cluster, 1, threads, max(1, _at_once(blocks, cluster, gpu)))


def refuse_tile(tile: SlabTile, nest: Nest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if tile.slabs not in (1, 2) or tile.cluster not in CLUSTERS or tile.threads not in THREADS:
        return "there are kernels of 1 or 2 slabs, of 1, 2, 4 or 8 blocks, and of 128, 256 or 512 threads"
    if (reason := tile.refuse_slab(nest)) is not None:
        return reason
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.cluster > nest.many:
        return Reason("{} positions are fewer than the {} blocks of a cluster", nest.many, tile.cluster)
    if tile.chunks > tile.share(nest):
        return Reason("{} positions are fewer than the {} parts of a block's share", tile.share(nest), tile.chunks)
    if tile.slabs == 1 and tile.clusters:
        return "a block with one slab computes no other: it states no clusters that run at once"
    if tile.slabs == 2:
        if tile.chunks > 1:
            return "two slabs of a block are kept whole"
        if not gpu.async_copies:
            return "copies to shared memory go on while a slab is computed from sm_80 on"
        if not 0 < tile.clusters < (items := nest.slabs(tile.width)):
            return Reason("of {} slabs {} are computed at once, so no block copies a second one", items, tile.clusters)
    return refuse_shared(tile.shared(nest, element), gpu)


_WAITS = {1: 1.0, 2: 0.99, 4: 0.97, 8: 0.93}
"""Blocks of a cluster, and a guess at what is left of the bandwidth: they wait for each other."""
_RESIDENT, _SEVERAL, _TWICE = {1: 0.6, 2: 0.7}, 0.75, 0.85
"""The same of blocks that share a multiprocessor, one, two or several: of several one loads while another computes. And
of blocks that copy one slab while they compute another."""
_ROOM = ((128, 24 << 10), (256, 112 << 10), (512, 1 << 30))
"""Threads of a block that keeps at most so many bytes: of those that an H200 was tried with."""
_OTHERS = 0.97
"""A guess at what other numbers of threads leave."""
_GPC = 16
"""Multiprocessors that a cluster's blocks come from. Those of an H200 have 16 or 18."""
_REGISTERS = (64, 96)
"""Of a thread whose block has one slab, or two."""
_LINE, _SECTOR = 64, 32
"""Bytes that memory gives at once, and of which L2 knows whether it has them."""


def _at_once(blocks: int, cluster: int, gpu: Gpu) -> int:
    """Clusters that run at once, with `blocks` a multiprocessor."""
    sms = gpu.sms // _GPC * _GPC if cluster > 2 else gpu.sms
    return sms * blocks // cluster


def bandwidth(tile: SlabTile, nest: Nest, element: int, gpu: Gpu) -> float:
    """The part of a GPU's bandwidth that slabs are expected to reach. All constants are guesses: no GPU has timed the
    kernels as they are."""
    run, slabs = tile.width * element, nest.slabs(tile.width)
    whole = nest.positions[-1].steps[0] == nest.channels.extent == tile.width
    lines = 1.0 if whole else run / (run + _SECTOR) if run % _LINE else 1 - 5 / run
    resident = beside(tile.threads, _REGISTERS[tile.slabs - 1], tile.shared(nest, element), gpu)
    at_once = tile.clusters or _at_once(resident, tile.cluster, gpu)
    waves = slabs / at_once
    busy = waves / ceil(waves) if waves >= 1 else min(1.0, slabs * tile.cluster / gpu.sms)
    read = 2 / (2 + (tile.chunks - 1) / tile.chunks)
    fills = _TWICE if tile.slabs > 1 else _RESIDENT.get(resident, _SEVERAL)
    if tile.slabs > 1 and at_once < _at_once(resident, tile.cluster, gpu):
        fills *= _OTHERS
    elements = tile.slabs * tile.chunk(nest) * run
    usual = next(many for many, most in _ROOM if elements <= most) == tile.threads
    return _WAITS[tile.cluster] * fills * busy * lines * read * (1.0 if usual else _OTHERS)


def _seconds(problem: KernelProblem, tile: SlabTile, target: Target) -> float:
    assert target.gpu is not None, "slabs are for GPUs"
    nest = nest_for(problem)
    reached = bandwidth(tile, nest, element_bytes(problem), target.gpu) * operands_share(nest)
    return seconds_of(problem, target, reached)


def _emit(problem: KernelProblem, tile: SlabTile, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Norm)
    loops, nest = loops_of(problem), nest_for(problem)
    slab = struct(
        "bolt::portable::NormSlab",
        across=tile.across,
        cluster=tile.cluster,
        share=tile.share(nest),
        chunk=tile.chunk(nest),
        group=nest.group,
        threads=tile.threads,
        clusters=tile.clusters,
        channels=loop_text(nest.channels),
    )
    how = f"{boolean(tile.slabs > 1)}, bolt::portable::NormOperands::{nest.operands}"
    call = (
        f"bolt::portable::norm_in_slabs<{how}, {types_text(problem)}>(r, "
        f"{norm_text(loops.kept, loops.reduced, op.epsilon)}, "
        f"{norm_text(nest.kept or (Loop(1, (0, 0, 0, 0)),), nest.positions, op.epsilon)}, "
        f"{slab}, {pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM: Form[SlabTile] = Form(
    "slabs",
    serves,
    refuse,
    lambda problem, gpu: tiles(nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, nest_for(problem), element_bytes(problem), gpu),
    _seconds,
    SlabTile.read,
    _emit,
)
