"""Elements taken by indices that are known at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.common.geometry import MOST_AXES, around, strides
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.moves.flat_rows import row_form
from bolt_build.families.portable.kernels.moves.gathered_lines import GatherTile, lines_form
from bolt_build.families.portable.kernels.moves.gathered_tuples import (
    TupleTile,
    depth_of,
    rows_of,
    slice_of,
    tuples_form,
)
from bolt_build.families.portable.kernels.moves.gathered_words import GatheredWordsTile, words_form
from bolt_build.families.portable.kernels.moves.row_sources import picked, unit_of
from bolt_build.families.portable.kernels.moves.staged_tuples import StagedTuplesTile, staged_form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.targets import Gpu, Target

_HEADER = ("bolt_portable/gather.h",)


def _as_fast_as_memory(problem: KernelProblem) -> float:
    return 1.0


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    if problem.inputs[0].format.dtype is not problem.outputs[0].format.dtype:
        return "takes elements only as they are stored"
    rank = len(problem.inputs[1].shape)
    return (
        Reason("takes by indices of {} axes, at most {} are supported", rank, MOST_AXES) if rank > MOST_AXES else None
    )


def _code(problem: KernelProblem, at: StepExpressions, function: str, parameters: str, more: str = "") -> StepCode:
    types = f"{MOVED[problem.outputs[0].format.dtype.nbytes]}, {ctype(problem.inputs[1].format.dtype)}{more}"
    call = f"bolt::portable::{function}<{types}>(r, {parameters}, {at.inputs[0]}, {at.inputs[1]}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


_ACCESS = 16
"""Bytes that a GPU's thread moves at once, where neighbours are there: no instruction moves more."""


