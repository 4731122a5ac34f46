"""How a GPU normalises planes that have one statistic and lie apart, such as those of a channel in all images of a
batch: a block or a cluster of blocks has all of them in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import moved
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_held import resident
from bolt_build.families.portable.kernels.norms.norm_loops import loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

_CLUSTERS, _THREADS = (1, 2, 4, 8), range(2 * WARP, 513, 2 * WARP)
"""Blocks of a cluster, and threads of a block."""
_BYTES, _ROOM, _KEPT, _MOST, _USED = 384, 256, 4, 0x7FFFFFFF, 0.8
"""Bytes of elements that a thread holds at most, and where others are read again; loops around planes; elements that
are counted; and the part of what threads could hold that elements take at least."""


@dataclass(frozen=True)
class PlanesTile(NumberTile):
    """The `cluster` blocks of a statistic share its planes evenly. Each thread has so many `loads` of them in its
    registers, and a multiprocessor `resident` blocks."""

    threads: int
    loads: int
    cluster: int
    resident: int


def _planes(problem: KernelProblem) -> tuple[Loop, Loop]:
    """The loops over planes, and over the elements of one."""
    outer, inner = loops_of(problem).reduced
    return outer, inner


def _loads(problem: KernelProblem) -> int:
    """Those of all planes of a statistic (`PlanesShape::all`)."""
    outer, inner = _planes(problem)
    aligned = inner.extent % LANES == 0 and outer.steps[0] % LANES == 0
    return outer.extent * (inner.extent // LANES if aligned else (inner.extent + 2 * LANES - 2) // LANES)


def _statistics(problem: KernelProblem) -> int:
    outer, inner = _planes(problem)
    return problem.inputs[0].type.elements // (outer.extent * inner.extent)


def _serves(problem: KernelProblem) -> bool:
    if not isinstance(problem.op, Norm):
        return False
    loops = loops_of(problem)
    return len(loops.reduced) == 2 and loops.reduced[1].steps[0] == 1 and loops.reduced[1].extent >= LANES


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    loops = loops_of(problem)
    outer, inner = loops.reduced
    if any(step for loop in loops.reduced for step in loop.steps[1:]):
        return "planes of one statistic have several scales, or operands of several channels"
    if len(loops.kept) > _KEPT:
        return Reason("lies in {} loops around planes, at most {} are supported", len(loops.kept), _KEPT)
    whole = inner.extent % LANES == 0 and outer.steps[0] % LANES == 0
    if whole and any(loop.steps[0] % LANES for loop in loops.kept):
        return "planes of whole loads begin inside of one"
    if (elements := problem.inputs[0].type.elements) > _MOST:
        return Reason("{} elements are more than the {} that it counts", elements, _MOST)
    return None


def _most(problem: KernelProblem, threads: int, cluster: int, gpu: Gpu) -> int:
    """Loads of a thread at most: the largest blocks read again what they have no room for."""
    largest = threads == _THREADS[-1] and cluster == (_CLUSTERS[-1] if gpu.warpgroup_mma else 1)
    return _ROOM // (LANES * element_bytes(problem)) if largest else 1 << 31


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PlanesTile]:
    loads, element = _loads(problem), element_bytes(problem)
    for cluster in _CLUSTERS if gpu.warpgroup_mma else _CLUSTERS[:1]:
        share = ceil(loads / cluster)
        for threads in _THREADS:
            each = min(ceil(share / threads), _most(problem, threads, cluster, gpu))
            if share < _USED * each * threads or each * LANES * element > _BYTES:
                continue
            tile = PlanesTile(threads, each, cluster, resident(threads, each, element, gpu))
            if tile.resident > 0 and _refuse_tile(problem, tile, gpu) is None:
                yield tile


def _refuse_tile(problem: KernelProblem, tile: PlanesTile, gpu: Gpu) -> str | None:
    loads, element = _loads(problem), element_bytes(problem)
    if tile.cluster not in _CLUSTERS or tile.threads not in _THREADS:
        return "there are kernels of 1, 2, 4 or 8 blocks, and of 64 to 512 threads in whole pairs of warps"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    share = ceil(loads / tile.cluster)
    needed = ceil(share / tile.threads)
    if tile.loads != needed and not (tile.loads < needed and tile.loads == _ROOM // (LANES * element)):
        return Reason("{} loads of a block are {} of a thread, not {}", share, needed, tile.loads)
    if (tile.cluster - 1) * share >= loads:
        return Reason("{} loads are not the shares of {} blocks", loads, tile.cluster)
    if tile.loads * LANES * element > _BYTES:
        return Reason("{} loads of a thread are more than the {} bytes that it holds", tile.loads, _BYTES)
    if not 0 < tile.resident <= (most := resident(tile.threads, tile.loads, element, gpu)):
        what = "a multiprocessor holds {} loads of each of {} threads {} times, not {}"
        return Reason(what, tile.loads, tile.threads, most, tile.resident)
    return None


_FIXED, _LOAD, _CLUSTER, _THREAD = 1.9e-6, 0.25e-6, 0.35e-6, 1.3e-9
"""Seconds of a launch; of each load of a thread; of a step of a cluster's size, in powers of two; and of a thread of a
block. The first two follow twelve kernels of an H200, the others are those of slabs that registers hold
(`norm_held.py`), as what follows is."""
_MEMORY, _SINGLE, _ALONE, _TAIL, _SPREAD = 0.55, 0.25, 0.8e-6, 0.29, 0.22
"""What memory takes beside what threads compute; what is added where a multiprocessor has one block; what memory takes
more for the part of a last round that clusters leave idle; and how much less few blocks take than their part of the
multiprocessors."""
_REACHED = 0.95
"""The part of the bandwidth that is reached at most."""
_ISSUED, _PER_LOAD, _PER_WARP, _CYCLES, _ODD, _SCHEDULERS = 0.87, 70, 450, 1.755e9 / 1.417, 2.5, 4
"""The part of instructions that nothing hides; instructions of a warp for each load and beside them; how many a
scheduler issues a second; and how many more they are where planes are no whole loads, as those kernels took."""


def _seconds(problem: KernelProblem, tile: PlanesTile, target: Target) -> float:
    gpu, (outer, inner) = target.gpu, _planes(problem)
    assert gpu is not None, "registers are a GPU's"
    blocks = _statistics(problem) * tile.cluster
    spread = min(1.0, blocks / gpu.sms) ** _SPREAD
    rounds = _statistics(problem) / clusters_at_once(tile.cluster, tile.resident, gpu)
    part = _MEMORY + (_TAIL * (ceil(rounds) / rounds - 1) if rounds > 1 else 0.0)
    again = max(0.0, 1 - tile.loads * tile.threads * tile.cluster / _loads(problem))
    memory = moved(bytes_of(problem, 2) + 2 * int(again * problem.inputs[0].nbytes), target) / spread
    least = memory / _REACHED
    memory = memory * (part + _SINGLE) + _ALONE if tile.resident == 1 else memory * part
    each = _PER_LOAD * (_ODD if inner.extent % LANES or outer.steps[0] % LANES else 1.0)
    issued = blocks * tile.threads / WARP * (tile.loads * each + _PER_WARP) / (gpu.sms * _SCHEDULERS * _CYCLES)
    waits = tile.loads * _LOAD + log2(tile.cluster) * _CLUSTER + tile.threads * _THREAD
    return float(_FIXED + max(least, waits + memory + _ISSUED * issued))


def _emit(problem: KernelProblem, tile: PlanesTile, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, Norm)
    loops, (outer, inner) = loops_of(problem), _planes(problem)
    sizes = (tile.loads, tile.threads, tile.cluster, tile.resident, outer.extent, inner.extent, outer.steps[0])
    call = (
        f"bolt::portable::norm_of_planes<bolt::portable::PlanesShape<{', '.join(map(str, sizes))}>, "
        f"{types_text(problem)}>(r, {norm_text(loops.kept, loops.reduced, problem.op.epsilon)}, "
        f"{pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM: Form[PlanesTile] = Form("planes", _serves, _refuse, _tiles, _refuse_tile, _seconds, PlanesTile.read, _emit)
