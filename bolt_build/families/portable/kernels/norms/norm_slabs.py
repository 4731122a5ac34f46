"""How a GPU normalises in slabs: neighbouring channels at all positions, which a block or a cluster of blocks keeps in
shared memory, so that each element is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.epilogue import chain
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms.norm_loops import loop_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norms.norm_nest import (
    WIDEST,
    InSlabs,
    Nest,
    bytes_of,
    element_bytes,
    found,
    loops_text,
    nest_for,
    operands_share,
    refuse,
    seconds_of,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = (1, 2, 4, 8), (128, 256, 512)
"""Blocks of a cluster, and threads of a block."""


@dataclass(frozen=True)
class SlabTile(InSlabs, NumberTile):
    """`across` loads of `LANES` channels make a slab. The `cluster` blocks of a slab, of `threads` threads, share its
    positions evenly, and keep one of `chunks` equal parts of their share at once."""

    SETTINGS = ("across", "cluster", "chunks", "threads")

    across: int
    cluster: int
    chunks: int
    threads: int

    def share(self, nest: Nest) -> int:
        """Positions of a block."""
        return ceil(nest.many / self.cluster)

    def chunk(self, nest: Nest) -> int:
        """Positions that a block keeps at once."""
        return ceil(self.share(nest) / self.chunks)

    def shared(self, nest: Nest, element: int) -> int:
        """Bytes of shared memory of a block (`slab_bytes`)."""
        elements = self.chunk(nest) * self.width * element
        return elements + 4 * self.parts_of_sums * self.width + 16 * self.width // nest.group


def tiles(nest: Nest, element: int, gpu: Gpu) -> Iterator[SlabTile]:
    """Slabs of every width that channels are a multiple of, in blocks that keep their share whole, if they can, or as
    large a part of it as leaves room for a second or a fourth block."""
    loads = nest.channels.extent // LANES
    for across in range(1, min(loads, WIDEST) + 1):
        if loads % across:
            continue
        for cluster in CLUSTERS:
            for threads in THREADS:
                chunks = dict[int, None]()
                for blocks in (1, 2, 4):
                    one = SlabTile(across, cluster, 1, threads)
                    bare = one.shared(nest, 0)
                    room = (gpu.shared_memory // blocks - 1024 * (blocks > 1) - bare) // (one.width * element)
                    if room > 0:
                        chunks[ceil(one.share(nest) / room)] = None
                for parts in chunks:
                    yield SlabTile(across, cluster, parts, threads)


def refuse_tile(tile: SlabTile, nest: Nest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if tile.cluster not in CLUSTERS or tile.threads not in THREADS:
        return "there are kernels of 1, 2, 4 or 8 blocks, and of 128, 256 or 512 threads"
    if (reason := tile.refuse_slab(nest)) is not None:
        return reason
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.cluster > nest.many:
        return Reason("{} positions are fewer than the {} blocks of a cluster", nest.many, tile.cluster)
    if tile.chunks > tile.share(nest):
        return Reason("{} positions are fewer than the {} parts of a block's share", tile.share(nest), tile.chunks)
    return refuse_shared(tile.shared(nest, element), gpu)


_REACHED = 0.78
"""The part of a GPU's bandwidth that slabs would reach if threads did nothing but load and store."""
_BESIDE, _SUMS = 4.0, 0.1
"""What a thread computes beside its loads, in loads: addresses, statistics and waiting for others; and, of groups of
channels, for each position that a block's threads have at once, for its sums are added up by a warp."""
_ALONE, _SHARE = 4.1e-6, 0.78
"""Seconds of a block that has its multiprocessor alone: addresses, the first load, sums, those of its cluster and the
last store wait for each other; and the part of the bandwidth beside that. Measured on an H200 for images of 16 to
400 KB."""
_BOUND = 0.99
"""Of the prediction where that is longer than memory: the rest tells kernels apart that wait alike."""
_REGISTERS = 64
"""Of a thread."""
_LINE, _SECTOR = 64, 32
"""Bytes that memory gives at once, and of which L2 knows whether it has them."""


