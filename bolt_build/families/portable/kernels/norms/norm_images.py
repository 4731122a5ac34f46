"""How a GPU normalises images whose pixels have any number of channels, or whose planes any extent: as runs of memory,
which the shared memory of a block or a cluster of blocks keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_loops import (
    Loops,
    loop_text,
    loops_of,
    norm_text,
    pointers_text,
    types_text,
)
from bolt_build.families.portable.kernels.norms.norm_nest import element_bytes
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = (1, 2, 4, 8), (256, 512, 1024)
"""Blocks of a cluster, and threads of a block."""
PART = 12
"""Bytes of what a block has of a statistic (`ImagePart`)."""


@dataclass(frozen=True)
class Images:
    """`kept` are the loops over images. Channels last they have so many pixels (`many`) of `channels`, of which `group`
    neighbouring ones have one statistic. Others have one statistic, and so many channels (`many`) in planes of `plane`
    elements each; lines of neighbours are images of one plane, or of planes of one element where each has a scale."""

    kept: tuple[Loop, ...]
    many: int
    channels: Loop
    group: int
    plane: int = 0

    @property
    def images(self) -> int:
        return prod(loop.extent for loop in self.kept)

    @property
    def length(self) -> int:
        """Elements of an image."""
        return self.many * (self.plane or self.width)

    @property
    def width(self) -> int:
        """Channels of a pixel; of planes, whose statistic is of all, one."""
        return 1 if self.plane else self.channels.extent

    @property
    def period(self) -> int:
        """Loads after which channels repeat."""
        return self.width // gcd(self.width, LANES)

    @property
    def loads(self) -> int:
        """Of an image, which may begin inside of one."""
        return ceil((self.length + (LANES - 1 if self.length % LANES else 0)) / LANES)

    @property
    def statistics(self) -> int:
        return self.width // self.group

    def active(self, threads: int) -> int:
        """Threads of a block of so many that have loads: those of whole periods."""
        return threads // self.period * self.period


def images_of(problem: KernelProblem) -> Images | None:
    """The images of a normalisation over positions; None where its elements are not such."""
    loops = loops_of(problem)
    return _in_planes(loops) or _in_pixels(loops)


def _in_planes(loops: Loops) -> Images | None:
    """Runs of planes that have one statistic, with a scale and a bias of each plane, or of each element."""
    *channels, plane = loops.reduced
    if plane.steps[0] != 1 or len(channels) > 1:
        return None
    if any(plane.steps[1:3]):
        return None if channels else Images(loops.kept, plane.extent, plane, 1, 1)
    along = channels[0] if channels else Loop(1, (plane.extent, 0, 0, 0))
    if along.steps[0] != plane.extent:
        return None
    return Images(loops.kept, along.extent, along, 1, plane.extent)


def _in_pixels(loops: Loops) -> Images | None:
    (*outer, last), (*positions, inner) = loops.kept, loops.reduced
    whole = tuple(step * inner.extent for step in inner.steps)
    if last.steps[0] == 1 and last.extent > 1:
        kept, around, channels, group = outer, loops.reduced, last, 1
    elif inner.steps[0] == 1 and positions and last.steps == whole:
        kept, around, channels = outer, tuple(positions), Loop(last.extent * inner.extent, inner.steps)
        group = inner.extent
    elif inner.steps[0] == 1 and positions:
        kept, around, channels, group = list(loops.kept), tuple(positions), inner, inner.extent
    else:
        return None
    if len(around) != 1 or around[0].steps[0] != channels.extent or any(around[0].steps[1:3]):
        return None
    return Images(tuple(kept) or (Loop(1, (0, 0, 0, 0)),), around[0].extent, channels, group)


def of_statistics(of: Images, threads: int, active: int) -> int:
    """Bytes of shared memory of a block of so many threads, of which so many are `active`, beside elements
    (`NormImages`)."""
    planes = of.many + of.many % 2 if of.plane > 1 else 0
    floats = threads // WARP if of.statistics == 1 else active * LANES
    return 8 * planes + 4 * floats + 2 * PART * of.statistics


@dataclass(frozen=True)
class ImageTile(NumberTile):
    """The `cluster` blocks of so many `threads` share an image. Shared memory keeps so many loads of each one's share
    (`kept`); others are read again."""

    cluster: int
    threads: int
    kept: int

    def share(self, of: Images) -> int:
        """Loads of a block."""
        return ceil(ceil(of.loads / self.cluster) / of.period) * of.period

    def shared(self, of: Images, element: int) -> int:
        """Bytes of shared memory of a block (`NormImages`)."""
        return self.kept * LANES * element + of_statistics(of, self.threads, of.active(self.threads))


def threads_for(of: Images) -> tuple[int, ...]:
    """Threads of blocks that are tried: of the largest a thread has few registers."""
    return tuple(each for each in THREADS if each >= of.period)[:2]


def tiles(of: Images, element: int, gpu: Gpu) -> Iterator[ImageTile]:
    """Blocks that keep their share whole, if they can, or as much of it as leaves room for one or two of them."""
    found = dict[ImageTile, None]()
    for cluster in CLUSTERS:
        for threads in threads_for(of):
            bare = ImageTile(cluster, threads, 1)
            share, active = bare.share(of), of.active(bare.threads)
            for blocks in (1, 2):
                room = gpu.shared_memory // blocks - 1024 * (blocks > 1) - bare.shared(of, 0)
                again = max(0, ceil((share - room // (LANES * element)) / active)) * active
                if room > 0 and again < share:
                    found[ImageTile(cluster, threads, share - again)] = None
    yield from found


def serves(problem: KernelProblem) -> bool:
    """Pixels and planes that are whole loads have other kernels, and lines that registers have room for."""
    if not isinstance(problem.op, Norm) or (images := images_of(problem)) is None:
        return False
    if images.plane and 1 in (images.many, images.plane) and loops_of(problem).in_registers[0]:
        return False
    return (images.length if images.plane == 1 else images.plane or images.width) % LANES != 0


def images_for(problem: KernelProblem) -> Images:
    """The images of a problem that is served."""
    images = images_of(problem)
    assert images is not None, problem
    return images


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    images = images_for(problem)
    if images.period > THREADS[-1]:
        what = "channels repeat after {} loads, a block has {} threads at most"
        return Reason(what, images.period, THREADS[-1])
    if 1 < images.plane < LANES:
        return Reason("planes of {} elements are shorter than the {} of a load", images.plane, LANES)
    if images.length >= 1 << 31:
        return Reason("{} elements of an image are too many to be counted", images.length)
    return None


def refuse_tile(tile: ImageTile, of: Images, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises images so on this GPU, None where one does."""
    if tile.cluster not in CLUSTERS or tile.threads not in THREADS:
        return "there are kernels of 1, 2, 4 or 8 blocks, and of 256, 512 or 1024 threads"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.threads < of.period:
        return Reason("channels repeat after {} loads, a block has {} threads", of.period, tile.threads)
    share, active = tile.share(of), of.active(tile.threads)
    if tile.kept > share or (share - tile.kept) % active:
        what = "of {} loads of a block not {} are kept, where its threads have {} at once"
        return Reason(what, share, tile.kept, active)
    if tile.cluster > 1 and (tile.cluster - 1) * share >= of.loads:
        return Reason("{} loads are not the shares of {} blocks", of.loads, tile.cluster)
    return refuse_shared(tile.shared(of, element), gpu)


