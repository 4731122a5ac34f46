"""How a GPU finds places of a few elements of short lines in order: neighbouring threads share a line, and each keeps
the first ones that it has met in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.places.key_bins import neighbours, refuse_few, up
from bolt_build.families.portable.kernels.places.sorted_places import (
    count_of,
    extent_of,
    key_bytes,
    results_text,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS, _KEPT, _AT_ONCE, _RUNS = (1, 2, 4, 8, 16, 32), 16, 16, 16
"""Threads of a line; keys that each keeps at most; elements that it asks for at once, where it keeps no more; and how
often at most."""
COMPARISONS = {2: 1, 4: 5, 8: 19, 16: 63}
"""Of as many keys that a network sorts."""


@dataclass(frozen=True)
class FewTile(NumberTile):
    """A line has `threads` threads, which keep the first `kept` keys of those they have met. Each loads `lanes`
    neighbours at once, `loads` times, before it looks at them."""

    threads: int
    kept: int
    loads: int
    lanes: int

    @property
    def at_once(self) -> int:
        return self.loads * self.lanes


def refuse_kept(problem: KernelProblem) -> str | None:
    """Why threads do not keep what is wanted in registers, None where they do."""
    if (reason := refuse_few(problem)) is not None:
        return reason
    count = count_of(problem)
    return Reason("threads keep up to {} keys, not {}", _KEPT, count) if count > _KEPT else None


def kept_of(problem: KernelProblem) -> int:
    """Keys that a thread keeps."""
    return 1 << ceil(log2(count_of(problem)))


def _lanes(problem: KernelProblem) -> int:
    """Neighbours in an access of 16 bytes, fewer where lines are no multiple of that; 1 where they lie apart."""
    if not neighbours(problem):
        return 1
    extent, size = extent_of(problem), problem.inputs[0].format.dtype.nbytes
    return next(lanes for lanes in (8, 4, 2, 1) if lanes * size <= 16 and extent % lanes == 0)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FewTile]:
    kept, most = kept_of(problem), _lanes(problem)
    for threads in _THREADS:
        own = ceil(extent_of(problem) / threads)
        if threads > 1 and own < 2:
            break
        lanes = most
        while lanes > own:
            lanes //= 2
        at_once = max(kept, min(_AT_ONCE, up(own, max(kept, lanes))))
        yield FewTile(threads, kept, at_once // lanes, lanes)


def _refuse_tile(problem: KernelProblem, tile: FewTile, gpu: Gpu) -> str | None:
    extent, kept = extent_of(problem), kept_of(problem)
    if tile.threads not in _THREADS:
        return Reason("no line has {} threads", tile.threads)
    if tile.kept != kept:
        return Reason("keeps {} keys for {} elements, not {}", kept, count_of(problem), tile.kept)
    if tile.lanes not in (1, 2, 4, 8) or _lanes(problem) % tile.lanes:
        return Reason("lines of {} elements are not loaded {} at a time", extent, tile.lanes)
    if tile.at_once % kept or tile.at_once > max(_AT_ONCE, kept):
        return Reason("{} elements at once are not sorted in runs of {}", tile.at_once, kept)
    if (rounds := ceil(extent / (tile.threads * tile.at_once))) > _RUNS:
        return Reason("a thread would ask {} times, at most {} are worth it", rounds, _RUNS)
    return None


_ELEMENT, _COMPARED, _EXCHANGED, _BEGIN, _STORED = (13.0, 4.5), 2.0, 2.0, 60.0, 12.0
"""Instructions of an element until it is a key, alone and in pairs of neighbours of half precision; of a comparison of
keys, of one that another thread has, of a thread for all else, and of a place that it stores. They are counted in the
code."""
_WIDE = 2.6
"""What comparisons of keys of 64 bits take, in those of 32."""
_ISSUED = 128 * 1.6e9 * 0.36
"""Instructions of threads that a multiprocessor begins in a second: of the greater and the lesser of two it begins half
as many as of others. An H200 has timed 20 such kernels."""
_BUSY = 1024
"""Threads of a multiprocessor below which it begins fewer, by the root of their part: as two kernels of an H200 did."""
_REACHED, _ROUND, _STEP = 0.7, 0.6e-6, 2.5e-9
"""The part of a GPU's bandwidth that is reached, and seconds of loads that others wait for and of an instruction."""


def _seconds(problem: KernelProblem, tile: FewTile, target: Target) -> float:
    gpu, extent, kept = target.gpu, extent_of(problem), tile.kept
    assert gpu is not None, "forms are for GPUs"
    lines, half = problem.inputs[0].type.elements // extent, problem.inputs[0].format.dtype in (DType.F16, DType.BF16)
    wide = _WIDE if key_bytes(problem) == 8 else 1.0
    rounds = ceil(extent / (tile.threads * tile.at_once))
    joined = _COMPARED * (kept / 2 + kept / 2 * log2(kept))
    runs = rounds * tile.at_once / kept
    own = rounds * tile.at_once * _ELEMENT[half and tile.lanes > 1 and wide == 1.0]
    own += wide * runs * (_COMPARED * COMPARISONS[kept] + joined)
    own += wide * log2(tile.threads) * (kept * _EXCHANGED + joined) + kept * _STORED / min(tile.threads, kept) + _BEGIN
    threads = lines * tile.threads
    issue, waits = threads * own / (_ISSUED * gpu.sms), _ROUND * rounds + _STEP * own
    issue /= min(1.0, threads / (gpu.sms * _BUSY)) ** 0.5
    return float(max(moved(problem.nbytes, target) / _REACHED, issue, waits) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: FewTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    key = "std::uint32_t" if key_bytes(problem) == 4 else "std::uint64_t"
    numbers = f"{tile.threads}, {tile.kept}, {tile.loads}, {tile.lanes}"
    how = f"{boolean(op.greatest)}, {numbers}, {key}, {ctype(x.format.dtype)}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    return StepCode(
        ("bolt_portable/cuda/places/few_places.h",), None, "", f"bolt::portable::few_places<{how}>(r, {given});"
    )


FORM: Form[FewTile] = Form(
    "few", serves, lambda problem, gpu: refuse_kept(problem), _tiles, _refuse_tile, _seconds, FewTile.read, _emit
)