def bandwidth(tile: SlabTile, nest: Nest, element: int, gpu: Gpu) -> float:
    """The part of a GPU's bandwidth that slabs are expected to reach. Constants are fitted to `norm_forms.cu` on an
    H200."""
    resident, slabs = occupancy(tile.threads, _REGISTERS, tile.shared(nest, element), gpu), nest.slabs(tile.width)
    used = min(1.0, slabs * tile.cluster / gpu.sms) if slabs < clusters_at_once(tile.cluster, resident, gpu) else 1.0
    read = 2 / (2 + (tile.chunks - 1) / tile.chunks)
    loads = tile.chunk(nest) * tile.across / tile.threads
    others = _BESIDE + (_SUMS * (tile.threads // tile.across) if nest.group > 1 else 0.0)
    warps = min(1.0, resident * tile.threads / 768) ** 0.15 * (1 - 0.05 / min(resident, 4))
    return float(_REACHED * used * _lines(tile, nest, element) * read * loads / (loads + others) * warps)


def _lines(tile: SlabTile, nest: Nest, element: int) -> float:
    """The part of a line of memory that a slab has use for."""
    run = tile.width * element
    whole = nest.positions[-1].steps[0] == nest.channels.extent == tile.width
    return 1.0 if whole else run / (run + _SECTOR) if run % _LINE else 1 - 5 / run


def _one_wave(problem: KernelProblem, tile: SlabTile, target: Target) -> float:
    """Seconds where all slabs are there at once: no slab's loads hide what another computes. Fitted to 174 kernels, for
    1 to 8 images on an H100, and for single rows and 32 images on an H200."""
    nest, gpu = nest_for(problem), target.gpu
    assert gpu is not None, "slabs are for GPUs"
    blocks = nest.slabs(tile.width) * tile.cluster
    spread = min(1.0, blocks / gpu.sms) ** 0.35 * _lines(tile, nest, element_bytes(problem)) * operands_share(nest)
    loads = tile.chunk(nest) * tile.across / tile.threads
    filled = blocks * tile.threads / (gpu.sms * 2048)
    exchange = 0.23 * log2(tile.cluster)
    computing = 3.8 + 0.04 * loads + 0.4 * tile.threads / 128 + exchange + 11.3 * filled
    return float(computing * 1e-6 + found(nest, loads) + 1.48 * moved(bytes_of(problem), target) / spread)


def _seconds(problem: KernelProblem, tile: SlabTile, target: Target) -> float:
    assert target.gpu is not None, "slabs are for GPUs"
    nest = nest_for(problem)
    resident = occupancy(tile.threads, _REGISTERS, tile.shared(nest, element_bytes(problem)), target.gpu)
    if tile.chunks == 1 and nest.slabs(tile.width) < clusters_at_once(tile.cluster, resident, target.gpu):
        return _one_wave(problem, tile, target)
    reached = bandwidth(tile, nest, element_bytes(problem), target.gpu) * operands_share(nest)
    streaming = seconds_of(problem, target, reached)
    alone = moved(bytes_of(problem), target) / _SHARE + OVERLAPPED * target.launch_seconds + _ALONE
    rounds = ceil(nest.slabs(tile.width) / clusters_at_once(tile.cluster, resident, target.gpu))
    alone += rounds * found(nest, tile.share(nest) * tile.across / tile.threads)
    return _BOUND * max(streaming, alone) + (1 - _BOUND) * streaming


def _emit(problem: KernelProblem, tile: SlabTile, at: StepExpressions) -> StepCode:
    nest = nest_for(problem)
    slab = struct(
        "bolt::portable::NormSlab",
        across=tile.across,
        cluster=tile.cluster,
        share=tile.share(nest),
        chunk=tile.chunk(nest),
        group=nest.group,
        threads=tile.threads,
        channels=loop_text(nest.channels),
    )
    how = f"{boolean(len(nest.positions) == 1)}, bolt::portable::NormOperands::{nest.operands}"
    call = (
        f"bolt::portable::norm_in_slabs<{how}, {types_text(problem)}>(r, "
        f"{loops_text(problem, nest)}, {slab}, {pointers_text(problem, at)}, {chain(problem, at)});"
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
