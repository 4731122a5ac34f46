"""How a GPU normalises in slabs that registers and shared memory hold together: so more blocks are beside each other
than registers alone have room for, and some load while others exchange sums or store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels import norm_held
from bolt_build.families.portable.kernels.norm_held import HeldTile, emit_held, resident
from bolt_build.families.portable.kernels.norm_held_nest import HeldNest, held_nest_for
from bolt_build.families.portable.kernels.norm_nest import element_bytes, serves
from bolt_build.families.portable.kernels.rows import LANES
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = range(1, 9), norm_held.THREADS
"""Blocks of a cluster, and threads of a block."""
_BESIDE, _LOADS = range(2, 7), 48
"""Blocks of a multiprocessor, and loads of a thread at most."""
_RESERVED, _LEAST = 1 << 10, 4
"""Bytes of shared memory that a block costs beside its own; loads of a thread that registers hold at least."""
_REGISTERS, _PIXELS = 52, 60
"""Registers of a thread beside those that hold elements, and where a load is of several pixels: as many as leave
compiled kernels few that wait in memory."""


def reserved(nest: HeldNest) -> int:
    """Registers of a thread beside those that hold elements."""
    return _PIXELS if nest.repeats > 1 else _REGISTERS


@dataclass(frozen=True)
class BothTile:
    """Slabs are cut as `held` says. Of a thread's loads so many are `kept` in shared memory, others in registers."""

    held: HeldTile
    kept: int

    @property
    def parameters(self) -> Named:
        return (*self.held.parameters, ("kept", self.kept))

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> BothTile:
        return BothTile(HeldTile.read(reader), reader.number("kept"))

    @property
    def own(self) -> int:
        """Loads of a thread that its registers hold."""
        return self.held.loads - self.kept

    def shared(self, nest: HeldNest, element: int) -> int:
        """Bytes of shared memory of a block: loads, and sums (`NormBoth`)."""
        return self.kept * self.held.threads * LANES * element + self.held.memory(nest)

    def refuse_room(self, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
        """Why a multiprocessor has no room for so many blocks, None where it has."""
        held, registers = self.held, resident(self.held.threads, self.own, element, gpu, reserved(nest))
        if held.resident > registers:
            what = "registers of a multiprocessor hold {} loads of each of {} threads {} times, not {}"
            return Reason(what, self.own, held.threads, registers, held.resident)
        bytes_of_all = held.resident * (self.shared(nest, element) + _RESERVED)
        if bytes_of_all > gpu.shared_memory + _RESERVED or self.shared(nest, element) > gpu.shared_memory:
            what = "{} blocks take {} bytes of shared memory, a multiprocessor has {}"
            return Reason(what, held.resident, bytes_of_all, gpu.shared_memory + _RESERVED)
        return None


def turns(tile: HeldTile, nest: HeldNest, gpu: Gpu) -> float:
    """The slabs, over what a GPU holds of them at once."""
    return nest.slabs(tile.width) / clusters_at_once(tile.cluster, tile.resident, gpu)


def _tiles_of(held: HeldTile, nest: HeldNest, element: int, gpu: Gpu) -> Iterator[BothTile]:
    """With as few loads in shared memory as so many blocks beside each other need; none where registers have room."""
    for count in _BESIDE:
        fewer = replace(held, resident=count - 1)
        if turns(fewer, nest, gpu) <= 1:
            return  # all are there at once already
        own = norm_held.room(held.threads, count, element, gpu, reserved(nest))
        tile = BothTile(replace(held, resident=count), held.loads - own)
        if own >= _LEAST and tile.kept > 0 and tile.refuse_room(nest, element, gpu) is None:
            yield tile


def tiles(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[BothTile]:
    """Of each width of slabs, size of clusters and number of blocks beside each other the kernel whose threads wait
    least for each other, and of those that wait as long the one that keeps most in registers."""
    least = dict[tuple[int, int, int], BothTile]()

    def rank(tile: BothTile) -> tuple[float, int]:
        return norm_held.waits(tile.held), -tile.own * tile.held.threads

    for across in norm_held.widths(nest):
        for cluster in CLUSTERS if gpu.warpgroup_mma else (1,):
            for threads in THREADS:
                if threads < across or cluster > nest.many:
                    continue
                loads = ceil(ceil(nest.many / cluster) / (threads // across))
                held = HeldTile(across, cluster, threads, loads, 1)
                if loads > _LOADS or not norm_held.full(held, nest):
                    continue
                for tile in _tiles_of(held, nest, element, gpu):
                    size = across, cluster, tile.held.resident
                    least[size] = min(least.get(size, tile), tile, key=rank)
    yield from least.values()


def refuse_tile(tile: BothTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    held = tile.held
    if held.cluster not in CLUSTERS or held.threads not in THREADS:
        return "there are kernels of 1 to 8 blocks, and of 32 to 512 threads in whole warps"
    if (reason := norm_held.refuse_share(held, nest, gpu)) is not None:
        return reason
    if held.loads > _LOADS:
        return Reason("threads have {} loads at most, not {}", _LOADS, held.loads)
    if not 0 < tile.kept < held.loads - 1:
        what = "of {} loads one to all but two are kept in shared memory, not {}"
        return Reason(what, held.loads, tile.kept)
    return tile.refuse_room(nest, element, gpu)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := norm_held.refuse(problem, gpu)) is not None:
        return reason
    return None if gpu.async_copies else "copies to shared memory run beside a block's work from sm_80 on"


_KEPT, _ALL = 60, 0.9
"""A warp's instructions for a load in shared memory, beside those of one in registers (a copy and its address, two
reads and theirs); and what slabs take that are all there at once, of what they take else. Of eight kernels for as many
problems on an H200, off by 13%, none held out. All else is that of slabs which registers hold in as many blocks."""


def _seconds(problem: KernelProblem, tile: BothTile, target: Target) -> float:
    assert target.gpu is not None, "registers are a GPU's"
    nest = held_nest_for(problem)
    part = _ALL if turns(tile.held, nest, target.gpu) <= 1 else 1.0
    return part * norm_held.taken(problem, tile.held, target, tile.kept * _KEPT)


def _emit(problem: KernelProblem, tile: BothTile, at: StepExpressions) -> StepCode:
    return emit_held(problem, tile.held, "norm_in_both", "", at, f"bolt::portable::InShared<{tile.kept}>, ")


FORM: Form[BothTile] = Form(
    "both",
    serves,
    _refuse,
    lambda problem, gpu: tiles(held_nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, held_nest_for(problem), element_bytes(problem), gpu),
    _seconds,
    BothTile.read,
    _emit,
)
