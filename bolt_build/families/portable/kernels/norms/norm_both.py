"""How a GPU normalises in slabs that registers and shared memory hold together: so more blocks are beside each other
than registers alone have room for, and some load while others exchange sums or store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import moved
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms import norm_held
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile, emit_held, resident
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest_for
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes, operands_share, serves
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = range(1, 9), norm_held.THREADS
"""Blocks of a cluster, and threads of a block."""
_BESIDE, _LOADS = range(2, 7), 48
"""Blocks of a multiprocessor, and loads of a thread at most."""
_RESERVED, _LEAST = 1 << 10, 4
"""Bytes of shared memory that a block costs beside its own; loads of a thread that registers hold at least."""
_REGISTERS, _PIXELS = 52, 60
"""Registers of a thread beside those that hold elements, and where a load is of several pixels: the fewest for which a
kernel is legal."""
ROOM = 68
"""The same of kernels that are offered: so many leave compiled ones none that wait in memory."""
_WARM = 512
"""Threads of a multiprocessor beyond which more of them are not better."""


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
        own = norm_held.room(held.threads, count, element, gpu, ROOM)
        tile = BothTile(replace(held, resident=count), held.loads - own)
        if own >= _LEAST and tile.kept > 0 and tile.refuse_room(nest, element, gpu) is None:
            yield tile


def tiles(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[BothTile]:
    """Of each width of slabs, size of clusters and number of blocks beside each other the kernel with threads enough
    that keeps least in shared memory."""
    least = dict[tuple[int, int, int], BothTile]()

    def rank(tile: BothTile) -> tuple[int, int, int]:
        missing = max(0, _WARM - tile.held.threads * tile.held.resident)
        return missing, tile.shared(nest, element), tile.held.loads

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


_BEGIN, _CLUSTER, _ISSUED, _LOAD = 1.6e-6, 1.0e-6, 1.25, 10
"""Seconds of a launch and of all that waits once; of a step of a cluster's size, in powers of two; and what
instructions take, of which a load has so many more than one that registers hold."""
_MEMORY, _FEW, _ROUND, _SPREAD, _SHARED = 0.07, 1.41, 0.23, 1.97, 0.63
"""What memory takes beside what threads compute. And what is added to it: below 512 threads of a multiprocessor, in
proportion; over the rounds of clusters, if there are several; where there are fewer slabs than a GPU holds; and where
all of a multiprocessor's shared memory is taken. Fitted to 96 kernels that an H200 has timed over buffers beyond L2,
which take 9% more or less than that; none is held out."""
_KEPT, _ALL = 60, 0.9
"""Where each position has a scale of its own: a warp's instructions for a load in shared memory, and what slabs take
that are all there at once, beside what slabs in registers take. Guesses."""
_OPERANDS, _ODD = 1.7, 4.9
"""What memory takes for tensors that stages behind read, and more where pixels are no whole loads."""
_NARROW, _RUN = 0.86, 128
"""What is added for the part of memory's lines that runs of fewer bytes have no use for."""


def _seconds(problem: KernelProblem, tile: BothTile, target: Target) -> float:
    gpu, nest, element, held = target.gpu, held_nest_for(problem), element_bytes(problem), tile.held
    assert gpu is not None, "registers are a GPU's"
    rounds = turns(held, nest, gpu)
    if nest.operands != "fixed":
        return (_ALL if rounds <= 1 else 1.0) * norm_held.taken(problem, held, target, tile.kept * _KEPT)
    shared = held.resident * (tile.shared(nest, element) + _RESERVED)
    unused = 1 / norm_held.lines(held, nest, element) - 1
    part = _MEMORY + _FEW * max(0.0, 1 - held.threads * held.resident / _WARM)
    part += _ROUND / rounds if rounds > 1 else _SPREAD * (rounds**-0.5 - 1)
    part += _SHARED * shared / (gpu.shared_memory + _RESERVED)
    part += unused * _NARROW if held.width * element < _RUN else 0.0
    beside = sum(problem.inputs[stage.operand].nbytes for stage in problem.epilogue if stage.operand is not None)
    memory = moved(bytes_of(problem, 2) - beside, target) / operands_share(nest)
    issued = norm_held.issued(held, nest, gpu, held.loads * (_LOAD + norm_held.behind(problem)))
    others = moved(beside, target) * (_OPERANDS + (_ODD if nest.repeats > 1 else 0.0))
    return float(_BEGIN + log2(held.cluster) * _CLUSTER + part * memory + _ISSUED * issued + others)


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
