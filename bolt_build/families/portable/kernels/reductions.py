"""Reductions over axes, local response normalisation."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES, Loop, around
from bolt_build.families.portable.kernels import fold_columns, fold_runs
from bolt_build.families.portable.kernels.folds import reduce_loops, reduce_mode, reduce_struct
from bolt_build.families.portable.kernels.rows import LANES
from bolt_build.families.portable.rule import Layouts, Rule, computed_only, no_epilogue
from bolt_build.families.portable.typed import ctype, is_computed
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.normalization import Lrn
from bolt_build.graph.ops.reduce import Reduce


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
    if source is not DType.F64 and problem.op.mode in ("l2", "log_sum"):
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


def _refuse_lrn(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit_lrn(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Lrn)
    outer, channels, inner = around(problem.outputs[0], 1)
    parameters = struct(
        "bolt::portable::Lrn",
        outer=outer,
        channels=channels,
        inner=inner,
        size=op.size,
        alpha=literal(op.alpha),
        beta=literal(op.beta),
        bias=literal(op.bias),
    )
    call = f"bolt::portable::lrn<{_types(problem)}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/lrn.h",), None, "", call)


_MANY, _LONG, _FEW, _SHORT = 2048, 16384, 16, 2048
"""Results from which on a warp has one, elements of one that are work for a block, those that are a thread's, and those
in whole accesses that a warp has in two rounds (`many_results`, `long_rows`, `few_elements`, `short_runs`)."""
_BLOCK, _WIDE = 5200.0, 1700.0
"""Bytes that a GPU's memory moves while a block begins and ends: what each of an H200's results took, and what it took
of which a warp has one result."""
_ACROSS, _POSITION = 0.4e-6, 3.4e-10
"""Seconds in which threads that each have some positions put their sums together, and those of a position. Fitted to 82
times of an H200."""
_REACHED, _JOINED = 0.88, 0.3e-6
"""The part of the bandwidth that long sums reach; and seconds in which threads join sums of neighbours."""
_SCATTERED = 0.5
"""A guess at the part of the bandwidth that threads reach which have a result each."""
_ODD_ROWS, _ODD_COLUMNS, _ODD_BLOCKS = 0.45, 0.3, 0.2
"""The parts that kernels reach which load elements one by one: warps, threads whose results are neighbours, and blocks,
of which an H100 has 1024 at once. Between what it took for a few of each."""
_AT_ONCE = 1024


def _aligned(loops: Iterable[Loop]) -> bool:
    return all(loop.steps[0] == 1 or loop.steps[0] % LANES == 0 for loop in loops)


def _reduce_bandwidth(problem: KernelProblem) -> float:
    """Where the reduced elements are neighbours each result is a block's, which is little work where they are few."""
    kept, reduced = reduce_loops(problem)
    if not reduced:
        return _REACHED
    if kept and reduced[-1].steps[0] != 1:
        fours = kept[-1].extent % 4 == 0 and all(loop.steps[0] in (1, 0) or loop.steps[0] % 4 == 0 for loop in kept)
        return _REACHED if fours or kept[-1].steps[0] != 1 else _ODD_COLUMNS
    results, count = max(problem.outputs[0].type.elements, 1), prod(loop.extent for loop in reduced)
    one = len(reduced) == 1
    if one and count <= _FEW and results >= _MANY:
        return _SCATTERED
    warps = one and results >= _MANY and count < _LONG
    whole = one and count % LANES == 0 and _aligned(kept)
    block = _BLOCK if reduced[-1].extent % LANES and not warps else _WIDE
    reached = min(_REACHED, problem.inputs[0].nbytes / results / block)
    if whole and (warps or count <= _SHORT):
        return reached
    return min(reached, _ODD_ROWS if warps else _ODD_BLOCKS * min(1.0, results / _AT_ONCE))


def _reduce_latency(problem: KernelProblem) -> float:
    """Where the reduced elements are no neighbours, as positions of channels-last images."""
    _, reduced = reduce_loops(problem)
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
        forms=(fold_runs.FORM, fold_columns.FORM),
    ),
    Rule(Lrn, _refuse_lrn, _emit_lrn, lambda problem: 0.02),
)  # fmt: skip
