"""Elements taken by indices that are known at run time."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.common.geometry import MOST_AXES, around, strides
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.gather import Gather, GatherElements, GatherND

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


def _code(problem: KernelProblem, at: StepExpressions, function: str, parameters: str) -> StepCode:
    types = f"{MOVED[problem.outputs[0].format.dtype.nbytes]}, {ctype(problem.inputs[1].format.dtype)}"
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
    outer, extent, slices = around(data, op.axis)
    width, count = slices * data.format.dtype.nbytes, indices.type.elements
    unit = max(nbytes for nbytes in MOVED if width % nbytes == 0)
    inner = width // unit
    parameters = struct("bolt::portable::Gather", outer=outer, extent=extent, inner=inner, count=count)
    along = inner == 1
    lanes = next(n for n in (8, 4, 2, 1) if n * unit <= _ACCESS and (count if along else inner) % n == 0)
    types = f"{MOVED[unit]}, {ctype(indices.format.dtype)}, {lanes}, {boolean(along and lanes > 1)}"
    call = f"bolt::portable::gather<{types}>(r, {parameters}, {at.inputs[0]}, {at.inputs[1]}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _emit_elements(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, GatherElements)
    return _code(problem, at, "gather_elements", elements_along(data, indices, op.axis))


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


def _emit_nd(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, data, indices = problem.op, *problem.inputs
    assert isinstance(op, GatherND)
    first, depth = op.batch_dims, indices.shape[-1]
    parameters = struct(
        "bolt::portable::GatherND",
        batches=prod(data.shape[:first]),
        tuples=prod(indices.shape[first:-1]),
        inner=prod(data.shape[first + depth :]),
        extents=f"{{{depth}, {braces(data.shape[first : first + depth])}}}",
    )
    return _code(problem, at, "gather_nd", parameters)


_INDEX = 0.7e-6
"""Seconds in which a GPU's elements wait for their indices, as measured on an H200."""

RULES = (
    Rule(Gather, _refuse, _emit_gather, _as_fast_as_memory, layouts=_gather_layouts),
    Rule(
        GatherElements,
        _refuse,
        _emit_elements,
        _as_fast_as_memory,
        gpu_latency=lambda problem: _INDEX,
        layouts=row_major,
    ),
    Rule(GatherND, _refuse, _emit_nd, _as_fast_as_memory, layouts=row_major),
)