_REACHED, _AGAIN, _ALONE, _FEW = 0.34, 0.6, 0.28, 0.3
"""As kernels on an H200 behave: the part of a GPU's bandwidth that is reached; what a byte that is read again
takes of one that is read from memory, for L2 has kept some; the part of a block's time in which it asks for
nothing; and a power of the part of multiprocessors that have blocks."""
_WAITS, _CLUSTER, _REGISTERS = 4.0e-6, 0.39e-6, 80
"""The seconds in which a block's threads put statistics together, a guess since they add up sums and join no means
any more, as those did that an H200 measured; seconds in which a cluster's blocks wait for each other; and registers of
a thread."""
_RATE, _OF_A_LOAD, _BESIDE = 0.8 * 128 * 1.7e9, 80, 700
"""Instructions that a multiprocessor's threads begin a second, of a load, and of a thread beside them, counted in the
kernels' code."""


def _seconds(problem: KernelProblem, tile: ImageTile, target: Target) -> float:
    gpu, of, element = target.gpu, images_for(problem), element_bytes(problem)
    assert gpu is not None, "images are for GPUs"
    share, active = tile.share(of), of.active(tile.threads)
    resident = occupancy(tile.threads, _REGISTERS, tile.shared(of, element), gpu)
    blocks = of.images * tile.cluster
    there = min(float(resident), blocks / gpu.sms)
    rounds = blocks / (resident * gpu.sms)
    full = rounds / ceil(rounds) if rounds > 1 else 1.0
    beside_others = max(there, 1.0) / (max(there, 1.0) + _ALONE) * (1 + _ALONE / 2)
    reached = _REACHED * min(1.0, there) ** _FEW * beside_others * full
    again = (share - tile.kept) / share * problem.inputs[0].nbytes * _AGAIN
    memory = moved(problem.nbytes + again, target) / reached
    issued = blocks * (share * _OF_A_LOAD * tile.threads / active + tile.threads * _BESIDE)
    issued /= min(there, 1.0) * gpu.sms * _RATE
    waits = OVERLAPPED * target.launch_seconds + _WAITS + (_CLUSTER if tile.cluster > 1 else 0.0)
    return float(max(memory, issued) + waits)


def call_text(
    problem: KernelProblem,
    function: str,
    blocks: int,
    share: int,
    kept: int,
    threads: int,
    at: StepExpressions,
    beside: int = 0,
) -> str:
    """A call of a kernel of images that are cut so (`ImageShape`); of two kernels beside each other, the first in
    clusters of `beside` blocks."""
    op, of, loops = problem.op, images_for(problem), loops_of(problem)
    assert isinstance(op, Norm)
    sizes: tuple[object, ...] = (of.width, of.group, of.plane, of.length, blocks, share, share - kept, threads)
    sizes += (beside, "true") if beside else ()
    shape = f"bolt::portable::ImageShape<{', '.join(map(str, sizes))}>"
    return (
        f"bolt::portable::{function}<{shape}, {types_text(problem)}>(r, "
        f"{norm_text(loops.kept, loops.reduced, op.epsilon)}, {norm_text(of.kept, (), op.epsilon)}, "
        f"{loop_text(of.channels)}, {pointers_text(problem, at)}, {chain(problem, at)});"
    )


def _emit(problem: KernelProblem, tile: ImageTile, at: StepExpressions) -> StepCode:
    share = tile.share(images_for(problem))
    call = call_text(problem, "norm_in_images", tile.cluster, share, tile.kept, tile.threads, at)
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM: Form[ImageTile] = Form(
    "images",
    serves,
    refuse,
    lambda problem, gpu: tiles(images_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, images_for(problem), element_bytes(problem), gpu),
    _seconds,
    ImageTile.read,
    _emit,
)
