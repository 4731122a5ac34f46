"""Means of all that a convolution leaves, as squeeze and excitation takes them: its tiles leave sums. A second kernel
adds up those of an image, or its blocks do so themselves, always in one order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, prod

from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.means import L2_RATE, LAST, ROUND, averages, refuse_format
from bolt_build.families.grouped.kind import FAMILY, Offer, Sums, gpu_of
from bolt_build.families.grouped.shape import SPACE, Shape
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

SECOND, CLUSTER = "", "cluster"
"""Who adds up the sums of an image: a second kernel, of which candidates say nothing; the last block to end; or the
blocks as a cluster, which read each other's shared memory."""
WAYS = (SECOND, LAST, CLUSTER)
_MOST_OF_CLUSTER = 8
"""Blocks that every GPU with clusters runs as one."""
_ASKED = 64
"""Sums of a channel that threads ask for at once, about."""
_MEET = 0.8e-6
"""Seconds in which a cluster's blocks wait for each other and read what they have."""
_CROWDED, _LARGE, _FULL = 1.6, 2, 0.3
"""Convolutions in clusters of more than `_LARGE` blocks take so much longer where all blocks ask for more than `_FULL`
of the GPU's shared memory: blocks of a cluster begin together, and wait for room near each other."""


def refuse(problem: KernelProblem) -> str | None:
    """Why no kernel leaves the means that a problem has; None where some may, or it has none."""
    return refuse_format(problem) if averages(problem) else None


def joined(conv: Candidate, way: str) -> Candidate:
    """The convolution's kernel that also leaves means, in one of `WAYS`."""
    return replace(conv, parameters=(*conv.parameters, ("sums", way))) if way else conv


def split(candidate: Candidate) -> tuple[Candidate, str]:
    """The convolution's kernel of one that leaves means, and the way. Raises ValueError for one that there is not."""
    *others, (name, way) = candidate.parameters
    if name != "sums":
        return candidate, SECOND
    if way not in (LAST, CLUSTER):
        raise ValueError(f"{candidate} adds up sums in no way that there is")
    return replace(candidate, parameters=tuple(others)), str(way)


def blocks(sums: Sums, run: int) -> int | None:
    """Blocks with runs of so many tiles that share an image; None where some would have parts of several images."""
    if sums.tiles % run == 0:
        return sums.tiles // run
    return 1 if run % sums.tiles == 0 else None


def refuse_way(sums: Sums, way: str, run: int, gpu: Gpu) -> str | None:
    """Why a kernel with such sums does not leave means in a way, None where it does."""
    room = sums.shared if way == SECOND else sums.kept
    if room > gpu.shared_memory:
        return Reason("takes {} bytes of shared memory with sums, a block has {}", room, gpu.shared_memory)
    if way == SECOND:
        return None
    sharing = blocks(sums, run)
    if sharing is None:
        return Reason("{} tiles of an image are no whole runs of {}", sums.tiles, run)
    if way == LAST:
        # Images and parts of their channels have one each.
        if sharing > 1 and sums.counters > MOST_COUNTERS:
            form = "{} parts of images are more than the {} that there are counters for"
            return Reason(form, sums.counters, MOST_COUNTERS)
        return None
    if sharing == 1:
        return "a block has whole images, and there is none to form a cluster with"
    if sharing > _MOST_OF_CLUSTER:
        return Reason("{} blocks of an image are more than the {} of a cluster", sharing, _MOST_OF_CLUSTER)
    return None if gpu.warpgroup_mma else "blocks form clusters from sm_90 on"


def seconds(alone: float, shape: Shape, sums: Sums, way: str, run: int, target: Target) -> float:
    """Predicted time of a convolution, `alone` by itself, with what makes means of the sums of its tiles, in a way that
    is not refused. Constants were fitted to 200 kernels of an H200 whose blocks wait for each other: in clusters these
    are off by 11%, others by 15%, and 64 that nothing was fitted to by 13% and 19%."""
    if way == SECOND:
        moved = 2 * 4 * shape.batch * sums.rows * shape.filters
        return alone + moved / target.bandwidth + target.launch_seconds
    sharing = blocks(sums, run) or 1
    if sharing == 1:
        return alone
    if way == CLUSTER:
        waiting = alone - target.launch_seconds if _crowded(sums, sharing, gpu_of(target)) else 0.0
        return alone + _MEET + (_CROWDED - 1) * waiting
    moved = 2 * 4 * shape.batch * sharing * shape.filters
    # Sums are there for all, blocks are counted, and the last one reads.
    return alone + moved / (L2_RATE * target.bandwidth) + ROUND * (2 + ceil(sharing / _ASKED))


def _crowded(sums: Sums, sharing: int, gpu: Gpu) -> bool:
    """Whether clusters of so many blocks wait for each other's places."""
    asked = sharing * sums.counters * sums.kept
    return sharing > _LARGE and asked > _FULL * gpu.sms * gpu.shared_memory


@dataclass(frozen=True)
class Summed:
    """A kernel of a convolution, its predicted seconds, and the sums that its tiles leave, of runs of so many."""

    offer: Offer
    sums: Sums
    run: int = 1


def in_ways(
    found: Iterable[Summed], shape: Shape, target: Target
) -> tuple[tuple[Offer, ...], tuple[Offer, ...], tuple[Refusal, ...]]:
    """Kernels that leave means: of each of the convolution's the fastest way by prediction, in their order; the other
    ways, the fastest first; and why there are no more, each reason once."""
    first, others, reasons = list[Offer](), list[Offer](), dict[str, Refusal]()
    for each in found:
        legal = []
        for way in WAYS:
            candidate = joined(each.offer.candidate, way)
            if (reason := refuse_way(each.sums, way, each.run, gpu_of(target))) is None:
                legal.append(Offer(seconds(each.offer.seconds, shape, each.sums, way, each.run, target), candidate))
            else:
                reasons.setdefault(reason, Refusal(FAMILY, str(candidate), reason))
        legal.sort(key=lambda offer: offer.seconds)
        first += legal[:1]
        others += legal[1:]
    return tuple(first), in_order(others), tuple(reasons.values())


def in_order(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The fastest first."""
    return tuple(sorted(offers, key=lambda offer: (offer.seconds, str(offer.candidate))))


def tile_type(tile: str, way: str) -> str:
    """The C++ type of a tile that leaves sums or means."""
    return f"{SPACE}::WithSums<{tile}>" if way == SECOND else f"{SPACE}::WithMeans<{tile}, {boolean(way == CLUSTER)}>"


def member_type(name: str, types: Iterable[str], way: str) -> str:
    """The C++ class of `name`, `Conv` or `Expanded`, with means; of types of which the first is the tile."""
    tile, *rest = types
    if way == SECOND:
        return f"{SPACE}::Averaged{name}<{', '.join((tile_type(tile, way), *rest))}>"
    return f"{SPACE}::{name}WithMeans<{', '.join((tile, boolean(way == CLUSTER), *rest))}>"


def member_arguments(shape: Shape, sums: Sums, way: str, run: int) -> tuple[str, str]:
    """What its constructor takes first: rows of sums that an image has, or blocks that share it; and its positions."""
    return str(sums.rows if way == SECOND else blocks(sums, run)), str(prod(shape.out))


def counts(sums: Sums, way: str, run: int) -> bool:
    """True where blocks are counted: `StepCode.counts`."""
    return way == LAST and blocks(sums, run) != 1


def includes(way: str) -> str:
    """What a unit includes beside the kernel's header."""
    return "" if way == SECOND else '#include "bolt_grouped/image_means.h"\n'
