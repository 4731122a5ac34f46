"""Operators that move elements, and changes of storage format."""

from __future__ import annotations

from math import gcd, prod

from bolt_build.families.base import (
    PART_ALIGNMENT,
    KernelProblem,
    StepCode,
    StepExpressions,
    TensorFormat,
    memory_axes,
    same_bytes,
)
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.common.geometry import MOST_AXES, around
from bolt_build.families.portable.copies import (
    cast_bandwidth,
    concat_latency,
    copied_types,
    copy_bandwidth,
    copy_latency,
    copy_loops,
    expand_bandwidth,
    expands_whole,
    in_whole_accesses,
    strided_text,
)
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.flat import flat_form
from bolt_build.families.portable.kernels.elementwise.tiled import (
    Points,
    copied_points,
    copied_rows,
    moved_rows,
    points_of,
    tiled_form,
)
from bolt_build.families.portable.kernels.moves import tiled_pads
from bolt_build.families.portable.kernels.moves.flat_rows import exchanged, row_form, sliced
from bolt_build.families.portable.kernels.moves.permuted import FORM as PERMUTED
from bolt_build.families.portable.kernels.moves.permuted import WORDS as PERMUTED_WORDS
from bolt_build.families.portable.kernels.moves.row_sources import (
    ACCESS,
    joined,
    joins_whole,
    padded,
    padding,
    parts_of,
)
from bolt_build.families.portable.kernels.moves.tiled_pads import PadTile
from bolt_build.families.portable.rule import Layouts, Rule, is_same_bytes, no_epilogue
from bolt_build.families.portable.typed import ctype, emit_pointwise, pointwise_bandwidth, refuse_pointwise
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Cast, Concat, Convert, Identity, Pad, Reshape, Slice, Transpose

_BORDERS, _OF_A_WARP = 0.8, 256
"""How much longer a warp of the plain kernel of concatenations takes that has a border between parts, as an H200
measured, and elements of a warp."""
_NARROWER = 0.6
"""How much longer for each time that its loads are narrower than sixteen bytes: what they read again and wait for.
Four concatenations of networks on an H200 took 2.3 to 6 times as long as their bytes, by this 2.4 to 3.6 times."""
_CONVERT = "bolt::portable::typed::Convert{}"
"""C++ of a conversion between any types."""


def _as_fast_as_memory(problem: KernelProblem) -> float:
    return 1.0


def _refuse_rearranged(problem: KernelProblem) -> str | None:
    """Channels that are left out must be whole steps of the outermost of those that make them."""
    op = problem.op
    assert isinstance(op, Rearrange)
    joined = op.joined
    assert joined is not None
    inner = prod(op.split[part] for part in joined[1][1:])
    if op.begin % inner or op.shape[1] % inner:
        return Reason("takes {} channels from {} on, which are no whole {}", op.shape[1], op.begin, inner)
    for axis in range(2, len(op.shape)):
        if not op.steps_whole(axis):
            return Reason("takes {} of axis {} from {} on, within steps of it", op.shape[axis], axis, op.first_of(axis))
    return _refuse_copy(problem)


def _refuse_copy(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    source, output = problem.inputs[0], problem.outputs[0]
    if copied_types(source, output) is None:
        return f"does not convert {source.format.dtype.value} to {output.format.dtype.value}"
    count = len(copy_loops(problem)[0])
    return Reason("copies in {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def _rows_apart(problem: KernelProblem) -> bool:
    """True where a copy's strides can lead over rows that lie apart on both sides."""
    source, output = problem.inputs[0], problem.outputs[0]
    if source.constant or copied_types(source, output) is None or not (source.shape and output.shape):
        return False
    loops, _ = copy_loops(problem, source.row + PART_ALIGNMENT, output.row + PART_ALIGNMENT)
    return len(loops) <= MOST_AXES


def _copy_apart(problem: KernelProblem) -> tuple[int, ...]:
    return (0,) if _rows_apart(problem) else ()


def _emit_copy(problem: KernelProblem, at: StepExpressions) -> StepCode:
    loops, offset = copy_loops(problem, at.input_pitch(0), at.pitch(0))
    types = copied_types(problem.inputs[0], problem.outputs[0])
    call = f"bolt::portable::strided_copy<{types}>(r, {strided_text(loops, offset)}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/move.h",), None, "", call)


def _transpose_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Every pair: one of them may need no copy."""
    if output.rank < 3:
        return (((Layout.ROW,), Layout.ROW),)
    return tuple(((a,), b) for a in Layout for b in Layout)


def _is_contiguous(problem: KernelProblem) -> bool:
    """True where a copy would move one run of elements as they are."""
    loops, _ = copy_loops(problem)
    return (
        problem.inputs[0].format.dtype is problem.outputs[0].format.dtype
        and len(loops) == 1
        and (loops[0].extent == 1 or loops[0].steps == (1, 1))
    )


def _slice_offset(problem: KernelProblem) -> int:
    """Bytes from the beginning of the input to that of the output, for a slice that is a view."""
    return copy_loops(problem)[1] * problem.inputs[0].format.dtype.nbytes


def _slice_is_view(problem: KernelProblem) -> bool:
    """True where the output's elements stand one behind the other in the input, and begin where kernels can load."""
    if problem.inputs[0].constant or not problem.outputs[0].type.elements:
        return False
    return _is_contiguous(problem) and _slice_offset(problem) % PART_ALIGNMENT == 0


