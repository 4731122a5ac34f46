"""How a GPU scatters slices whose updates are joined, however many a slice has: their numbers stand beside each other,
slice by slice, before anything moves, so the result is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import struct
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.moves.gather import tuples_text
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.scatter.scatter_atomics import is_there
from bolt_build.families.portable.kernels.scatter.scatter_claims import MOST_SCRATCH, counts, slice_of
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES, lines_of, refuse_apart
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import Gpu, Target

_ACCESS, _GROUPS, _LANES, _NUMBER, _MOST = 16, (4, 8, 16, 32), (16, 8, 4, 2, 1), 4, 0x7FFFFFFF
"""Bytes that a thread moves at once, threads of a slice, elements of a thread that are tried, bytes of an update's
number, and what a signed number of 32 bits holds."""
_LONG_BLOCKS, _LONG_BLOCK = 264, 1024
"""Blocks that join long segments at most, one after the other, and threads of one."""


@dataclass(frozen=True)
class SegmentTile(NumberTile):
    """A slice has `threads` threads, each of a word of `lanes` elements, or as many of them as it has words for."""

    lanes: int
    threads: int

    @property
    def room(self) -> int:
        """Updates of a slice that its threads join; a block joins more (`segment_room`)."""
        return 8 * self.threads


def _slice_of(problem: KernelProblem) -> int:
    """Elements of a slice: of lines along the last axis each element is one."""
    return 1 if isinstance(problem.op, ScatterElements) else slice_of(problem)


def _counts(problem: KernelProblem) -> tuple[int, int]:
    """Slices, and updates of them."""
    if isinstance(problem.op, ScatterElements):
        return problem.inputs[0].type.elements, problem.inputs[1].type.elements
    return counts(problem)


def _slices_text(problem: KernelProblem) -> str:
    """C++ for which slices the indices name."""
    op, (data, indices, _) = problem.op, problem.inputs
    if not isinstance(op, ScatterElements):
        assert isinstance(op, ScatterND)
        return tuples_text(data, indices, op.batch_dims)
    outer, length, _ = lines_of(problem)
    extents, many = f"{{1, {{{length}}}}}", indices.shape[op.axis]
    return struct("bolt::portable::GatherND", batches=outer, tuples=many, inner=1, extents=extents)


def _words(problem: KernelProblem, tile: SegmentTile) -> int:
    return _slice_of(problem) // tile.lanes


def _longs(problem: KernelProblem, tile: SegmentTile) -> int:
    """Long segments that there are at most; an engine whose tensors begin anywhere has them from 32 threads on alone,
    which are no more."""
    return _counts(problem)[1] // (tile.room + 1)


def _scratch(problem: KernelProblem, tile: SegmentTile) -> int:
    slices, updates = _counts(problem)
    return _NUMBER * (2 * slices + 2 * updates + 2 + _longs(problem, tile))


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    assert isinstance(problem.op, (ScatterElements, ScatterND))
    if problem.op.reduction == "none":
        return "updates that replace slices are not joined"
    if (most := max(problem.inputs[0].type.elements, problem.inputs[2].type.elements)) > _MOST:
        return Reason("{} elements are more than the {} that it counts", most, _MOST)
    return None


def _refuse_lines(problem: KernelProblem, gpu: Gpu) -> str | None:
    return refuse_apart(problem) or _refuse(problem, gpu)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[SegmentTile]:
    size, inner = problem.outputs[0].format.dtype.nbytes, _slice_of(problem)
    for lanes in _LANES:
        if lanes * size <= _ACCESS and inner % lanes == 0:
            threads = next((each for each in _GROUPS if each * lanes >= inner), _GROUPS[-1])
            yield SegmentTile(lanes, threads)


def _refuse_tile(problem: KernelProblem, tile: SegmentTile, gpu: Gpu) -> str | None:
    size, inner = problem.outputs[0].format.dtype.nbytes, _slice_of(problem)
    if tile.threads not in _GROUPS:
        return Reason("a slice has 4, 8, 16 or 32 threads, not {}", tile.threads)
    if tile.lanes not in _LANES or tile.lanes * size > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    if inner % tile.lanes:
        return Reason("slices of {} elements are no words of {}", inner, tile.lanes)
    if (scratch := _scratch(problem, tile)) > MOST_SCRATCH:
        return Reason("takes {} bytes beside its tensors, at most {} are kept", scratch, MOST_SCRATCH)
    return None


_REACHED, _INSTRUCTIONS, _JOINED, _ORDERED, _ISSUED, _HIDDEN = 0.8, 60, 40, 3, 0.5, 0.1
"""The part of the bandwidth; guesses at instructions of a thread for its word, for an update of it and for a number
that it compares with another one, at the part of the rate at which they go, and at that of the shorter of both which
the longer one does not hide."""
_NUMBERED, _SLICE, _WAIT = 42e-12, 24e-12, 1.3e-6
"""Seconds of a GPU until an update has a place and its number is there, and for a part of a slice; and those in which
a kernel's threads wait for each other. They follow ten kernels of an H200, off by 15%."""
_LONG_PART = 0.05e-6
"""A guess at seconds of an update of a part of a long segment, several of which are on their way at once."""


def _seconds(problem: KernelProblem, tile: SegmentTile, target: Target) -> float:
    (slices, updates), gpu = _counts(problem), target.gpu
    assert gpu is not None, "forms are for GPUs"
    each, parts = updates / slices, ceil(_words(problem, tile) / tile.threads)
    memory = moved(problem.nbytes + _NUMBER * (6 * slices + 6 * updates), target) / _REACHED
    ordered = min(each, tile.room) ** 2 / tile.threads * _ORDERED
    issued = tile.threads * parts * (slices * (_INSTRUCTIONS + ordered) + updates * _JOINED * tile.lanes / 8)
    issued /= target.rate("fp32") / 2 * _ISSUED
    both = max(memory, issued) + _HIDDEN * min(memory, issued)
    launches = 5 if _longs(problem, tile) == 0 else 6
    waits = launches * (OVERLAPPED * target.launch_seconds + _WAIT)
    if each > tile.room:
        waits += ceil(slices * parts / gpu.sms) * (each * tile.threads / _LONG_BLOCK * _LONG_PART + 4 * _WAIT)
    return float(both + updates * _NUMBERED + slices * parts * _SLICE + waits)


def _emit(problem: KernelProblem, tile: SegmentTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, (ScatterElements, ScatterND))
    types = f"{UPDATES[op.reduction]}, {tile.lanes}, {tile.threads}"
    types += f", {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    at, member = with_scratch(problem, _scratch(problem, tile), at)
    blocks = min(_LONG_BLOCKS, _longs(problem, tile) * ceil(_words(problem, tile) / tile.threads))
    given = f"{_slices_text(problem)}, {blocks}, {', '.join((*at.inputs, *at.outputs))}"
    header = ("bolt_portable/cuda/scatter/scatter_segments.h",)
    return StepCode(header, *member, f"bolt::portable::scatter_segments<{types}>(r, {given});")


FORM: Form[SegmentTile] = Form("segments", is_there, _refuse, _tiles, _refuse_tile, _seconds, SegmentTile.read, _emit)
ELEMENTS: Form[SegmentTile] = Form(
    "segments",
    lambda problem: is_there(problem) and lines_of(problem)[2] == 1,
    _refuse_lines,
    _tiles,
    _refuse_tile,
    _seconds,
    SegmentTile.read,
    _emit,
)
