"""How a GPU finds places of any elements of lines of any length in order: a block sorts a line in memory, eight bits of
its numbers at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.sorted_places import count_of, extent_of, results_text, serves
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.targets import Gpu, Target

_THREADS = (32, 64, 128, 256, 512, 1024)
_DIGITS, _REGISTERS = 256, 40
_SCRATCH = 1 << 30
"""Bytes of memory that a kernel keeps for itself, at most."""


@dataclass(frozen=True)
class CountTile(NumberTile):
    """A line has a block of `threads`."""

    threads: int


def _lines(problem: KernelProblem) -> int:
    return problem.inputs[0].type.elements // max(extent_of(problem), 1)


def _scratch(problem: KernelProblem) -> int:
    """Bytes of all lines' numbers with their places, twice."""
    return 2 * (16 if problem.inputs[0].format.dtype.nbytes == 8 else 8) * problem.inputs[0].type.elements


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = problem.op
    assert isinstance(op, Places)
    if op.last:
        return "takes the first of equal elements, not the last"
    if (scratch := _scratch(problem)) > _SCRATCH:
        return Reason("takes {} bytes beside its tensors, at most {} are kept", scratch, _SCRATCH)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[CountTile]:
    for threads in _THREADS:
        if threads == _THREADS[0] or 2 * threads <= extent_of(problem):
            yield CountTile(threads)


def _refuse_tile(problem: KernelProblem, tile: CountTile, gpu: Gpu) -> str | None:
    return None if tile.threads in _THREADS else Reason("no line has {} threads", tile.threads)


_ELEMENT = 1.6e-9
"""A guess at the seconds that a multiprocessor takes for eight bits of an element, which goes to a place of its own. An
H200 took 1.6 to 2.7 where numbers and places were stored apart."""
_CHUNK, _MET = 0.45e-6, 1.5e-6
"""Seconds of 32 neighbours of a warp that are counted and moved, and of eight bits beside that."""
_REACHED = 0.4


def _seconds(problem: KernelProblem, tile: CountTile, target: Target) -> float:
    """What elements take where all multiprocessors have lines, or what each line waits for."""
    gpu, extent, dtype = target.gpu, extent_of(problem), problem.inputs[0].format.dtype
    assert gpu is not None, "forms are for GPUs"
    lines, passes = _lines(problem), dtype.nbytes
    resident = occupancy(tile.threads, _REGISTERS, 4 * _DIGITS * (tile.threads // WARP + 1), gpu)
    issue = lines * extent * passes * _ELEMENT / min(lines, gpu.sms)
    waits = ceil(lines / (gpu.sms * resident)) * passes * (ceil(extent / tile.threads) * _CHUNK + _MET)
    # What is moved beside the tensors: numbers with their places are read twice, and written, for each eight bits.
    beside_tensors = 3 * passes * lines * extent * (16 if dtype.nbytes == 8 else 8)
    memory = moved(problem.nbytes + beside_tensors, target) / _REACHED
    return float(max(memory, issue, waits) + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: CountTile, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    how = f"{boolean(op.greatest)}, {tile.threads}, {ctype(x.format.dtype)}"
    given = f"{lines_text(x, op.axis)}, {count_of(problem)}, {at.inputs[0]}, {results_text(problem, at)}"
    return StepCode(
        ("bolt_portable/cuda/places/counted_places.h",), "bolt::portable::SharedTotals", str(_scratch(problem)),
        f"bolt::portable::counted_places<{how}>(r, {given});",
    )  # fmt: skip


FORM: Form[CountTile] = Form("counted", serves, _refuse, _tiles, _refuse_tile, _seconds, CountTile.read, _emit)
