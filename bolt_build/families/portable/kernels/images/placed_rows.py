"""How a GPU finds the places of the greatest elements of windows: a thread has neighbouring windows of a row, and reads
what they share once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.geometry import three
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.pool_windows import pool_parameters
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.targets import Gpu, Target

_EACH = (1, 2, 4)
_SPAN, _MOST, _COUNTED = 16, 49, 2**31 - 64
"""Elements of a row that a thread takes at most, cells of a window, and elements that 32 bits count."""


@dataclass(frozen=True)
class PlacedRowsTile(NumberTile):
    """A thread has `each` windows side by side."""

    each: int


def _of(problem: KernelProblem) -> PoolPlaces:
    assert isinstance(problem.op, PoolPlaces)
    return problem.op


def span(op: PoolPlaces, each: int) -> int:
    """Elements of a row that windows side by side have together."""
    return (each - 1) * op.strides[-1] + op.kernel[-1]


def _serves(problem: KernelProblem) -> bool:
    return isinstance(problem.op, PoolPlaces)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = _of(problem)
    if problem.inputs[0].format.dtype not in (DType.F16, DType.BF16):
        return "compares numbers of half precision"
    if op.dilations[-1] != 1:
        return "windows have gaps along rows"
    if prod(op.kernel) > _MOST:
        return Reason("windows of {} cells are larger than {}", prod(op.kernel), _MOST)
    *rows, columns = problem.outputs[0].shape
    padded = prod(rows) * ceil(columns / _EACH[-1]) * _EACH[-1]
    if max(problem.inputs[0].type.elements, padded) > _COUNTED:
        return "elements are counted in 32 bits"
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PlacedRowsTile]:
    op, columns = _of(problem), problem.outputs[0].shape[-1]
    yield from (PlacedRowsTile(each) for each in _EACH if span(op, each) <= _SPAN and each < 2 * columns)


def _refuse_tile(problem: KernelProblem, tile: PlacedRowsTile, gpu: Gpu) -> str | None:
    op = _of(problem)
    if tile.each not in _EACH:
        return Reason("threads have 1, 2 or 4 windows, not {}", tile.each)
    if (wide := span(op, tile.each)) > _SPAN:
        return Reason("windows side by side have {} elements of a row, at most {} are taken", wide, _SPAN)
    return None


_THREAD, _ROW, _ELEMENT, _CELL, _PLACE = 70, 36, 1, 3, 24
"""Instructions of a thread, of a row of its windows, of an element of that, of a cell of a window, and of a place.
With these six times of an H200 are met to a seventh, but for pairs of windows."""
_REACHED, _ISSUED = 0.75, 128 * 1.6e9 * 0.6
"""The part of the bandwidth that such threads reach; and instructions that a multiprocessor begins in a
second."""


def _seconds(problem: KernelProblem, tile: PlacedRowsTile, target: Target) -> float:
    op, output, gpu = _of(problem), problem.outputs[0], target.gpu
    assert gpu is not None, "asked about GPUs alone"
    threads = prod(output.shape[:-1]) * ceil(output.shape[-1] / tile.each)
    rows = prod(op.kernel[:-1])
    own = _THREAD + rows * (_ROW + _ELEMENT * span(op, tile.each))
    own += tile.each * (_CELL * prod(op.kernel) + _PLACE)
    issue = threads * own / (_ISSUED * gpu.sms)
    memory = moved(problem.nbytes, target) / _REACHED
    return max(memory, issue) + 0.1 * min(memory, issue) + OVERLAPPED * target.launch_seconds


def _emit(problem: KernelProblem, tile: PlacedRowsTile, at: StepExpressions) -> StepCode:
    op = _of(problem)
    how = ", ".join(map(str, (*three(op.kernel, 1), op.strides[-1], tile.each)))
    arguments = f"{pool_parameters(problem, op)}, {len(op.kernel)}, {boolean(op.column_major)}"
    stored = ctype(problem.inputs[0].format.dtype)
    call = f"bolt::portable::placed_rows<{stored}, {how}>(r, {arguments}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/cuda/images/placed_rows.h",), None, "", call)


FORM: Form[PlacedRowsTile] = Form("rows", _serves, _refuse, _tiles, _refuse_tile, _seconds, PlacedRowsTile.read, _emit)