def _reshape_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Row-major; channels-last on a side where that is the same bytes (an image of one pixel, or of one channel), and
    on both where images and channels stay what they are."""

    def choices(t: TensorType) -> tuple[Layout, ...]:
        row, last = TensorFormat(t.dtype, Layout.ROW), TensorFormat(t.dtype, Layout.CHANNELS_LAST)
        same = t.rank >= 3 and same_bytes(t.shape, row, last)
        return (Layout.ROW, Layout.CHANNELS_LAST) if same else (Layout.ROW,)

    found = [((a,), b) for a in choices(inputs[0]) for b in choices(output)]
    if min(inputs[0].rank, output.rank) >= 3 and inputs[0].shape[:2] == output.shape[:2]:
        found.append(((Layout.CHANNELS_LAST,), Layout.CHANNELS_LAST))
    return tuple(dict.fromkeys(found))


def _emit_reshape(problem: KernelProblem, at: StepExpressions) -> StepCode:
    """A plain copy of all bytes, for where the planner cannot make it a view."""
    output = problem.outputs[0]
    types = f"{MOVED[output.format.dtype.nbytes]}"
    call = f"bolt::portable::concat<{types}>(r, 1, {{{{{at.inputs[0]}, {prod(output.shape)}}}}}, {at.outputs[0]});"
    return StepCode(("bolt_portable/move.h",), None, "", call)


def _refuse_concat(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    output = problem.outputs[0].format
    if any(operand.format.dtype is not output.dtype for operand in problem.inputs):
        return "concatenates only tensors of one element type"
    order = memory_axes(len(problem.outputs[0].shape), output.layout)
    if any(memory_axes(len(operand.shape), operand.format.layout) != order for operand in problem.inputs):
        return "a constant among the inputs of a concat is row-major, the others are channels-last"
    return None


def _emit_concat(problem: KernelProblem, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, Concat)
    axis, output = problem.op.axis, problem.outputs[0]
    outer = around(output, axis)[0]
    parts = []
    for index, (pointer, operand) in enumerate(zip(at.inputs, problem.inputs, strict=True)):
        apart = f", {at.input_pitch(index)}" if at.input_pitch(index) else ""
        parts.append(f"{{{pointer}, {prod(operand.shape) // outer}{apart}}}")
    to = f"{at.outputs[0]}, {at.pitch(0)}" if at.pitch(0) else at.outputs[0]
    call = f"bolt::portable::concat<{MOVED[output.format.dtype.nbytes]}>(r, {outer}, {{{', '.join(parts)}}}, {to});"
    return StepCode(("bolt_portable/move.h",), None, "", call)


def _concat_bandwidth(problem: KernelProblem) -> float:
    """What the plain kernel reaches: less where threads have elements of several parts, which their warps wait for, and
    where parts begin inside of accesses."""
    parts = parts_of(problem)
    if joins_whole(problem) or not sum(parts):
        return 1.0
    whole = gcd(ACCESS, *(part * problem.outputs[0].format.dtype.nbytes for part in parts))
    borders = _BORDERS * min(1.0, len(parts) * _OF_A_WARP / sum(parts))
    return 1 / (1 + borders + _NARROWER * (ACCESS // whole - 1))


def _along_rows(problem: KernelProblem) -> bool:
    """True where the axis of a concatenation is the innermost in memory."""
    assert isinstance(problem.op, Concat)
    output = problem.outputs[0]
    return bool(output.shape) and problem.op.axis == memory_axes(len(output.shape), output.format.layout)[-1]


def _parts_apart(problem: KernelProblem) -> tuple[int, ...]:
    return tuple(range(len(problem.inputs))) if _along_rows(problem) else ()


def _refuse_pad(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    source, output = problem.inputs[0], problem.outputs[0]
    if source.format.dtype is not output.format.dtype:
        return "pads only within one element type"
    rank = len(output.shape)
    return Reason("pads {} axes, at most {} are supported", rank, MOST_AXES) if rank > MOST_AXES else None


def _emit_pad(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pad)
    order = memory_axes(len(output.shape), output.format.layout)
    parameters = struct(
        "bolt::portable::Pad",
        rank=len(order),
        **{"in": braces(source.shape[axis] for axis in order)},
        out=braces(output.shape[axis] for axis in order),
        begin=braces(op.begin[axis] for axis in order),
    )
    dtype = ctype(output.format.dtype)
    call = (
        f"bolt::portable::pad<bolt::portable::PadMode::{op.mode}, {dtype}>(r, {parameters}, "
        f"static_cast<{dtype}>({padding(op, output)}), {at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/move.h",), None, "", call)


def _emit_tiled_pad(problem: KernelProblem, tile: PadTile, at: StepExpressions) -> StepCode:
    output = problem.outputs[0]
    assert isinstance(problem.op, Pad)
    dtype = ctype(output.format.dtype)
    return tiled_pads.emit_tiled_pad(problem, tile, at, dtype, f"static_cast<{dtype}>({padding(problem.op, output)})")


_TILED_PADS: Form[PadTile] = Form(
    "tiled",
    lambda problem: problem.outputs[0].type.elements > 1,
    tiled_pads.refuse,
    tiled_pads.tiles,
    tiled_pads.refuse_tile,
    tiled_pads.seconds,
    PadTile.read,
    _emit_tiled_pad,
)


def _is_plain_copy(problem: KernelProblem) -> bool:
    """True where a strided copy makes the output's element type of the input's."""
    return copied_types(problem.inputs[0], problem.outputs[0]) is not None


def _refuse_cast(problem: KernelProblem) -> str | None:
    return _refuse_copy(problem) if _is_plain_copy(problem) else refuse_pointwise(problem)


def _emit_cast(problem: KernelProblem, at: StepExpressions) -> StepCode:
    if _is_plain_copy(problem):
        return _emit_copy(problem, at)
    return emit_pointwise(problem, at, _CONVERT)


def _cast_points(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
    return copied_points(problem, at) if _is_plain_copy(problem) else points_of(problem, _CONVERT)


def _cast_bandwidth(problem: KernelProblem) -> float:
    return cast_bandwidth(problem) if _is_plain_copy(problem) else pointwise_bandwidth(problem)


_TILED_ROWS = tiled_form(moved_rows, in_whole_accesses)
_ROWS = row_form(exchanged, in_whole_accesses)
_TILED_CASTS = tiled_form(_cast_points, lambda problem: _cast_bandwidth(problem) == 1.0)

RULES = (
    Rule(
        Identity,
        _refuse_copy,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=copy_bandwidth,
        gpu_latency=copy_latency,
        in_place=(0,),
        is_view=is_same_bytes,
    ),
    Rule(
        Cast,
        _refuse_cast,
        _emit_cast,
        _as_fast_as_memory,
        gpu_bandwidth=_cast_bandwidth,
        gpu_latency=copy_latency,
        forms=(PERMUTED, PERMUTED_WORDS, _TILED_CASTS),
        is_view=is_same_bytes,
    ),
    Rule(
        Convert,
        _refuse_copy,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=copy_bandwidth,
        gpu_latency=copy_latency,
        is_view=is_same_bytes,
        pitched=_rows_apart,
        reads_apart=_copy_apart,
        forms=(PERMUTED, PERMUTED_WORDS, _TILED_ROWS, _ROWS),
    ),
    Rule(
        Transpose,
        _refuse_copy,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=copy_bandwidth,
        gpu_latency=copy_latency,
        layouts=_transpose_layouts,
        is_view=_is_contiguous,
        pitched=_rows_apart,
        reads_apart=_copy_apart,
        forms=(PERMUTED, PERMUTED_WORDS, _TILED_ROWS, _ROWS),
    ),
    Rule(
        Rearrange,
        _refuse_rearranged,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=copy_bandwidth,
        gpu_latency=copy_latency,
        layouts=lambda node, inputs, output: tuple(((a,), b) for a in Layout for b in Layout),
        is_view=_slice_is_view,
        view_offset=_slice_offset,
        pitched=_rows_apart,
        reads_apart=_copy_apart,
        forms=(PERMUTED, PERMUTED_WORDS, _TILED_ROWS, _ROWS),
    ),
    Rule(
        Expand,
        _refuse_copy,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=expand_bandwidth,
        gpu_latency=copy_latency,
        forms=(flat_form(copied_points, expands_whole), tiled_form(copied_points, expands_whole)),
    ),
    Rule(
        Slice,
        _refuse_copy,
        _emit_copy,
        _as_fast_as_memory,
        gpu_bandwidth=copy_bandwidth,
        gpu_latency=copy_latency,
        is_view=_slice_is_view,
        view_offset=_slice_offset,
        pitched=_rows_apart,
        reads_apart=_copy_apart,
        forms=(tiled_form(copied_rows, in_whole_accesses), row_form(sliced, in_whole_accesses)),
    ),
    Rule(
        Reshape, no_epilogue, _emit_reshape, _as_fast_as_memory, layouts=_reshape_layouts, is_view=lambda problem: True
    ),
    Rule(
        Concat,
        _refuse_concat,
        _emit_concat,
        _as_fast_as_memory,
        gpu_bandwidth=_concat_bandwidth,
        gpu_latency=concat_latency,
        pitched=_along_rows,
        reads_apart=_parts_apart,
        forms=(row_form(joined, joins_whole),),
    ),
    Rule(
        Pad,
        _refuse_pad,
        _emit_pad,
        _as_fast_as_memory,
        gpu_bandwidth=tiled_pads.pad_bandwidth,
        forms=(_TILED_PADS, row_form(padded, tiled_pads.pads_whole)),
    ),
)
