"""How a GPU from Hopper on normalises few large images, each by many multiprocessors: one kernel gathers statistics of
their parts, and another one brings the same elements to shared memory meanwhile, and normalises them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms.norm_gathered import MOST_JOINED
from bolt_build.families.portable.kernels.norms.norm_images import (
    PART,
    THREADS,
    Images,
    call_text,
    images_for,
    images_of,
    of_statistics,
    refuse,
)
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

CLUSTERS = (1, 2, 4, 8)
"""Blocks of the first kernel whose statistics are put together before the second one reads them."""
_RESIDENT, _RESERVED = 512, 1 << 10
"""Threads of each of both kernels that a multiprocessor holds beside each other: it has 64 registers for each. And
bytes of shared memory that a block costs beside its own."""


@dataclass(frozen=True)
class PairTile(NumberTile):
    """Each of both kernels has so many `blocks` of `threads` threads for an image. The first one's form clusters. The
    second one's keep so many loads in shared memory (`kept`), and read others again."""

    blocks: int
    cluster: int
    threads: int
    kept: int

    def share(self, of: Images) -> int:
        """Loads of a block: as many for each thread."""
        return ceil(ceil(of.loads / self.blocks) / of.active(self.threads)) * of.active(self.threads)

    def shared(self, of: Images, element: int) -> int:
        """Bytes of shared memory of a block of the second kernel (`NormImages`)."""
        return self.kept * LANES * element + of_statistics(of, self.threads, of.active(self.threads))


def tiles(of: Images, element: int, gpu: Gpu) -> Iterator[PairTile]:
    """Blocks that a multiprocessor holds all at once, of both kernels, and which keep as much as there is room for."""
    for threads in (each for each in THREADS if of.period <= each <= _RESIDENT):
        resident = _RESIDENT // threads
        # Of the first kernel's blocks too: two numbers of each element of an access.
        first = 2 * of_statistics(of, threads, threads) + 4 * of.statistics + _RESERVED
        room = gpu.shared_memory // resident - _RESERVED - of_statistics(of, threads, threads) - first
        for cluster in CLUSTERS:
            whole = max(1, gpu.sms * resident // of.images // cluster) * cluster
            bare = PairTile(whole, cluster, threads, 1)
            share, active = bare.share(of), of.active(bare.threads)
            blocks = ceil(ceil(of.loads / share) / cluster) * cluster
            tile = PairTile(blocks, cluster, threads, 1)
            share = tile.share(of)
            again = max(0, ceil((share - room // (LANES * element)) / active)) * active
            if again < share:
                yield PairTile(blocks, cluster, threads, share - again)


def refuse_tile(tile: PairTile, of: Images, element: int, gpu: Gpu) -> str | None:
    """Why no kernels normalise images so on this GPU, None where they do."""
    if tile.cluster not in CLUSTERS or tile.threads not in THREADS or tile.threads > _RESIDENT:
        return "there are kernels of 256 or 512 threads, in clusters of 1, 2, 4 or 8 blocks"
    if tile.threads < of.period:
        return Reason("channels repeat after {} loads, a block has {} threads", of.period, tile.threads)
    if tile.blocks % tile.cluster:
        return Reason("{} blocks of an image are no whole clusters of {}", tile.blocks, tile.cluster)
    share, active = tile.share(of), of.active(tile.threads)
    if (tile.blocks - tile.cluster) * share >= of.loads:
        return Reason("{} loads are not the shares of {} blocks", of.loads, tile.blocks)
    if tile.kept > share or (share - tile.kept) % active:
        what = "of {} loads of a block not {} are kept, where its threads have {} at once"
        return Reason(what, share, tile.kept, active)
    return refuse_shared(tile.shared(of, element), gpu)


_LARGE = 512 << 10
"""Bytes of an image from which on several multiprocessors share it."""


def _serves(problem: KernelProblem) -> bool:
    images = images_of(problem) if isinstance(problem.op, Norm) else None
    return images is not None and images.length * element_bytes(problem) >= _LARGE


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "a kernel begins beside the one in front of it from sm_90 on"
    return refuse(problem, gpu)


_WAITS, _SEVERAL, _THIRD, _STEP = 3.9e-6, 4.4e-6, 1.9e-6, 0.24e-6
"""Seconds in which blocks put statistics together, and until the second kernel's threads have them; what that takes
more where an image has several statistics, and where a third kernel joins them; and those of each load of a thread."""
_REACHED, _AGAIN, _REREAD = 0.89, 1.5, 2.2 / 5.0e12
"""The part of a GPU's bandwidth that both kernels reach; what a byte that is read again takes of one from memory; and
seconds of a byte of parts that all blocks of the second kernel read. Fitted to 163 kernels that an H200 has timed,
which take 14% more or less than that."""


def _seconds(problem: KernelProblem, tile: PairTile, target: Target) -> float:
    of, share = images_for(problem), tile.share(images_for(problem))
    again = _AGAIN * problem.inputs[0].nbytes * (share - tile.kept) / share
    waits = _WAITS + _STEP * share / of.active(tile.threads) + (_SEVERAL if of.statistics > 1 else 0.0)
    parts = tile.blocks // tile.cluster * of.statistics
    waits += _THIRD if parts > MOST_JOINED else _REREAD * parts * PART * of.images * tile.blocks
    memory = (bytes_of(problem) + again) / (target.bandwidth * _REACHED)
    return float(OVERLAPPED * target.launch_seconds + waits + memory)


def _emit(problem: KernelProblem, tile: PairTile, at: StepExpressions) -> StepCode:
    of = images_for(problem)
    scratch = PART * of.images * (tile.blocks // tile.cluster) * of.statistics
    at, member = with_scratch(problem, scratch, at)
    text = call_text(problem, "norm_in_two", tile.blocks, tile.share(of), tile.kept, tile.threads, at, tile.cluster)
    return StepCode(("bolt_portable/norm.h",), *member, text)


FORM: Form[PairTile] = Form(
    "paired",
    _serves,
    _refuse,
    lambda problem, gpu: tiles(images_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, images_for(problem), element_bytes(problem), gpu),
    _seconds,
    PairTile.read,
    _emit,
)
