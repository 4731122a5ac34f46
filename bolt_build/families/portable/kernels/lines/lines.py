"""Kernels that walk along one axis: running sums and products, scatters, interpolation."""

from __future__ import annotations

from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.portable.kernels.lines import scan_parts, scan_passed, scan_slabs, scans
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.moves.gather import elements_along, tuples_text
from bolt_build.families.portable.kernels.scatter.scatter_atomics import COLUMNS as ATOMIC_COLUMNS
from bolt_build.families.portable.kernels.scatter.scatter_atomics import RUNS as ATOMIC_RUNS
from bolt_build.families.portable.kernels.scatter.scatter_claims import FORM as IN_CLAIMS
from bolt_build.families.portable.kernels.scatter.scatter_elements import FORM as CLAIMED_ELEMENTS
from bolt_build.families.portable.kernels.scatter.scatter_lines import FORM as IN_LINES
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES, updates_wait
from bolt_build.families.portable.kernels.scatter.scatter_memory_atomics import ELEMENTS as ATOMIC_ELEMENTS
from bolt_build.families.portable.kernels.scatter.scatter_memory_atomics import SLICES as ATOMIC_SLICES
from bolt_build.families.portable.kernels.scatter.scatter_parts import COLUMNS as COLUMN_PARTS
from bolt_build.families.portable.kernels.scatter.scatter_parts import RUNS as RUN_PARTS
from bolt_build.families.portable.kernels.scatter.scatter_rows import FORM as IN_ROWS
from bolt_build.families.portable.kernels.scatter.scatter_segments import ELEMENTS as SEGMENT_ELEMENTS
from bolt_build.families.portable.kernels.scatter.scatter_segments import FORM as IN_SEGMENTS
from bolt_build.families.portable.kernels.scatter.scatter_stages import FORM as IN_STAGES
from bolt_build.families.portable.kernels.scatter.scatter_warps import COLUMNS as WARP_COLUMNS
from bolt_build.families.portable.kernels.scatter.scatter_warps import ROWS as WARP_ROWS
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND

_HEADER = ("bolt_portable/lines.h",)


def _slow(problem: KernelProblem) -> float:
    """Part of the peak rate of a loop whose steps wait for each other."""
    return 0.01


_ROUND, _AHEAD = 0.5e-6, 8
"""A guess at the seconds of a round of loads on a GPU, which waits for the one before; and elements of a round where a
thread has a line."""
_OF_WARPS, _OF_BLOCKS = (16, 128), (1024, 1024)
"""From how many neighbours on a warp scans a line, and a block; and elements of a round of either."""


_SHUFFLED = 1.2e-12
"""Seconds of an element of lines of neighbours beside its bytes: an H200's threads exchange sums for each."""


_SCANNED, _WIDE_SCANNED, _WALKED, _WORD = 0.55, 0.38, 0.35, 4
"""The parts of its bandwidth that a GPU reached: an H100 of lines of neighbours, an H200 of those of more than so many
bytes an element, and an H100 across them."""


def _scanned(problem: KernelProblem) -> float:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    if prod(x.shape[op.axis :]) != x.shape[op.axis]:
        return _WALKED
    return _WIDE_SCANNED if x.format.dtype.nbytes > _WORD else _SCANNED


def _rounds(problem: KernelProblem) -> float:
    """Seconds of a GPU in which a line's elements come, some at a time."""
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    extent = x.shape[op.axis]
    neighbours = prod(x.shape[op.axis :]) == extent
    scans = (at_once for least, at_once in (_OF_BLOCKS, _OF_WARPS) if neighbours and extent >= least)
    shuffled = _SHUFFLED * x.type.elements if neighbours else 0.0
    return max(_ROUND * ceil(extent / next(scans, _AHEAD)), shuffled)


def _refuse_cumulative(problem: KernelProblem) -> str | None:
    if problem.inputs[0].format.dtype is not problem.outputs[0].format.dtype:
        return f"{problem.op.kind} takes and leaves one element type"
    return no_epilogue(problem)


