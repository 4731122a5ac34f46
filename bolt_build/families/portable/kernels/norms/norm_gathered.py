"""How a GPU without clusters, or with images that no cluster keeps, normalises images of any number of channels: one
kernel gathers statistics of their parts, and another one normalises what it reads again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms.norm_images import (
    PART,
    THREADS,
    Images,
    call_text,
    images_for,
    images_of,
    of_statistics,
    refuse,
    serves,
    threads_for,
)
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

_BYTES = (32 << 10, 64 << 10, 128 << 10)
"""Parts of an image that are tried."""


@dataclass(frozen=True)
class GatherTile(NumberTile):
    """An image is cut in so many `parts`, each of which a block of so many `threads` gathers, and one normalises."""

    parts: int
    threads: int

    def share(self, of: Images) -> int:
        """Loads of a part: as many for each thread."""
        return ceil(ceil(of.loads / self.parts) / of.active(self.threads)) * of.active(self.threads)

    def shared(self, of: Images) -> int:
        """Bytes of shared memory of a block."""
        return of_statistics(of, self.threads, of.active(self.threads))


def tiles(of: Images, element: int, gpu: Gpu) -> Iterator[GatherTile]:
    """Parts of so many bytes, and those whose blocks are all there at once, or in two rounds."""
    found = dict[GatherTile, None]()
    for threads in threads_for(of):
        tile = GatherTile(1, threads)
        active, at_once = of.active(tile.threads), gpu.sms * occupancy(threads, _REGISTERS, tile.shared(of), gpu)
        shares = [max(1, round(wanted / (active * LANES * element))) for wanted in _BYTES]
        parts = [rounds * at_once // of.images for rounds in (1, 2)]
        shares += [ceil(ceil(of.loads / each) / active) for each in parts if each]
        for share in shares:
            found[GatherTile(ceil(of.loads / (share * active)), threads)] = None
    yield from found


def refuse_tile(tile: GatherTile, of: Images, gpu: Gpu) -> str | None:
    """Why no kernels normalise images so on this GPU, None where they do."""
    if tile.threads not in THREADS:
        return "there are kernels of 256, 512 or 1024 threads"
    if tile.threads < of.period:
        return Reason("channels repeat after {} loads, a block has {} threads", of.period, tile.threads)
    if ceil(of.loads / tile.share(of)) != tile.parts:
        return Reason("{} loads are not cut in {} parts of as many for each thread", of.loads, tile.parts)
    return refuse_shared(tile.shared(of), gpu)


_LARGE = 2 << 20
"""Bytes of an image from which on slabs that a cluster holds are narrow, whatever its channels."""


def _serves(problem: KernelProblem) -> bool:
    """Images of no whole loads, and large ones."""
    if serves(problem):
        return True
    images = images_of(problem) if isinstance(problem.op, Norm) else None
    return images is not None and images.length * element_bytes(problem) >= _LARGE


_REACHED, _KEPT, _FROM_CACHE, _AGAIN = 0.7, 0.5, 0.33, 0.22
"""As kernels on an H200 behave: the part of a GPU's bandwidth that both kernels reach; the part of L2 below which
it keeps all of what is read again; and what that takes of reading it from memory, there and otherwise."""
MOST_JOINED, _REREAD, _JOINED, _PART = 1024, 4.0 / 5.0e12, 64, 15e-9
"""Parts of all statistics of an image of which each block that normalises reads all: more are put together by a third
kernel (`ImageSums`). Seconds of a byte of parts that all of these blocks read. And those that the third kernel takes
for each part beyond so many, as three cuts of one image in 196 to 784 parts took on an H200."""
_WAITS, _REGISTERS, _FILLED, _FEW = 4.4e-6, 72, 1024, 0.9
"""The seconds in which statistics are put together, and until the second kernel's first loads come; registers of a
thread; threads of a multiprocessor below which memory waits, and a power of how far. Fitted to 40 kernels that an H200
has timed, which take 16% more or less than that."""


def _seconds(problem: KernelProblem, tile: GatherTile, target: Target) -> float:
    gpu, of, read = target.gpu, images_for(problem), problem.inputs[0].nbytes
    assert gpu is not None, "kernels that gather are for GPUs"
    resident = occupancy(tile.threads, _REGISTERS, tile.shared(of), gpu)
    blocks = of.images * tile.parts
    there = min(float(resident), blocks / gpu.sms)
    used = of.active(tile.threads) / tile.threads
    reached = _REACHED * min(1.0, there * tile.threads * used / _FILLED) ** _FEW
    again = read * (_FROM_CACHE if read <= _KEPT * gpu.l2 else _AGAIN)
    kernels = (1 + OVERLAPPED) * target.launch_seconds
    each = tile.parts * of.statistics <= MOST_JOINED
    joining = _REREAD * blocks * tile.parts * of.statistics * PART if each else _PART * max(0, tile.parts - _JOINED)
    return float(moved(bytes_of(problem) + again, target) / reached + kernels + _WAITS + joining)


def _emit(problem: KernelProblem, tile: GatherTile, at: StepExpressions) -> StepCode:
    of = images_for(problem)
    scratch = PART * of.images * tile.parts * of.statistics
    at, member = with_scratch(problem, scratch, at)
    call = call_text(problem, "norm_in_two", tile.parts, tile.share(of), 0, tile.threads, at)
    return StepCode(("bolt_portable/norm.h",), *member, call)


FORM: Form[GatherTile] = Form(
    "gathered",
    _serves,
    refuse,
    lambda problem, gpu: tiles(images_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, images_for(problem), gpu),
    _seconds,
    GatherTile.read,
    _emit,
)
