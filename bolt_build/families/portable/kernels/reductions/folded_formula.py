"""Reductions of elementwise functions of several tensors: what is reduced is never stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.functors import ACTIVATIONS, BINARIES
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.common.problems import problem_of
from bolt_build.families.portable.kernels.reductions import folded_runs
from bolt_build.families.portable.kernels.reductions.folds import COUNTED
from bolt_build.families.portable.kernels.reductions.formula_nest import (
    fold_struct,
    function_of,
    given,
    mode_of,
    nest_of,
    op_of,
    pointers,
)
from bolt_build.families.portable.rule import Layouts, Rule, computed_only, same_layouts
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp, Graph, Layout, Node, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.patterns.formulas import FoundFormula, folded_from
from bolt_build.targets import Target

_SPACE = "bolt::portable"


def _refuse(problem: KernelProblem) -> str | None:
    op = op_of(problem)
    if (reason := computed_only(problem) or refuse_stages(problem)) is not None:
        return reason
    if not op.fold.axes:
        return "reduces over no axis"
    for term in op.formula.terms:
        known = ACTIVATIONS if isinstance(term.op, Activation) else BINARIES
        if term.word not in known:
            return f"there is no portable body for '{term.word}'"
    nest = nest_of(problem)
    if nest.results * nest.count == 0:
        return "there are no elements"
    if nest.results * nest.count > COUNTED:
        return Reason("{} elements are more than the {} that it counts", nest.results * nest.count, COUNTED)
    loops = max(len(nest.kept), len(nest.folded))
    return Reason("walks over {} loops, at most {} are supported", loops, MOST_AXES) if loops > MOST_AXES else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    out = COMPUTED[problem.outputs[0].format.dtype]
    types = ", ".join(ctype(operand.format.dtype) for operand in given(problem))
    call = (
        f"{_SPACE}::fold_formula<{mode_of(problem)}, {out}, {types}>(r, {fold_struct(problem, nest_of(problem))}, "
        f"{function_of(problem)}, {at.outputs[0]}, {chain(problem, at)}, {pointers(problem, at)});"
    )
    return StepCode(("bolt_portable/folded_formula.h",), None, "", call)


_ELEMENT, _RESULT = 9, 40
"""Instructions of an element of an input and of a result, where a thread has each result."""
_ISSUED = 128 * 1.6e9 * 0.6
"""Instructions of threads that a multiprocessor begins in a second."""
_REACHED = 0.2
"""The part of the bandwidth that threads reach which have a result each, as an H200 took two of them."""
_WAIT, _AHEAD = 1.15e-6, 4
"""Seconds between an ask for an element and its use, as that took four, and elements that a thread asks for at once."""


def _seconds(problem: KernelProblem, target: Target) -> float:
    gpu, nest, op = target.gpu, nest_of(problem), op_of(problem)
    assert gpu is not None, "hosts have no plain kernel of a GPU"
    each = len(given(problem)) * _ELEMENT + len(op.formula.terms)
    threads, busy = gpu.sms * 2048, min(1.0, nest.results / (gpu.sms * 128))
    issue = nest.results * (nest.count * each + _RESULT) / (_ISSUED * gpu.sms * busy)
    waits = max(nest.results / threads, 1.0) * nest.count / _AHEAD * _WAIT
    memory = moved(problem.nbytes, target) / _REACHED
    return max(memory, issue, waits) + OVERLAPPED * target.launch_seconds


def folded(
    graph: Graph, node: Node, target: Target, precision: DType
) -> Iterator[tuple[tuple[str, ...], ProposedStep, tuple[KernelProblem, ...]]]:
    """Reductions of formulas that begin with `node`, of row-major tensors and of images whose channels lie last: the
    nodes, the step that does all of them, and the problems of each; what leaves the graph also in the model's element
    type. On a GPU: a host keeps what lies between in its caches."""
    if target.gpu is None:
        return
    for found, reduction in folded_from(graph, node):
        for place in range(len(_fold_layouts(graph, reduction))):
            step, apart = _proposed(graph, found, reduction, target, precision, place)
            if step is None:
                continue
            yield (*found.region, reduction.name), step, apart
            own, (made,) = graph.type(reduction.outputs[0]).dtype, step.problem.outputs
            if reduction.outputs[0] in graph.outputs and own in COMPUTED and own is not made.format.dtype:
                stored = Operand(made.shape, replace(made.format, dtype=own))
                yield (
                    (*found.region, reduction.name),
                    replace(step, problem=replace(step.problem, outputs=(stored,))),
                    apart,
                )


def _fold_layouts(graph: Graph, reduction: Node) -> tuple[Layouts, ...]:
    """As reductions have them: all row-major, or the input with its channels last, and the output where it has the rank
    for it."""
    source, output = graph.type(reduction.inputs[0]), graph.type(reduction.outputs[0])
    others = tuple(graph.type(name) for name in reduction.inputs[1:])
    row = ((Layout.ROW,) * len(reduction.inputs), Layout.ROW)
    if source.rank < 3:
        return (row,)
    last = tuple(_last(each, output.rank) for each in others)
    return (row, ((Layout.CHANNELS_LAST, *last), _last(output, output.rank)))


def _last(of: TensorType, rank: int) -> Layout:
    return Layout.CHANNELS_LAST if of.rank == rank and rank >= 3 else Layout.ROW


def _proposed(
    graph: Graph, found: FoundFormula, reduction: Node, target: Target, precision: DType, place: int
) -> tuple[ProposedStep | None, tuple[KernelProblem, ...]]:
    rank = graph.type(reduction.inputs[0]).rank
    layouts, to = _fold_layouts(graph, reduction)[place]
    last = problem_of(graph, reduction, target, precision, layouts, to)
    apart = []
    operands: dict[str, Operand] = {}
    for each in found.nodes:
        types = tuple(graph.type(name) for name in each.inputs)
        output = graph.type(each.outputs[0])
        offered = same_layouts(each, types, output)
        own, own_to = offered[place if output.rank == rank else 0]
        problem = problem_of(graph, each, target, precision, own, own_to)
        apart.append(problem)
        operands |= dict(zip(each.inputs, problem.inputs, strict=True))
    inputs = tuple(operands[name] for name in found.inputs)
    if inputs[0].constant or inputs[0].format.dtype is not last.outputs[0].format.dtype:
        return None, ()
    assert isinstance(reduction.op, Reduce)
    stages = tuple(
        stage if stage.operand is None else EpilogueOp(stage.op, stage.operand - 1 + len(inputs), stage.swapped)
        for stage in reduction.epilogue
    )
    op = FoldedFormula(found.op, reduction.op)
    made = KernelProblem(op, (*inputs, *last.inputs[1:]), last.outputs, stages, DType.F32, target.name)
    names = (*found.inputs, *reduction.inputs[1:])
    return ProposedStep(made, names, reduction.outputs), (*apart, last)


RULES = (
    Rule(
        FoldedFormula,
        _refuse,
        _emit,
        lambda problem: 0.02,  # of the peak rate, on a host
        gpu_seconds=_seconds,
        forms=(folded_runs.RUNS, folded_runs.COLUMNS, folded_runs.SHARED),
    ),
)