def _gather_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Where a list of indices takes the place of an axis, tensors may be channels-last too."""
    row = ((Layout.ROW, Layout.ROW), Layout.ROW)
    if inputs[1].rank != 1 or output.rank < 3:
        return (row,)
    return (row, ((Layout.CHANNELS_LAST, Layout.ROW), Layout.CHANNELS_LAST))


def _emit_gather(problem: KernelProblem, at: StepExpressions) -> StepCode:
    """Slices move in units as wide as they are made of."""
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, Gather)
    outer, extent, _ = around(data, op.axis)
    (unit, inner), count = unit_of(problem), indices.type.elements
    parameters = struct("bolt::portable::Gather", outer=outer, extent=extent, inner=inner, count=count)
    along = inner == 1
    lanes = next(n for n in (8, 4, 2, 1) if n * unit <= _ACCESS and (count if along else inner) % n == 0)
    types = f"{MOVED[unit]}, {ctype(indices.format.dtype)}, {lanes}, {boolean(along and lanes > 1)}"
    call = f"bolt::portable::gather<{types}>(r, {parameters}, {at.inputs[0]}, {at.inputs[1]}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _spread(problem: KernelProblem) -> float:
    """Seconds of the plain kernel on a GPU where slices are no whole accesses: neighbouring threads have elements of
    several of them, and the L1 cache looks for one line after the other."""
    unit, inner = unit_of(problem)
    if inner == 1:
        return problem.outputs[0].nbytes * _BYTE if unit == 1 else 0.0
    if any(inner % lanes == 0 and lanes * unit > 2 for lanes in (8, 4, 2, 1) if lanes * unit <= _ACCESS):
        return 0.0
    return problem.outputs[0].nbytes / unit * _LINE * WARP / inner


def _gather_bandwidth(problem: KernelProblem) -> float:
    """What the plain kernel reaches."""
    return _AFTER_INDICES if unit_of(problem)[1] == 1 else 1.0


def _emit_elements(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, GatherElements)
    return _code(problem, at, "gather_elements", elements_along(data, indices, op.axis))


def _emit_lines(problem: KernelProblem, tile: GatherTile, at: StepExpressions) -> StepCode:
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, GatherElements)
    parameters, cut = elements_along(data, indices, op.axis), f", {tile.threads}, {tile.holds}"
    code = _code(problem, at, "gathered_lines", parameters, cut)
    return replace(code, includes=(*code.includes, "bolt_portable/cuda/moves/gathered_lines.h"))


def _emit_gathered(problem: KernelProblem, tile: GatheredWordsTile, at: StepExpressions) -> StepCode:
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, GatherElements)
    outer, extent, inner = around(data, op.axis)
    parameters = struct("bolt::portable::Gather", outer=outer, extent=extent, inner=inner, count=indices.shape[op.axis])
    code = _code(problem, at, "gathered_words", parameters, f", {tile.lanes}, {tile.turns}")
    return replace(code, includes=(*code.includes, "bolt_portable/cuda/moves/gathered_words.h"))


def elements_along(data: Operand, indices: Operand, axis: int) -> str:
    """C++ for which elements of `data` the indices name: those of the same place, but along one axis."""
    steps = strides(data)
    return struct(
        "bolt::portable::GatherElements",
        rank=len(indices.shape),
        extent=braces(indices.shape),
        step=braces(0 if at == axis else step for at, step in enumerate(steps)),
        along=steps[axis],
        length=data.shape[axis],
    )


def tuples_text(data: Operand, indices: Operand, first: int) -> str:
    """C++ for which slices of the data the rows of indices name; the `first` axes of both are batches."""
    depth = indices.shape[-1]
    return struct(
        "bolt::portable::GatherND",
        batches=prod(data.shape[:first]),
        tuples=prod(indices.shape[first:-1]),
        inner=prod(data.shape[first + depth :]),
        extents=f"{{{depth}, {braces(data.shape[first : first + depth])}}}",
    )


def _tuples(problem: KernelProblem) -> str:
    assert isinstance(problem.op, GatherND)
    return tuples_text(problem.inputs[0], problem.inputs[1], problem.op.batch_dims)


def _emit_nd(problem: KernelProblem, at: StepExpressions) -> StepCode:
    return _code(problem, at, "gather_nd", _tuples(problem))


@dataclass(frozen=True)
class WordTile(NumberTile):
    """A thread moves `lanes` elements of a slice."""

    lanes: int


def _words(problem: KernelProblem, gpu: Gpu) -> Iterator[WordTile]:
    size, inner = problem.outputs[0].format.dtype.nbytes, slice_of(problem)
    yield from (WordTile(lanes) for lanes in (16, 8, 4, 2) if lanes * size <= _ACCESS and inner % lanes == 0)


def _refuse_words(problem: KernelProblem, tile: WordTile, gpu: Gpu) -> str | None:
    size, inner = problem.outputs[0].format.dtype.nbytes, slice_of(problem)
    if tile.lanes not in (2, 4, 8, 16) or tile.lanes * size > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    if inner % tile.lanes:
        return Reason("slices of {} elements are no words of {}", inner, tile.lanes)
    return None


def _words_seconds(problem: KernelProblem, tile: WordTile, target: Target) -> float:
    """What the rows that are taken need, or the instructions of all threads."""
    made = problem.outputs[0]
    memory = moved(2 * made.nbytes + problem.inputs[1].nbytes, target)
    issued = made.type.elements / tile.lanes * _INSTRUCTIONS / (target.rate("fp32") / 2) / _ISSUED
    return float(max(memory, issued) + _HIDDEN * min(memory, issued) + _INDEX + OVERLAPPED * target.launch_seconds)


def _plain_seconds(problem: KernelProblem, target: Target) -> float:
    """The same of a thread an element, which a GPU's plain kernel has. On a host as fast as memory."""
    made = problem.outputs[0].type.elements
    spread = made * _LINE * WARP / max(slice_of(problem), 1) if target.gpu is not None else 0.0
    return max(_words_seconds(problem, WordTile(1), target), spread)


def _emit_words(problem: KernelProblem, tile: WordTile, at: StepExpressions) -> StepCode:
    code = _code(problem, at, "gather_slices", _tuples(problem), f", {tile.lanes}")
    return replace(code, includes=(*code.includes, "bolt_portable/cuda/moves/slices.h"))


