"""How a GPU finds places of a few elements of short lines that are whole words: lines and results go through shared
memory in whole accesses, and a line is a few threads' in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.places.few_places import COMPARISONS, kept_of, refuse_kept
from bolt_build.families.portable.kernels.places.key_bins import neighbours
from bolt_build.families.portable.kernels.places.sorted_places import (
    extent_of,
    in_words,
    key_bytes,
    results_text,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS, _WORDS, _ACCESS, _LONGEST = (1, 2, 4, 8), 8, 16, 2048
"""Threads of a line, words of each at once, bytes of one, and elements of a line at most."""


@dataclass(frozen=True)
class FewLinesTile(NumberTile):
    """A line has `threads` threads, which keep the first `kept` keys of those they have met."""

    threads: int
    kept: int


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_kept(problem)) is not None:
        return reason
    extent, size = extent_of(problem), problem.inputs[0].format.dtype.nbytes
    if not neighbours(problem) or not in_words(problem):
        return "elements of a line are no neighbours, or too many"
    if extent * size % _ACCESS:
        return Reason("lines of {} elements are no whole words", extent)
    return Reason("threads go through up to {} elements, not {}", _LONGEST, extent) if extent > _LONGEST else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FewLinesTile]:
    words = extent_of(problem) * problem.inputs[0].format.dtype.nbytes // _ACCESS
    yield from (FewLinesTile(threads, kept_of(problem)) for threads in _THREADS if threads == 1 or threads <= words)


def _refuse_tile(problem: KernelProblem, tile: FewLinesTile, gpu: Gpu) -> str | None:
    if tile.threads not in _THREADS:
        return Reason("no line has {} threads", tile.threads)
    if tile.kept != (kept := kept_of(problem)):
        return Reason("keeps {} keys, not {}", kept, tile.kept)
    return None


_ELEMENT, _COMPARED, _EXCHANGED, _BEGIN, _STORED, _WORD = (13.0, 4.0), 2.0, 2.0, 60.0, 6.0, 6.0
"""Instructions of an element until it is a key, alone and in pairs of neighbours of half precision; of a comparison of
keys, of one that another thread has, of a thread for all else, of a result, and of a word that goes through shared
memory."""
_WIDE = 2.6
"""What comparisons of keys of 64 bits take, in those of 32."""
_ISSUED, _REACHED, _ROUND, _REGISTERS = 128 * 1.6e9 * 0.45, 0.75, 2.0e-6, 80
"""Guesses at instructions of threads that a multiprocessor begins in a second, at the part of the bandwidth, at the
seconds of a round of loads, and at registers of a thread."""


def _shared(tile: FewLinesTile) -> int:
    """Bytes of shared memory of a block (`FewLines`)."""
    return BLOCK // WARP * (WARP // tile.threads) * (_WORDS * tile.threads + 1) * _ACCESS


def _seconds(problem: KernelProblem, tile: FewLinesTile, target: Target) -> float:
    gpu, extent, kept, dtype = target.gpu, extent_of(problem), tile.kept, problem.inputs[0].format.dtype
    assert gpu is not None, "forms are for GPUs"
    lines, key = problem.inputs[0].type.elements // extent, key_bytes(problem)
    half, wide = dtype in (DType.F16, DType.BF16) and key == 4, _WIDE if key == 8 else 1.0
    of_word = _ACCESS // dtype.nbytes
    words = ceil(extent / of_word / tile.threads)
    joined = _COMPARED * (kept / 2 + kept / 2 * log2(kept))
    own = words * (of_word * _ELEMENT[half] + _WORD)
    own += wide * words * of_word / kept * (_COMPARED * COMPARISONS[kept] + joined)
    own += wide * log2(tile.threads) * (kept * _EXCHANGED + joined) + kept * _STORED / tile.threads + _BEGIN
    blocks = ceil(lines * tile.threads / BLOCK)
    there = occupancy(BLOCK, _REGISTERS, _shared(tile), gpu)
    issue = lines * tile.threads * own / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    waits = ceil(blocks / (gpu.sms * there)) * ceil(words / _WORDS) * _ROUND
    memory = moved(problem.nbytes, target) / _REACHED
    return float(max(memory, issue, waits) + 0.2 * min(memory, issue) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: FewLinesTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    key = "std::uint32_t" if key_bytes(problem) == 4 else "std::uint64_t"
    how = f"{boolean(op.greatest)}, {tile.threads}, {tile.kept}, {key}, {ctype(x.format.dtype)}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    header = ("bolt_portable/cuda/places/few_lines.h",)
    return StepCode(header, None, "", f"bolt::portable::few_lines<{how}>(r, {given});")


FORM: Form[FewLinesTile] = Form("few_lines", serves, _refuse, _tiles, _refuse_tile, _seconds, FewLinesTile.read, _emit)
