"""Places of the greatest and least elements along an axis, of one of them and of several in order."""

from __future__ import annotations

from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, ProposedStep, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.geometry import around
from bolt_build.families.common.problems import problem_of
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.places import (
    binned_places,
    bounded_places,
    counted_places,
    drawn_places,
    few_lines,
    few_places,
    selected_places,
    sifted_places,
    sorted_places,
)
from bolt_build.families.portable.kernels.places.sorted_places import results_text
from bolt_build.families.portable.kernels.reductions import (
    fold_clusters,
    fold_columns,
    fold_pixels,
    fold_runs,
    fold_slabs,
)
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue, row_major, same_layouts
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ir import Graph, Layout, Node, TensorType
from bolt_build.graph.ops.lines.lines import Places, TopElements
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.targets import Target


def _emit_places(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    types = f"{boolean(op.greatest)}, {boolean(op.last)}, {ctype(x.format.dtype)}"
    given = f"{lines_text(x, op.axis)}, {op.count}, {at.inputs[0]}, {results_text(problem, at)}"
    call = f"bolt::portable::places<{types}>(r, {given});"
    return StepCode(("bolt_portable/lines.h",), None, "", call)


_ELEMENT, _NEIGHBOUR = 0.3e-6, 0.05e-6
"""Seconds that an H100 took for an element of a line of a thread, and for one beside whose line others lie."""
_SCATTERED = 0.25
"""The part of its bandwidth that it reached so."""
_RANKED, _RANKS = 40 << 10, 1.25e10
"""Bytes of a line that a block ranks (`ranked_bytes`), and elements that a multiprocessor of an H100 compared each
second."""
_BLOCK, _BESIDE = 1.3e-6, 8
"""A guess at the seconds of a block that ranks a short line, and how many of them a multiprocessor has at once."""


def _seconds_of_places(problem: KernelProblem, target: Target) -> float:
    """Of the plain kernel: threads that have a line each, or blocks that compare all elements of one with all."""
    op, x, gpu = problem.op, problem.inputs[0], target.gpu
    assert isinstance(op, Places)
    assert gpu is not None, "hosts are predicted otherwise"
    extent = x.shape[op.axis]
    lines = x.type.elements // extent
    if op.count > 1 and extent * x.format.dtype.nbytes <= _RANKED:
        computing = lines * extent * extent / (_RANKS * min(max(lines, 1), gpu.sms))
        computing = max(computing, _BLOCK * ceil(lines / (_BESIDE * gpu.sms)))
    else:
        neighbours = around(x, op.axis)[2] > 1
        computing = op.count * extent * (_NEIGHBOUR if neighbours else _ELEMENT)
    return max(moved(problem.nbytes, target) / _SCATTERED, computing) + OVERLAPPED * target.launch_seconds


def topped(
    graph: Graph, node: Node, target: Target, precision: DType
) -> tuple[tuple[str, ...], ProposedStep, tuple[KernelProblem, ...]] | None:
    """The region of `node`, which finds places of several elements, and of the gather that takes these; the step that
    does both, and the problems of either. On a GPU, where each costs a launch and reads the places."""
    if target.gpu is None or type(node.op) is not Places or node.op.count == 1 or node.epilogue:
        return None
    op, (places,), (x,) = node.op, node.outputs, node.inputs
    readers = graph.consumers(places)
    takes = (each for each in readers if each.op == GatherElements(op.axis) and each.inputs == (x, places))
    taker = next((each for each in takes if not each.epilogue), None)
    if taker is None or graph.constant(x) is not None:
        return None
    found, taken = (
        problem_of(graph, each, target, precision, (Layout.ROW,) * len(each.inputs), Layout.ROW)
        for each in (node, taker)
    )
    if found.inputs[0] != taken.inputs[0]:
        return None
    keeps = places in graph.outputs or len(readers) > 1
    both = TopElements(op.axis, op.count, op.greatest, op.last, keeps)
    outputs, names = taken.outputs, taker.outputs
    if keeps:
        outputs, names = (*outputs, *found.outputs), (*names, places)
    problem = KernelProblem(both, found.inputs, outputs, (), DType.F32, target.name)
    return (node.name, taker.name), ProposedStep(problem, node.inputs, names), (found, taken)


def _refuse_top(problem: KernelProblem) -> str | None:
    source, output = problem.inputs[0].format.dtype, problem.outputs[0].format.dtype
    if source is not output:
        return f"takes elements of {source.value} as they are, not as {output.value}"
    return no_epilogue(problem)


def _places_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images may be channels-last where one place of a line is wanted, such as the class of each pixel."""
    assert isinstance(node.op, Places)
    return (same_layouts if node.op.count == 1 else row_major)(node, inputs, output)


_SEVERAL = (
    sorted_places.FORM,
    binned_places.FORM,
    selected_places.FORM,
    few_places.FORM,
    few_lines.FORM,
    sifted_places.FORM,
    sifted_places.PARTS,
    drawn_places.FORM,
    bounded_places.FORM,
    counted_places.FORM,
)
RULES = (
    Rule(
        TopElements,
        _refuse_top,
        _emit_places,
        lambda problem: 0.01,
        gpu_seconds=_seconds_of_places,
        layouts=row_major,
        forms=_SEVERAL,
    ),
    Rule(
        Places,
        no_epilogue,
        _emit_places,
        lambda problem: 0.01,  # of the peak rate, where steps of a loop wait for each other
        gpu_seconds=_seconds_of_places,
        layouts=_places_layouts,
        forms=(
            fold_runs.FORM,
            fold_slabs.FORM,
            fold_columns.FORM,
            fold_pixels.FORM,
            fold_clusters.FORM,
            fold_runs.SHARED,
            *_SEVERAL,
        ),
    ),
)
