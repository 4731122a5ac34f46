"""How a GPU normalises in slabs that threads hold in registers: neighbouring channels at all positions, which a block
or a cluster of blocks reads with all loads under way at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import moved
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest, held_nest_for
from bolt_build.families.portable.kernels.norms.norm_loops import loop_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norms.norm_nest import (
    WIDEST,
    InSlabs,
    bytes_of,
    element_bytes,
    loops_text,
    operands_share,
    serves,
)
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.targets import Gpu, Target

CLUSTERS, THREADS = (1, 2, 4, 8), range(WARP, 513, WARP)
"""Blocks of a cluster, and threads of a block."""
_BYTES = 384
"""Of elements that a thread holds at most."""
_MOST_WARPS, _MOST_BLOCKS, _SCHEDULERS, _RESERVED, _LEAST = 64, 32, 4, 48, 32
"""Of a multiprocessor; and registers of a thread beside those that hold elements, as many as it wants and as many as it
can do with."""
_REGISTERS = 248
"""Of a thread at most, in whole eights."""
_STATIC = 48 << 10
"""Bytes of shared memory that the compiler places."""
_USED = 0.84
"""The part of what threads could hold that elements take at least."""


@dataclass(frozen=True)
class HeldTile(InSlabs):
    """`across` loads of `LANES` channels make a slab. The `cluster` blocks of a slab, of `threads` threads, share its
    positions evenly: each thread has so many `loads` of them. A multiprocessor has `resident` blocks."""

    across: int
    cluster: int
    threads: int
    loads: int
    resident: int

    @property
    def parameters(self) -> Named:
        return (
            ("threads", self.threads),
            ("loads", self.loads),
            ("across", self.across),
            ("cluster", self.cluster),
            ("resident", self.resident),
        )

    @staticmethod
    def read(reader: Reader) -> HeldTile:
        names = ("threads", "loads", "across", "cluster", "resident")
        threads, loads, across, cluster, resident = (reader.number(name) for name in names)
        return HeldTile(across, cluster, threads, loads, resident)

    @property
    def settings(self) -> Named:
        return ()

    def share(self, nest: HeldNest) -> int:
        """Positions of a block."""
        return ceil(nest.many / self.cluster)

    def needed(self, nest: HeldNest) -> int:
        """Loads of a thread."""
        return ceil(self.share(nest) / (self.threads // self.across))

    def used(self, nest: HeldNest) -> float:
        """The part of what threads could hold that elements take."""
        return nest.many * self.across / (self.cluster * self.threads * self.loads)

    def memory(self, nest: HeldNest) -> int:
        """Bytes of shared memory in which threads and blocks put sums together (`NormHeld`)."""
        statistics = self.width // nest.repeats // nest.group
        span = 1 if nest.group % LANES == 0 or statistics == 1 else 2 if nest.group > LANES else LANES
        one_sum = span == statistics == 1
        counted = nest.length > 0 and not one_sum
        of_warps = one_sum or (not counted and self.across <= WARP // 2 and WARP % self.across == 0)
        rows = self.threads // WARP if of_warps else self.threads // self.across
        columns = 1 if one_sum else self.across * span
        partial, counts = 8 * rows * columns, 4 * rows * (columns if counted else 1)
        return partial + 8 * (self.cluster + 1) * statistics + 16 * max(nest.scaled, 1) + counts

    def at_once(self, element: int, gpu: Gpu) -> tuple[int, int]:
        """Blocks of a multiprocessor whose threads keep all in registers, and those of which some waits in memory."""
        loose, tight = (resident(self.threads, self.loads, element, gpu, beside) for beside in (_RESERVED, _LEAST))
        return loose, tight


def resident(threads: int, loads: int, element: int, gpu: Gpu, reserved: int = _RESERVED) -> int:
    """Blocks of a multiprocessor, where threads hold so many loads and `reserved` registers (`held_blocks`); 0 where
    registers do not."""
    warps, registers = threads // WARP, 2 * loads * element + reserved
    lane = gpu.registers // (_SCHEDULERS * WARP)
    beside = next((each for each in range(16, 1, -1) if lane // each // 8 * 8 >= registers), 1)
    return min(_SCHEDULERS * beside // warps, _MOST_WARPS // warps, _MOST_BLOCKS)


def room(threads: int, blocks: int, element: int, gpu: Gpu, reserved: int = _RESERVED) -> int:
    """Loads of a thread that registers hold where a multiprocessor has so many blocks: the most for which `resident` is
    as many."""
    beside = ceil(blocks * (threads // WARP) / _SCHEDULERS)
    if beside > _MOST_WARPS // _SCHEDULERS or blocks > _MOST_BLOCKS:
        return 0
    registers = gpu.registers // (_SCHEDULERS * WARP) // max(beside, 2) // 8 * 8
    return max(0, min(registers, _REGISTERS) - reserved) // (2 * element)


def widths(nest: HeldNest) -> list[int]:
    """Of slabs, in loads: all that channels are a multiple of and that have whole groups."""
    loads = nest.channels.extent // LANES
    found = range(1, min(loads, WIDEST) + 1) if nest.repeats == 1 else (loads,)
    return [each for each in found if loads % each == 0 and each * LANES % nest.group == 0]


def full(tile: HeldTile, nest: HeldNest) -> bool:
    """Whether few of a thread's loads are none."""
    return tile.used(nest) >= _USED or tile.loads == 1