def _code_of_tuples(problem: KernelProblem, function: str, cut: str, more: str, at: StepExpressions) -> StepCode:
    """A call for slices, those of one axis too: their indices are all batches'."""
    if isinstance(problem.op, Gather):
        data, indices = problem.inputs
        (unit, inner), (outer, extent, _) = unit_of(problem), around(data, problem.op.axis)
        types = f"{MOVED[unit]}, {ctype(indices.format.dtype)}{cut}, true"
        slices = struct(
            "bolt::portable::GatherND", batches=outer, tuples=indices.type.elements, inner=inner,
            extents=f"{{1, {{{extent}}}}}",
        )  # fmt: skip
    else:
        types = f"{MOVED[problem.outputs[0].format.dtype.nbytes]}, {ctype(problem.inputs[1].format.dtype)}{cut}"
        slices = _tuples(problem)
    call = f"bolt::portable::{function}<{types}>(r, {slices}{more}, {at.inputs[0]}, {at.inputs[1]}, {at.outputs[0]});"
    return StepCode((*_HEADER, "bolt_portable/cuda/moves/gathered_tuples.h"), None, "", call)


def _emit_tuples(problem: KernelProblem, tile: TupleTile, at: StepExpressions) -> StepCode:
    rows = rows_of(tile.lanes, slice_of(problem))
    cut = f", {tile.lanes}, {tile.turns}, {rows}, {depth_of(problem)}"
    return _code_of_tuples(problem, "gathered_tuples", cut, "", at)


def _emit_staged(problem: KernelProblem, tile: StagedTuplesTile, at: StepExpressions) -> StepCode:
    # Words of a block's rows may begin in front of them.
    rows = max(2, (tile.lanes - 2) // slice_of(problem) + 2)
    cut = f", {tile.lanes}, {rows}, {depth_of(problem)}"
    return _code_of_tuples(problem, "staged_tuples", cut, f", {tile.cuts}", at)


_INSTRUCTIONS, _ISSUED, _HIDDEN = 60, 0.6, 0.3
"""Instructions of a thread for its word, the part of the rate at which they go, and the part of the shorter of both
that the longer one does not hide: guesses, which an H100 meets with single elements."""

SLICES: Form[WordTile] = Form(
    "slices",
    lambda problem: problem.outputs[0].type.elements > 0,
    lambda problem, gpu: None if slice_of(problem) % 2 == 0 else "slices are single elements, or odd",
    _words,
    _refuse_words,
    _words_seconds,
    WordTile.read,
    _emit_words,
)

_BYTE = 2.2e-12
"""Seconds of a GPU for a byte that has an index of its own, as pixels took on an H200."""
_LINE = 0.6e-12
"""Seconds of a GPU for a line of its L1 cache of which a warp wants something: as points and pixels took on an H200."""
_INDEX, _AFTER_INDICES = 0.7e-6, 0.5
"""Seconds in which a GPU's elements wait for their indices, and the part of its bandwidth of plain kernels where
each element has an index of its own, as measured on an H200."""

RULES = (
    Rule(
        Gather,
        _refuse,
        _emit_gather,
        _as_fast_as_memory,
        gpu_latency=_spread,
        gpu_bandwidth=_gather_bandwidth,
        layouts=_gather_layouts,
        forms=(row_form(picked, lambda problem: False), tuples_form(_emit_tuples), staged_form(_emit_staged)),
    ),
    Rule(
        GatherElements,
        _refuse,
        _emit_elements,
        _as_fast_as_memory,
        gpu_latency=lambda problem: _INDEX,
        gpu_bandwidth=lambda problem: _AFTER_INDICES,
        layouts=row_major,
        forms=(lines_form(_emit_lines), words_form(_emit_gathered)),
    ),
    Rule(
        GatherND,
        _refuse,
        _emit_nd,
        _as_fast_as_memory,
        gpu_seconds=_plain_seconds,
        layouts=row_major,
        forms=(SLICES, tuples_form(_emit_tuples), staged_form(_emit_staged)),
    ),
)
