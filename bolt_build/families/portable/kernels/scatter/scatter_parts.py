"""How atomic instructions of a GPU scatter along an axis whose lines no block has room for: each block has some places
of a line, goes through all of its updates, and joins those of its own places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.scatter.scatter_atomics import (
    BANKS,
    COLUMNS_BESIDE,
    THREADS,
    WORD,
    functions_of,
    is_there,
    refuse_joined,
    seconds_of,
    updates_of,
    words_of,
)
from bolt_build.families.portable.kernels.scatter.scatter_lines import lines_of, parameters
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROOM, _MOST = (220 << 10, 110 << 10, 52 << 10), 64
"""Bytes of shared memory of a block that are tried, and blocks of a line at most: each goes through all updates."""
_LANES = 8
"""Elements that a part is a multiple of, so that parts begin alike in words of 16 bytes or less."""


@dataclass(frozen=True)
class ColumnPartsTile(NumberTile):
    """A block has `part` places of the lines of so many neighbours along the axes behind."""

    SETTINGS = ("part",)

    columns: int
    threads: int
    part: int


@dataclass(frozen=True)
class RunPartsTile(NumberTile):
    """A block has `part` places of a line along the last axis."""

    SETTINGS = ("part",)

    threads: int
    part: int


def _room(problem: KernelProblem, part: int, columns: int) -> int:
    """Bytes of shared memory of a block of so many neighbours (`AtomicColumns`); of 1 along the last axis, with a gap
    behind each access (`AtomicRuns::where`)."""
    lanes = 16 // problem.inputs[0].format.dtype.nbytes
    return (part * columns + (part // lanes if columns == 1 else 0)) * words_of(problem) * WORD


def _parts(problem: KernelProblem, columns: int, gpu: Gpu) -> Iterator[int]:
    """Equal parts that shared memory has room for."""
    length = lines_of(problem)[1]
    for room in dict.fromkeys(min(each, gpu.shared_memory) for each in _ROOM):
        most = room // (_room(problem, 64, columns) // 64 + (1 if columns == 1 else 0))
        cuts = ceil(length / max(most, 1))
        part = ceil(ceil(length / max(cuts, 2)) / _LANES) * _LANES
        if 1 < ceil(length / part) <= _MOST and _room(problem, part, columns) <= gpu.shared_memory:
            yield part


def _refuse_part(problem: KernelProblem, part: int, columns: int, gpu: Gpu) -> str | None:
    length = lines_of(problem)[1]
    if part >= length:
        return Reason("lines of {} elements have no parts of {}", length, part)
    if (cuts := ceil(length / part)) > _MOST:
        return Reason("{} blocks would go through the updates of a line, {} at most do", cuts, _MOST)
    return refuse_shared(_room(problem, part, columns), gpu)


def _columns(problem: KernelProblem, gpu: Gpu) -> Iterator[ColumnPartsTile]:
    inner = lines_of(problem)[2]
    for columns in (each for each in COLUMNS_BESIDE if each < 2 * inner or each == COLUMNS_BESIDE[-1]):
        for part in dict.fromkeys(_parts(problem, columns, gpu)):
            yield from (ColumnPartsTile(columns, threads, part) for threads in THREADS)


def _refuse_columns(problem: KernelProblem, tile: ColumnPartsTile, gpu: Gpu) -> str | None:
    if tile.columns not in COLUMNS_BESIDE:
        return Reason("there are blocks of 8, 16 or 32 lines, not of {}", tile.columns)
    if tile.threads not in THREADS:
        return Reason("there are blocks of 256 or 512 threads, not of {}", tile.threads)
    return _refuse_part(problem, tile.part, tile.columns, gpu)


def _runs(problem: KernelProblem, gpu: Gpu) -> Iterator[RunPartsTile]:
    for part in dict.fromkeys(_parts(problem, 1, gpu)):
        yield from (RunPartsTile(threads, part) for threads in THREADS)


def _refuse_runs(problem: KernelProblem, tile: RunPartsTile, gpu: Gpu) -> str | None:
    if tile.threads not in THREADS:
        return Reason("there are blocks of 256 or 512 threads, not of {}", tile.threads)
    return _refuse_part(problem, tile.part, 1, gpu)


def _seconds_of_columns(problem: KernelProblem, tile: ColumnPartsTile, target: Target) -> float:
    outer, length, inner = lines_of(problem)
    beside, cuts = ceil(inner / tile.columns), ceil(length / tile.part)
    narrow = 1.0 if tile.columns >= 32 else 1.1 if tile.columns == 16 else 1.4
    shared, padded = _room(problem, tile.part, tile.columns), beside * tile.columns / inner * narrow
    own = updates_of(problem) * tile.columns
    return seconds_of(problem, outer * beside * cuts, tile.threads, shared, 1.0, padded, target, own, cuts)


def _seconds_of_runs(problem: KernelProblem, tile: RunPartsTile, target: Target) -> float:
    outer, length, _ = lines_of(problem)
    cuts, shared = ceil(length / tile.part), _room(problem, tile.part, 1)
    own = updates_of(problem)
    return seconds_of(problem, outer * cuts, tile.threads, shared, BANKS, 1.0, target, own, cuts)


_HEADER = ("bolt_portable/cuda/scatter/scatter_atomics.h",)


def _emit_columns(problem: KernelProblem, tile: ColumnPartsTile, at: StepExpressions) -> StepCode:
    indices, inner = problem.inputs[1].format.dtype, lines_of(problem)[2]
    lanes = 2 if inner % 2 == 0 else 1
    types = f"{functions_of(problem)}, {tile.columns}, {tile.threads}, {lanes}, {ctype(indices)}, true"
    given = f"{parameters(problem, 1, tile.columns)}, {', '.join((*at.inputs, *at.outputs))}, {tile.part}"
    return StepCode(_HEADER, None, "", f"bolt::portable::scatter_atomic_columns<{types}>(r, {given});")


def _emit_runs(problem: KernelProblem, tile: RunPartsTile, at: StepExpressions) -> StepCode:
    types = f"{functions_of(problem)}, {tile.threads}, {ctype(problem.inputs[1].format.dtype)}, true"
    given = f"{parameters(problem, 1, 1)}, {', '.join((*at.inputs, *at.outputs))}, {tile.part}"
    return StepCode(_HEADER, None, "", f"bolt::portable::scatter_atomic_runs<{types}>(r, {given});")


COLUMNS: Form[ColumnPartsTile] = Form(
    "atomic_column_parts",
    lambda problem: is_there(problem) and lines_of(problem)[2] > 1,
    refuse_joined,
    _columns,
    _refuse_columns,
    _seconds_of_columns,
    ColumnPartsTile.read,
    _emit_columns,
)
RUNS: Form[RunPartsTile] = Form(
    "atomic_run_parts",
    lambda problem: is_there(problem) and lines_of(problem)[2] == 1,
    refuse_joined,
    _runs,
    _refuse_runs,
    _seconds_of_runs,
    RunPartsTile.read,
    _emit_runs,
)