def tiles(nest: HeldNest, element: int, gpu: Gpu, clusters: Sequence[int] = CLUSTERS) -> Iterator[HeldTile]:
    """Slabs of every width that channels are a multiple of, where registers hold a block's share and few of them are
    left."""
    most = _BYTES // (LANES * element)
    for across in widths(nest):
        for cluster in clusters:
            for threads in THREADS:
                if threads < across or nest.many * across > cluster * threads * most:
                    continue
                tile = HeldTile(across, cluster, threads, HeldTile(across, cluster, threads, 1, 1).needed(nest), 1)
                if tile.loads <= most and full(tile, nest):
                    yield from (replace(tile, resident=each) for each in {*tile.at_once(element, gpu)} - {0})


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why nothing can be cut in such slabs, None where it can."""
    found = held_nest(problem)
    if isinstance(found, str):
        return found
    if found.repeats > 1 and found.channels.extent > LANES * THREADS[-1]:
        what = "channels repeat after {} loads, a block has {} threads at most"
        return Reason(what, found.channels.extent // LANES, THREADS[-1])
    return None


def refuse_tile(tile: HeldTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if tile.cluster not in CLUSTERS or tile.threads not in THREADS:
        return "there are kernels of 1, 2, 4 or 8 blocks, and of 32 to 512 threads in whole warps"
    return refuse_cut(tile, nest, element, gpu)


def refuse_cut(tile: HeldTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """The same, in clusters of any size and blocks of whole warps."""
    if (reason := refuse_share(tile, nest, gpu)) is not None:
        return reason
    if tile.loads * LANES * element > _BYTES:
        return Reason("{} loads of a thread are more than the {} bytes that it holds", tile.loads, _BYTES)
    if not 0 < tile.resident <= (most := tile.at_once(element, gpu)[1]):
        what = "a multiprocessor holds {} loads of each of {} threads {} times, not {}"
        return Reason(what, tile.loads, tile.threads, most, tile.resident)
    return None


def refuse_share(tile: HeldTile, nest: HeldNest, gpu: Gpu) -> str | None:
    """Why slabs are not cut so, wherever their loads are kept."""
    if (reason := tile.refuse_slab(nest)) is not None:
        return reason
    if nest.repeats > 1 and tile.width != nest.channels.extent:
        what = "{} channels of {} pixels are a slab, not {} elements"
        return Reason(what, nest.along.extent, nest.repeats, tile.width)
    if (memory := tile.memory(nest)) > _STATIC:
        return Reason("sums of a block take {} bytes of shared memory, there are {}", memory, _STATIC)
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.cluster > nest.many:
        return Reason("{} positions are fewer than the {} blocks of a cluster", nest.many, tile.cluster)
    if tile.loads != (needed := tile.needed(nest)):
        return Reason("{} positions of a block are {} loads of a thread, not {}", tile.share(nest), needed, tile.loads)
    return None


_FIXED, _LOAD, _CLUSTER, _THREADS = 3.0e-6, 0.1e-6, 0.35e-6, 1.3e-9
"""Seconds of a launch; of each load of a thread; of a step of a cluster's size, in powers of two; and of a thread of a
block: loads, sums and stores wait for each other. Fitted, as what follows is, to 315 kernels that an H200 has timed
over buffers beyond L2, of which 93% take up to 30% more or less than that."""
_MEMORY, _RUN, _SINGLE, _ALONE = 0.69, 0.48, 0.25, 0.8e-6
"""What memory takes beside what threads compute, where slabs are neighbouring channels and where each is a run of
memory with one statistic; and what is added where a multiprocessor has one block, whose loads and stores nothing
overlaps, as a part of memory's time and in seconds."""
_SPREAD, _TAIL, _ISSUED, _BESIDE_ODD = 0.22, 0.29, 0.87, 1.2
"""How much less few blocks take than their part of the multiprocessors; what memory takes more for the part of a last
round that clusters leave idle; the part of instructions that nothing hides; and what memory takes more where stages
read tensors beside pixels that are no whole loads."""
_PER_LOAD, _PER_WARP, _CYCLES = 70, 450, 1.755e9 / 1.417
"""Instructions of a warp for each load and beside them, and how many a scheduler issues a second."""
_STAGES = {
    "silu": 6, "swish": 7, "gelu_tanh": 8, "gelu": 10, "mish": 9, "sigmoid": 6, "tanh": 10, "softplus": 10, "erf": 10,
    "exp": 8, "elu": 14, "selu": 14, "celu": 14,
}  # fmt: skip
"""Instructions of an element in stages that compute functions, special ones counted twice; others have one or two.
Six of SiLU are what kernels with it took longer on an H200, the others are in proportion to instructions counted."""
_SPILLED = 1500
"""A guess at such instructions where some of what a thread has waits in memory, a high one, for no GPU has timed it."""
_PARTS = {32: 0.61, 48: 0.7, 80: 0.66, 96: 0.9, 160: 0.95}
"""The part of memory's lines that runs of so many bytes have use for."""
_SECTOR, _HALF, _NEAR, _FAR = 32, 0.114, 0.47, 256
"""Bytes of a sector. The same of runs of half a one: others store the other halves, so memory reads sectors before it
writes them. It is less where pixels lie closer to each other than so many bytes, by a power of that."""


