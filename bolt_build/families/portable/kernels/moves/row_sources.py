"""What rows of an output are made of where they are no copy of one tensor: tensors beside each other, elements that
indices name, and paddings."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions
from bolt_build.families.common.cxx import boolean, literal
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.kernels.elementwise.tile_threads import numbers
from bolt_build.families.portable.kernels.moves.flat_rows import FlatRows, place_of
from bolt_build.families.portable.kernels.moves.tiled_pads import pad_axes
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad

_PARTS = 8
"""Tensors of a concatenation at most: a thread looks through all of them for each of its columns."""
_PART, _INDEX, _PLACE = 5, 12, 9
"""Instructions of a thread for a part of a concatenation, for an index, and for where a place of a padding comes
from."""
ACCESS = 16
"""Bytes of a whole access."""


def _pointer(at: StepExpressions | None, index: int, dtype: str) -> str:
    return f"static_cast<const {dtype}*>({'' if at is None else at.inputs[index]})"


def joined(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """Tensors beside each other; None of too many, and of none."""
    assert isinstance(problem.op, Concat)
    output, chunks = problem.outputs[0], parts_of(problem)
    kept = [index for index, chunk in enumerate(chunks) if chunk]
    if not kept or len(kept) > _PARTS:
        return None
    outer = around(output, problem.op.axis)[0]
    dtype, width, pitch = MOVED[output.format.dtype.nbytes], sum(chunks), 0 if at is None else at.pitch(0)
    ends = tuple(sum(chunks[: index + 1]) for index in kept)
    pitches = tuple((at.input_pitch(index) if at else 0) or chunks[index] for index in kept)
    reach = outer * max(*pitches, pitch or width)
    how = f"{numbers(ends)}, {numbers(pitches)}, {pitch or width}{place_of(reach)}"
    source = f"bolt::portable::JoinedRows<{dtype}, {how}>"
    pointers = ", ".join(_pointer(at, index, dtype) for index in kept)
    return FlatRows(
        outer,
        width,
        output.format.dtype.nbytes,
        f"{source}{{{{{pointers}}}}}",
        _PART * len(kept),
        1,
        reach,
        dense=not pitch,
        driver="join_rows",
    )


def parts_of(problem: KernelProblem) -> list[int]:
    """Elements of a row of each part of a concatenation."""
    assert isinstance(problem.op, Concat)
    outer = max(1, around(problem.outputs[0], problem.op.axis)[0])
    return [prod(operand.shape) // outer for operand in problem.inputs]


def joins_whole(problem: KernelProblem) -> bool:
    """True where each part of a row is whole accesses."""
    return all(chunk * problem.outputs[0].format.dtype.nbytes % ACCESS == 0 for chunk in parts_of(problem))


def unit_of(problem: KernelProblem) -> tuple[int, int]:
    """Bytes of the widest unit that slices are made of, and units of a slice."""
    assert isinstance(problem.op, Gather)
    data = problem.inputs[0]
    width = around(data, problem.op.axis)[2] * data.format.dtype.nbytes
    unit = max(nbytes for nbytes in MOVED if width % nbytes == 0)
    return unit, width // unit


def picked(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """Elements of rows that indices name; None of slices that are longer, and of nothing."""
    assert isinstance(problem.op, Gather)
    data, indices = problem.inputs
    outer, extent, _ = around(data, problem.op.axis)
    unit, inner = unit_of(problem)
    count = indices.type.elements
    if inner != 1 or not problem.outputs[0].type.elements:
        return None
    dtype, index = MOVED[unit], ctype(indices.format.dtype)
    source = f"bolt::portable::PickedRows<{dtype}, {index}, {extent}, {count}>"
    listed = f"static_cast<const {index}*>({'' if at is None else at.inputs[1]})"
    pointer = _pointer(at, 0, dtype)
    text = f"{source}{{{pointer}, {listed}, r.fault, r.mark()}}"
    return FlatRows(outer, count, unit, text, _INDEX, 1, outer * extent)


def padded(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """A padding; None of nothing."""
    op, output, axes = problem.op, problem.outputs[0], pad_axes(problem)
    assert isinstance(op, Pad)
    if not output.type.elements or not problem.inputs[0].type.elements:
        return None
    dtype = ctype(output.format.dtype)
    extents = (numbers(getattr(axis, name) for axis in axes) for name in ("given", "made", "begin"))
    source = f"bolt::portable::PaddedRows<{dtype}, bolt::portable::PadMode::{op.mode}, {', '.join(extents)}>"
    pointer = _pointer(at, 0, dtype)
    outer, width = prod(axis.made for axis in axes[:-1]), axes[-1].made
    text = f"{source}{{{pointer}, static_cast<{dtype}>({padding(op, output)})}}"
    row = _PLACE * max(1, sum(not axis.plain for axis in axes[:-1]))
    return FlatRows(outer, width, output.format.dtype.nbytes, text, _PLACE, row, prod(axis.given for axis in axes))


def padding(op: Pad, output: Operand) -> str:
    """The constant around a padded tensor."""
    if output.format.dtype is DType.BOOL:
        return boolean(op.value != 0)
    return f"{int(op.value)}" if output.format.dtype.is_integer else literal(op.value)