def _emit_cumulative(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    function = "cumulative_sum" if isinstance(op, CumSum) else "cumulative_product"
    flags = f"{boolean(op.exclusive)}, {boolean(op.reverse)}"
    call = (
        f"bolt::portable::{function}<{ctype(x.format.dtype)}>(r, {lines_text(x, op.axis)}, {flags}, "
        f"{at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(_HEADER, None, "", call)


def _refuse_scatter(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    data, indices, updates = problem.inputs
    if not data.format.dtype is updates.format.dtype is problem.outputs[0].format.dtype:
        return "scatters only within one element type"
    rank = len(indices.shape)
    return (
        Reason("scatters by indices of {} axes, at most {} are supported", rank, MOST_AXES)
        if rank > MOST_AXES
        else None
    )


def _scatter(problem: KernelProblem, at: StepExpressions, function: str, reduction: str, parameters: str) -> StepCode:
    data, indices, _ = problem.inputs
    types = f"{UPDATES[reduction]}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    pointers = ", ".join((*at.inputs, *at.outputs))
    return StepCode(_HEADER, None, "", f"bolt::portable::{function}<{types}>(r, {parameters}, {pointers});")


def _emit_scatter_elements(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterElements)
    parameters = elements_along(data, indices, op.axis)
    return _scatter(problem, at, "scatter_elements", op.reduction, f"{parameters}, {op.axis}, {data.type.elements}")


def _emit_scatter_nd(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterND)
    return _scatter(problem, at, "scatter_nd", op.reduction, tuples_text(data, indices, op.batch_dims))


def _refuse_interpolate(problem: KernelProblem) -> str | None:
    data, places, weights = problem.inputs
    if not (places.constant and weights.constant):
        return "interpolates at places that are known when the engine is built"
    reduced = KernelProblem(problem.op, (data,), problem.outputs, problem.epilogue, problem.accumulate, problem.target)
    if data.format.dtype is not problem.outputs[0].format.dtype:
        return "interpolates only within one element type"
    return no_epilogue(problem) or computed_only(reduced)


def _emit_interpolate(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (data, places, _) = problem.op, problem.inputs
    assert isinstance(op, Interpolate)
    results, taps = places.shape
    parameters = struct("bolt::portable::Taps", lines=lines_text(data, op.axis), results=results, taps=taps)
    pointers = ", ".join((*at.inputs, *at.outputs))
    call = f"bolt::portable::interpolate<{ctype(data.format.dtype)}>(r, {parameters}, {pointers});"
    return StepCode(_HEADER, None, "", call)


RULES = (
    *(
        Rule(
            op,
            _refuse_cumulative,
            _emit_cumulative,
            _slow,
            gpu_bandwidth=_scanned,
            gpu_latency=_rounds,
            layouts=row_major,
            forms=(
                *(scans.RUNS, scan_passed.FORM, scans.COLUMNS, scan_passed.COLUMNS),
                *(scan_slabs.FORM, scan_slabs.CLUSTERS, scan_parts.FORM),
            ),
        )
        for op in (CumSum, CumProd)
    ),
    Rule(
        ScatterElements,
        _refuse_scatter,
        _emit_scatter_elements,
        _slow,
        gpu_latency=updates_wait,
        layouts=row_major,
        in_place=(0,),
        forms=(
            IN_LINES,
            IN_STAGES,
            IN_ROWS,
            WARP_COLUMNS,
            WARP_ROWS,
            ATOMIC_COLUMNS,
            ATOMIC_RUNS,
            COLUMN_PARTS,
            RUN_PARTS,
            CLAIMED_ELEMENTS,
            SEGMENT_ELEMENTS,
            ATOMIC_ELEMENTS,
        ),
    ),
    Rule(
        ScatterND,
        _refuse_scatter,
        _emit_scatter_nd,
        _slow,
        gpu_latency=updates_wait,
        layouts=row_major,
        in_place=(0,),
        forms=(IN_CLAIMS, IN_SEGMENTS, ATOMIC_SLICES),
    ),
    Rule(Interpolate, _refuse_interpolate, _emit_interpolate, _slow),
)
