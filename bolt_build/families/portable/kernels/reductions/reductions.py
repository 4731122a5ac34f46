"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES, Loop
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.reductions import (
    fold_clusters,
    fold_columns,
    fold_pixels,
    fold_runs,
    fold_slabs,
)
from bolt_build.families.portable.kernels.reductions.folds import numbers_of, reduce_loops, reduce_mode, reduce_struct
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue
from bolt_build.families.portable.typed import ctype, is_computed
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.lines.reduce import REAL, Reduce


def _types(problem: KernelProblem) -> str:
    return f"{COMPUTED[problem.inputs[0].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"


def _reduce_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """The input row-major or channels-last, and the output alike where it has the rank for it."""
    row = ((Layout.ROW,) * len(inputs), Layout.ROW)
    if inputs[0].rank < 3:
        return (row,)
    last = tuple(Layout.CHANNELS_LAST if t.rank == output.rank and t.rank >= 3 else Layout.ROW for t in inputs[1:])
    to = Layout.CHANNELS_LAST if output.rank >= 3 else Layout.ROW
    return (row, ((Layout.CHANNELS_LAST, *last), to))


def _refuse_reduce(problem: KernelProblem) -> str | None:
    reason = refuse_stages(problem) if is_computed(problem) else _refuse_typed(problem)
    if reason is not None:
        return reason
    most = max(len(loops) for loops in reduce_loops(problem))
    return Reason("reduces in {} loops, at most {} are supported", most, MOST_AXES) if most > MOST_AXES else None


def _refuse_typed(problem: KernelProblem) -> str | None:
    source, output = (operand.format.dtype for operand in (problem.inputs[0], problem.outputs[0]))
    if source is not output:
        return f"reduces {source.value} to {source.value}, not to {output.value}"
    assert isinstance(problem.op, Reduce)
    if source is DType.BOOL and problem.op.mode not in ("max", "min"):
        return f"has no {problem.op.mode} of booleans"
    if source is not DType.F64 and problem.op.mode in REAL:
        return f"has no {problem.op.mode} of integers"
    return no_epilogue(problem)


def _emit_reduce(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Reduce)
    kept, reduced = reduce_loops(problem)
    channels = next((i for i, loop in enumerate(kept) if loop.fixed), -1)
    parameters, mode = reduce_struct(kept, reduced, channels), reduce_mode(op)
    if not is_computed(problem):
        stored = ctype(problem.inputs[0].format.dtype)
        kind = f"bolt::portable::typed::{mode}<bolt::portable::Computed<{stored}>::type>"
        call = f"bolt::portable::typed_reduce<{kind}, {stored}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
        return StepCode(("bolt_portable/typed_reduce.h",), None, "", call)
    call = (
        f"bolt::portable::reduce<bolt::portable::{mode}, {_types(problem)}>(r, {parameters}, {at.inputs[0]}, "
        f"{at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/reduce.h",), None, "", call)


_MANY, _LONG, _FEW, _SHORT = 2048, 16384, 16, 2048
"""Results from which on a warp has one, elements of one that are work for a block, those that are a thread's, and those
in whole accesses that a warp has in two rounds (`many_results`, `long_rows`, `few_elements`, `short_runs`)."""
_BLOCK, _WIDE, _ODD = 5200.0, 1700.0, 1000.0
"""Bytes that a GPU's memory moves while a block begins and ends: what each of an H200's results took; what it took of
which a warp has one result, in whole accesses; and what an H100 took whose warps load elements one by one."""
_ACROSS, _POSITION = 0.4e-6, 3.4e-10
"""Seconds in which threads that each have some positions put their sums together, and those of a position. Fitted to 82
times of an H200."""
_REACHED, _FOURS, _JOINED = 0.88, 0.55, 0.3e-6
"""The parts of the bandwidth that long sums reach in loads of eight elements and of four, as an H200 took 96 and 116
channels; and seconds in which threads join sums of neighbours."""
_SCATTERED = 0.5
"""A guess at the part of the bandwidth that threads reach which have a result each."""
_ODD_ROWS, _ODD_COLUMNS, _ODD_BLOCKS = 0.38, 0.3, 0.14
"""The parts that an H100 reached where elements are loaded one by one: by warps, by threads whose results are
neighbours, and by blocks."""
_TYPED, _BESIDE, _MET = 0.5e-6, 0.023e-6, 2.5e-6
"""Seconds of an element of integers and booleans, which a thread waits for before it asks for the next one; of one that
lies beside it in the L1 cache; and in which a block adds up: as columns of booleans and planes of bytes took on an
H200."""
_BUSY, _WORK, _THREADS, _TOGETHER = 16384, 64, 256, 1056
"""Results from which on a thread has one of those, elements that are work for a block, its threads, and blocks that a
GPU has at once (`typed_reduce`)."""
_FEW_WARPS = 2.4e-4
"""The part that each warp reached with a result of its own: 2048 means of volumes of 25 KB took twice as long on an
H200 as memory takes."""
_FEW_BLOCKS = 3.4e-4
"""The part that each block reached where there were few."""
_PARTS = 16
"""Reduced elements that keep threads busy which share a result: twice as many where they are loaded one by one."""


