"""Planes that are pooled through shared memory."""

from __future__ import annotations

import functools
from dataclasses import replace

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.epilogue import chain
from bolt_build.families.portable.kernels.images.joined_planes import JoinedRows, JoinedTile, joined_planes
from bolt_build.families.portable.kernels.images.pool_sliding import (
    goes_over_depths,
    images_of,
    refuse_windows_that_slide,
)
from bolt_build.families.portable.kernels.images.pool_windows import (
    channels_last,
    pool_header,
    pool_parameters,
    pool_types,
)
from bolt_build.families.portable.kernels.images.staged_planes import Planes, StagedPlanesTile, staged_planes
from bolt_build.families.portable.kernels.images.streamed_planes import StreamedPlanesTile, kernel, streamed_planes
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.targets import Gpu


@functools.lru_cache(maxsize=256)
def _planes(problem: KernelProblem) -> Planes:
    """Rows that are images by themselves are those of one plane."""
    op, images = problem.op, images_of(problem)
    assert isinstance(op, Pool | LpPool)
    windows, (high, wide) = images.windows, images.out
    if channels_last(problem):
        batch, channels, tall, long = problem.inputs[0].shape
        floats = 1 if isinstance(op, Pool) and op.mode != "max" else 0
        return Planes(
            batch, tall, high, long * channels, wide * channels, windows.height, windows.cells[0], windows.cells[1],
            windows.step[0], 0, floats, 0, images.given, images.stored,
        )  # fmt: skip
    rows, row = problem.inputs[0].shape[-2] if len(op.kernel) > 1 else 1, problem.inputs[0].shape[-1]
    many, step, height = images.many, windows.step[0], windows.height
    if images.rows_alone:
        many, rows, high, step, height = 1, many, many, 1, 1
    known, floats = (1, 0) if isinstance(op, LpPool) else (0, 0) if op.mode == "max" else (1, 1)
    return Planes(
        many, rows, high, row, wide, height, windows.cells[0], windows.cells[1], step, 0, floats, known, images.given,
        images.stored,
    )  # fmt: skip


def serves_planes(problem: KernelProblem) -> bool:
    """Whether images lie in planes."""
    return problem.outputs[0].type.elements > 0 and not channels_last(problem)


def _serves_joined(problem: KernelProblem) -> bool:
    """Planes, and pixels along two axes whose channels are no whole accesses: rows of others slide."""
    op, data, made = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    if not made.type.elements or not channels_last(problem):
        return bool(made.type.elements)
    whole = data.shape[1] * data.format.dtype.nbytes % 16 == 0
    return len(op.kernel) == 2 and not whole and data.format.dtype is made.format.dtype


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    return refuse_windows_that_slide(problem, gpu) or refuse_whole_windows(problem, gpu)


def refuse_whole_windows(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no kernel of planes in shared memory is for a pooling: what is behind it, or windows without elements."""
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    if problem.epilogue:
        return "pools alone, and nothing behind it"
    extents = zip(problem.inputs[0].shape[2:], output.shape[2:], strict=True)
    windows = zip(op.kernel, op.strides, op.dilations, op.pads_begin, strict=True)
    for (extent, made), (cells, stride, dilation, pad) in zip(extents, windows, strict=True):
        empty = first_empty(extent, range(-pad, made * stride - pad, stride), range(0, cells * dilation, dilation))
        if empty is not None:
            return Reason("of {} elements of an axis, a window from {} on has none", extent, empty)
    return None


def first_empty(extent: int, windows: range, cells: range) -> int | None:
    """Where the first window begins that has no element of an axis. Windows that begin inside have one, however many
    they are."""
    before = len(range(windows.start, 0, windows.step))
    for first in windows[:before]:
        inside = -(first // cells.step)  # the first cell from 0 on
        if inside >= len(cells) or first + inside * cells.step >= extent:
            return first
    beyond = len(range(windows.start, extent, windows.step))
    return next(iter(windows[max(before, beyond) :]), None)


def _call(
    problem: KernelProblem, name: str, tile: StagedPlanesTile, own: str, down: str, at: StepExpressions
) -> StepCode:
    """A call of the kernel, whose name begins so; its tile states `own`, and `down` rows of results."""
    op, images, planes = problem.op, images_of(problem), _planes(problem)
    assert isinstance(op, Pool | LpPool)
    windows = images.windows
    sizes = ", ".join(map(str, (*windows.cells, *windows.step, *windows.gap)))
    parameters = pool_parameters(problem, op, rows=planes.rows if images.rows_alone else 0)
    call = (
        f"bolt::portable::{name}{tile.text(planes)}{own}, {sizes}, {pool_types(problem)}>(r, {parameters}, "
        f"{down}, {tile.given(planes)}, {at.inputs[0]}, {at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode((pool_header(problem),), None, "", call)


def _emit(problem: KernelProblem, tile: StagedPlanesTile, at: StepExpressions) -> StepCode:
    return _call(problem, "pool_staged<", tile, "", f"{tile.down}", at)


def _emit_streamed(problem: KernelProblem, tile: StreamedPlanesTile, at: StepExpressions) -> StepCode:
    name = f"pool_streamed<{kernel(_planes(problem))}, "
    return _call(problem, name, tile, f", {tile.near}", f"{tile.down}, {tile.turns}", at)


@functools.lru_cache(maxsize=256)
def _rows(problem: KernelProblem) -> JoinedRows:
    op, windows, of = problem.op, images_of(problem).windows, _planes(problem)
    assert isinstance(op, Pool | LpPool)
    inner = problem.inputs[0].shape[1] if channels_last(problem) else 1
    left = op.pads_begin[-1]
    right = max((of.row_made // inner - 1) * windows.step[1] - left + windows.width - of.row // inner, 0)
    depths = op.kernel[0] if goes_over_depths(op) else 0
    own = replace(of, known=0)
    return JoinedRows(own, left * inner, right * inner, inner, windows.step[1], windows.width, True, depths)


def _emit_joined(problem: KernelProblem, tile: JoinedTile, at: StepExpressions) -> StepCode:
    op, images, rows = problem.op, images_of(problem), _rows(problem)
    assert isinstance(op, Pool | LpPool)
    alone = images.rows_alone
    given = zip(op.kernel, op.strides, op.dilations, op.pads_begin, strict=True)
    axes: list[tuple[int, ...]] = [*[(1, 1, 1, 0)] * (3 - len(op.kernel)), *given]
    if rows.inner > 1:
        axes[-1] += (rows.inner,)
    sizes = ", ".join(f"bolt::portable::PoolAxis<{', '.join(map(str, axis))}>" for axis in axes)
    apart = (at.pitch(0), at.input_pitch(0)) if rows.inner > 1 else (0, 0)
    parameters = pool_parameters(problem, op, *apart, rows=rows.of.rows if alone else 0)
    call = (
        f"bolt::portable::pool_joined<{tile.text(rows)}, {sizes}, {pool_types(problem)}>(r, {parameters}, "
        f"{tile.turns}, {tile.given(rows)}, {at.inputs[0]}, {at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode((pool_header(problem),), None, "", call)


FORM = staged_planes(serves_planes, _planes, _refuse, _emit)
STREAMED = streamed_planes(serves_planes, _planes, _refuse, _emit_streamed)
JOINED = joined_planes(_serves_joined, _rows, refuse_whole_windows, _emit_joined)