def whole(tile: HeldTile, nest: HeldNest) -> bool:
    """Whether a slab is one run of memory."""
    return nest.positions[-1].steps[0] == nest.channels.extent == tile.width


def lines(tile: HeldTile, nest: HeldNest, element: int) -> float:
    """The part of memory's lines that a slab has use for."""
    run = tile.width * element
    if whole(tile, nest):
        return 1.0
    if run == _SECTOR // 2:
        return float(_HALF * (_FAR / min(max(nest.positions[-1].steps[0] * element, _SECTOR), _FAR)) ** _NEAR)
    return _PARTS.get(run, 1.0 if run % 64 == 0 else 0.95 if run % 32 == 0 else 0.85)


def issued(tile: HeldTile, nest: HeldNest, gpu: Gpu, more: int = 0) -> float:
    """Seconds in which multiprocessors issue the instructions of all slabs, and `more` of each warp."""
    warps = nest.slabs(tile.width) * tile.cluster * tile.threads / WARP
    return warps * (tile.loads * _PER_LOAD + _PER_WARP + more) / (gpu.sms * _SCHEDULERS * _CYCLES)


def behind(problem: KernelProblem) -> int:
    """Instructions of a thread for a load, in the stages behind the normalisation."""
    names = (stage.op.function if isinstance(stage.op, Activation) else "" for stage in problem.epilogue)
    return LANES * sum(_STAGES.get(name, 0) for name in names)


def waits(tile: HeldTile) -> float:
    """Seconds in which a slab's threads wait for loads, for each other and for stores."""
    return tile.loads * _LOAD + log2(tile.cluster) * _CLUSTER + tile.threads * _THREADS


def seconds(problem: KernelProblem, tile: HeldTile, target: Target) -> float:
    element = element_bytes(problem)
    assert target.gpu is not None, "registers are a GPU's"
    return taken(problem, tile, target, _SPILLED if tile.resident > tile.at_once(element, target.gpu)[0] else 0)


def taken(problem: KernelProblem, tile: HeldTile, target: Target, more: int) -> float:
    """Seconds of a kernel whose warps have so many more instructions than those of elements in registers alone."""
    nest, gpu, element = held_nest_for(problem), target.gpu, element_bytes(problem)
    assert gpu is not None, "registers are a GPU's"
    slabs = nest.slabs(tile.width)
    spread = min(1.0, slabs * tile.cluster / gpu.sms) ** _SPREAD * operands_share(nest)
    part = (_RUN if whole(tile, nest) and tile.width == nest.group else _MEMORY) / lines(tile, nest, element)
    rounds = slabs / clusters_at_once(tile.cluster, tile.resident, gpu)
    part += _TAIL * (ceil(rounds) / rounds - 1) if rounds > 1 else 0.0
    if nest.repeats > 1 and any(stage.operand is not None for stage in problem.epilogue):
        part *= 1 + _BESIDE_ODD
    memory = moved(bytes_of(problem, 2), target) / spread
    memory = memory * (part + _SINGLE) + _ALONE if tile.resident == 1 else memory * part
    return float(_FIXED + waits(tile) + memory + _ISSUED * issued(tile, nest, gpu, more + tile.loads * behind(problem)))


def emit_held(
    problem: KernelProblem, tile: HeldTile, function: str, more: str, at: StepExpressions, kept: str = ""
) -> StepCode:
    """A call of a function that takes such slabs, with `more` arguments in front of the pointers, and the type `kept`
    behind the slabs'."""
    nest = held_nest_for(problem)
    (positions,) = nest.positions
    sizes = [tile.loads, tile.threads, tile.across, tile.cluster, tile.share(nest), nest.group, nest.many]
    sizes += [positions.steps[0], max(len(nest.kept), 1), tile.resident]
    if nest.repeats > 1 or nest.plane:
        sizes += [0 if nest.plane else nest.along.extent, nest.plane]
    if nest.length:
        sizes += [nest.length]
    call = (
        f"bolt::portable::{function}<bolt::portable::HeldShape<{', '.join(map(str, sizes))}>, "
        f"{kept}bolt::portable::NormOperands::{nest.operands}, {types_text(problem)}>(r, {loops_text(problem, nest)}, "
        f"{loop_text(nest.along)}, {more}{pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


def _emit(problem: KernelProblem, tile: HeldTile, at: StepExpressions) -> StepCode:
    return emit_held(problem, tile, "norm_in_registers", "", at)


FORM: Form[HeldTile] = Form(
    "held",
    serves,
    refuse,
    lambda problem, gpu: tiles(held_nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, held_nest_for(problem), element_bytes(problem), gpu),
    seconds,
    HeldTile.read,
    _emit,
)