def _aligned(loops: Iterable[Loop], lanes: int) -> bool:
    return all(loop.steps[0] == 1 or loop.steps[0] % lanes == 0 for loop in loops)


def _reduce_bandwidth(problem: KernelProblem) -> float:
    kept, reduced = reduce_loops(problem)
    if not reduced:
        return _REACHED
    if kept and reduced[-1].steps[0] != 1:
        return _across_bandwidth(kept, reduced)
    return _along_bandwidth(problem, kept, reduced)


def _across_bandwidth(kept: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> float:
    """Where results that lie side by side are of elements that do."""
    count = prod(loop.extent for loop in reduced)
    if kept[-1].steps[0] != 1 or (kept[-1].extent % 4 == 0 and _aligned((*kept, *reduced), 4)):
        reached = _REACHED if kept[-1].extent % LANES == 0 else _FOURS
        return reached * min(1.0, count / _PARTS)
    return _ODD_COLUMNS * min(1.0, count / (2 * _PARTS))


def _along_bandwidth(problem: KernelProblem, kept: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> float:
    """Where the reduced elements are neighbours each result is a block's, which is little work where they are few."""
    results, count, one = prod(loop.extent for loop in kept), prod(loop.extent for loop in reduced), len(reduced) == 1
    if one and count <= _FEW and results >= _MANY:
        return _SCATTERED
    nbytes = problem.inputs[0].nbytes / max(results, 1)
    warps = one and results >= _MANY and count < _LONG
    if one and count % LANES == 0 and _aligned(kept, LANES) and (warps or count <= _SHORT):
        return min(_REACHED, nbytes / _WIDE, _FEW_WARPS * results if warps else 1.0)
    if warps:
        return min(_ODD_ROWS, nbytes / _ODD)
    return min(_ODD_BLOCKS, nbytes / _BLOCK, _FEW_BLOCKS * results)


def _typed_latency(kept: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> float:
    """Of integers and booleans, whose results are a thread's each, or a block's where they are few (`typed_reduce`)."""
    results, count = (prod(loop.extent for loop in loops) for loops in (kept, reduced))
    if results < _BUSY and count >= _WORK:
        return ceil(results / _TOGETHER) * (_TYPED * ceil(count / _THREADS) + _MET)
    return count * (_BESIDE if reduced and reduced[-1].steps[0] == 1 else _TYPED)


def _reduce_latency(problem: KernelProblem) -> float:
    """Where the reduced elements are no neighbours, as positions of channels-last images."""
    kept, reduced = reduce_loops(problem)
    assert isinstance(problem.op, Reduce)
    if not is_computed(problem) or numbers_of(problem.op) > 1:
        return _typed_latency(kept, reduced)
    if not reduced or reduced[-1].steps[0] == 1:
        return _JOINED
    return _ACROSS + _POSITION * prod(loop.extent for loop in reduced)


RULES = (
    Rule(
        Reduce,
        _refuse_reduce,
        _emit_reduce,
        lambda problem: 0.05,
        gpu_bandwidth=_reduce_bandwidth,
        gpu_latency=_reduce_latency,
        layouts=_reduce_layouts,
        forms=(
            fold_runs.FORM, fold_slabs.FORM, fold_columns.FORM, fold_pixels.FORM, fold_clusters.FORM, fold_runs.SHARED,
        ),
    ),
)  # fmt: skip
