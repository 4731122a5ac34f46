"""How a GPU sorts whole lines, or finds places of most of their elements in order: threads hold a line, and put its
keys in bins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.key_bins import (
    STATIC,
    bins_bytes,
    holds_for,
    neighbours,
    paired,
    refuse_bins,
    refuse_few,
    refuse_held,
    room_for,
)
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
from bolt_build.graph.ops.lines.lines import Places, TopElements
from bolt_build.targets import Gpu, Target

_THREADS, _HOLDS, _BLOCK = (32, 64, 128, 256, 512, 1024), 32, 128
"""Threads of a line, elements that each holds at most, and threads of a block whose warps have lines of their own."""
_LONGEST, _COARSE, _BINS = 2048, 1024, 4096
"""Elements of a line at most, the same of bf16, and bins: of more elements so many would share a bin that they are
sorted otherwise, where they are distributed as those of a normal distribution."""
_WORD = 16
"""Bytes of a word that threads load."""


@dataclass(frozen=True)
class BinTile(NumberTile):
    """A line has `threads` threads, which hold `holds` elements each. Their keys, of which there is room for `room`,
    are put in `bins`; in the end a thread has `each` neighbours."""

    threads: int
    holds: int
    each: int
    room: int
    bins: int


def _staged(problem: KernelProblem, tile: BinTile) -> int:
    """Bytes of shared memory that keep a line as it is, for the elements that are taken; 0 where nobody asks for them,
    where they are no neighbours, or have no room."""
    op, size = problem.op, problem.inputs[0].format.dtype.nbytes
    if not isinstance(op, TopElements) or not neighbours(problem):
        return 0
    line = ceil(extent_of(problem) * size / _WORD) * _WORD + _WORD
    together = _block(tile) // tile.threads
    own = bins_bytes(tile.threads, tile.room, tile.bins, key_bytes(problem)) + line
    return line if together * own <= STATIC else 0


def _block(tile: BinTile) -> int:
    return _BLOCK if tile.threads == WARP else tile.threads


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_few(problem)) is not None:
        return reason
    extent, count = extent_of(problem), count_of(problem)
    most = _COARSE if problem.inputs[0].format.dtype is DType.BF16 else _LONGEST
    if extent > most:
        return Reason("puts up to {} elements in bins, not {}", most, extent)
    if 2 * count < extent:
        return Reason("puts all of {} elements in bins, of which {} are few", extent, count)
    return None


def _bins(threads: int, extent: int) -> int:
    """A power of two, of which each thread has four or more: twice as many as elements, where so many are added up."""
    bins = max(128, 4 * threads)
    while bins < min(2 * extent, _BINS) and bins // (2 * threads) * (threads // WARP) <= WARP:
        bins *= 2
    return bins


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[BinTile]:
    extent, size = extent_of(problem), key_bytes(problem)
    for threads in _THREADS:
        holds, found = holds_for(problem, threads, extent, _HOLDS), room_for(threads, extent, size)
        if holds is not None and found is not None and holds > 1:
            yield BinTile(threads, holds, *found, _bins(threads, extent))


def _refuse_tile(problem: KernelProblem, tile: BinTile, gpu: Gpu) -> str | None:
    size, extent = key_bytes(problem), extent_of(problem)
    if (reason := refuse_held(problem, tile.threads, tile.holds, extent, _HOLDS)) is not None:
        return reason
    if (reason := refuse_bins(tile.threads, tile.each, tile.room, tile.bins, size)) is not None:
        return reason
    if tile.threads * tile.holds > 1 << 4 * size:
        return Reason("places of {} elements are none of {} bits", tile.threads * tile.holds, 4 * size)
    return Reason("{} keys have no room for {} elements", tile.room, extent) if tile.room < extent else None


_HELD, _COUNTED, _PUT, _STORED, _BEGIN = (9.0, 5.0), 6.0, 9.0, 14.0, 150.0
"""Guesses at the instructions of an element until its number is there, of single ones and of pairs; until it is
counted, and put in its bin; of one that is stored; and of a thread for all else."""
_BIN, _ROUND, _ROUNDS, _WIDE = 4.0, 2.2, 8.0, 1.6
"""The same of a bin, and of a key for each round of exchanges; rounds that are expected; and what keys of 64 bits take,
in those of 32."""
_ISSUED, _ASKED, _MET = 128 * 1.6e9 * 0.5, 2.2e-6, 1.2e-6
"""Instructions of threads that a multiprocessor begins in a second; seconds until a line is sorted that one warp has,
and of warps that meet beside that: guesses."""
_REACHED = 0.7


def _seconds(problem: KernelProblem, tile: BinTile, target: Target) -> float:
    gpu, extent, count = target.gpu, extent_of(problem), count_of(problem)
    assert gpu is not None, "forms are for GPUs"
    lines, size = problem.inputs[0].type.elements // extent, key_bytes(problem)
    pairs, wide = paired(problem, tile.threads, tile.holds, extent), _WIDE if size == 8 else 1.0
    own = _BEGIN + tile.holds * (_HELD[pairs] + _COUNTED + wide * _PUT) + tile.bins / tile.threads * _BIN
    own += wide * tile.each * (_ROUND * _ROUNDS + 4) + ceil(count / tile.threads) * _STORED
    block = _block(tile)
    shared = (block // tile.threads) * (bins_bytes(tile.threads, tile.room, tile.bins, size) + _staged(problem, tile))
    blocks = ceil(lines * tile.threads / block)
    there = occupancy(block, _registers(problem, tile), shared, gpu)
    issue = lines * tile.threads * own / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    waits = ceil(blocks / (gpu.sms * there)) * (_ASKED + (_MET if tile.threads > WARP else 0.0))
    memory = moved(problem.nbytes, target) / _REACHED
    return float(max(memory, issue, waits) + OVERLAPPED * target.launch_seconds)


def _registers(problem: KernelProblem, tile: BinTile) -> int:
    """Of a thread (`BinnedPlaces`)."""
    pairs = paired(problem, tile.threads, tile.holds, extent_of(problem))
    network = 1
    while network * tile.threads < tile.room:
        network *= 2
    of_keys = max(network, tile.each) * key_bytes(problem) // 4 + 32
    return max(64, (tile.holds // 2 if pairs else tile.holds + 16) + 64, of_keys)


def _emit(problem: KernelProblem, tile: BinTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    key = "std::uint32_t" if key_bytes(problem) == 4 else "std::uint64_t"
    numbers = f"{tile.holds}, {tile.threads}, {tile.each}, {tile.room}, {tile.bins}, {_staged(problem, tile)}"
    pairs = boolean(paired(problem, tile.threads, tile.holds, extent_of(problem)))
    types = f"{boolean(op.greatest)}, {numbers}, {key}, {ctype(x.format.dtype)}, {pairs}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    call = f"bolt::portable::binned_places<{types}>(r, {given});"
    return StepCode(("bolt_portable/cuda/places/binned_places.h",), None, "", call)


FORM: Form[BinTile] = Form("binned", serves, _refuse, _tiles, _refuse_tile, _seconds, BinTile.read, _emit)
