"""Planes that are resampled through shared memory."""

from __future__ import annotations

import functools
from dataclasses import replace

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.kernels.images.joined_planes import JoinedRows, JoinedTile, joined_planes
from bolt_build.families.portable.kernels.images.pool_windows import channels_last
from bolt_build.families.portable.kernels.images.resample_images import (
    ImageAxis,
    Images,
    arguments,
    images_of,
    stores_wider,
)
from bolt_build.families.portable.kernels.images.staged_planes import Planes, StagedPlanesTile, staged_planes
from bolt_build.families.portable.kernels.images.streamed_planes import StreamedPlanesTile, kernel, streamed_planes
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu


@functools.lru_cache(maxsize=256)
def _images(problem: KernelProblem) -> Images:
    """Of columns that stay each element is one."""
    images = images_of(problem)
    if images.columns.taps:
        return images
    elements = images.columns.made * images.inner
    return replace(images, columns=ImageAxis(elements, elements, 0), inner=1)


@functools.lru_cache(maxsize=256)
def _planes(problem: KernelProblem) -> Planes:
    """Rows are as far apart as images have them. Places are whole, so that the last one may be one farther."""
    images = _images(problem)
    rows, columns = images.rows, images.columns
    floats = 0 if rows.taps == 0 else 8 if rows.taps > 4 else 4 if rows.taps > 2 else rows.taps
    step = max(rows.extent / rows.made, (rows.extent - 1) / max(rows.made - 1, 1)) if rows.taps else 1.0
    return Planes(
        images.outer, rows.extent, rows.made, columns.extent * images.inner, columns.made * images.inner,
        max(rows.taps, 1), rows.taps, max(columns.taps, 1), step, 1 if rows.taps else 0, floats,
        1 if columns.taps else 0, images.nbytes, problem.outputs[0].format.dtype.nbytes,
    )  # fmt: skip


def _serves(problem: KernelProblem) -> bool:
    return problem.outputs[0].type.elements > 0 and (not channels_last(problem) or _images(problem).inner % 8 != 0)


def _call(
    problem: KernelProblem, name: str, tile: StagedPlanesTile, own: str, down: str, at: StepExpressions
) -> StepCode:
    """A call of the kernel, whose name begins so; its tile states `own`, and `down` rows of results."""
    images, planes = _images(problem), _planes(problem)
    # Of pixels that lie apart, which another kernel reads, columns that stay have their channels.
    apart = at.input_pitch(0) or at.pitch(0)
    parameters, axes = arguments(images_of(problem) if apart else images, at)
    how = f"{tile.text(planes)}, {images.rows.taps}, {images.columns.taps}, {images.inner}{own}"
    how += ", float" if stores_wider(problem) else ""
    call = (
        f"bolt::portable::{name}{ctype(problem.inputs[0].format.dtype)}, {how}>(r, {parameters}, {axes}, "
        f"{down}, {tile.given(planes)}, {at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/resample.h",), None, "", call)


def _emit(problem: KernelProblem, tile: StagedPlanesTile, at: StepExpressions) -> StepCode:
    return _call(problem, "resample_staged<", tile, "", f"{tile.down}", at)


def _emit_streamed(problem: KernelProblem, tile: StreamedPlanesTile, at: StepExpressions) -> StepCode:
    name = f"resample_streamed<{kernel(_planes(problem))}, "
    return _call(problem, name, tile, f", {tile.near}", f"{tile.down}, {tile.turns}", at)


@functools.lru_cache(maxsize=256)
def _rows(problem: KernelProblem) -> JoinedRows:
    """Of a row of results the weights and where it begins."""
    of, images = replace(_planes(problem), floats=2 * _planes(problem).floats), _images(problem)
    columns, taps = images.columns, images.columns.taps
    step = max(columns.extent / columns.made, (columns.extent - 1) / max(columns.made - 1, 1))
    beside = taps if images.inner == 1 else 0
    return JoinedRows(of, beside, beside, images.inner, step, taps, False)


def _refuse_joined(problem: KernelProblem, gpu: Gpu) -> str | None:
    images = _images(problem)
    if images.columns.taps == 0:
        return "joins rows whose columns change"
    if channels_last(problem) and images.inner % 8 == 0:
        return Reason("{} channels beside each other are whole accesses", images.inner)
    return None


def _emit_joined(problem: KernelProblem, tile: JoinedTile, at: StepExpressions) -> StepCode:
    images, rows = _images(problem), _rows(problem)
    parameters, axes = arguments(images, at)
    how = f"{tile.text(rows)}, {images.rows.taps}, {images.columns.taps}, {images.inner}"
    how += ", float" if stores_wider(problem) else ""
    call = (
        f"bolt::portable::resample_joined<{ctype(problem.inputs[0].format.dtype)}, {how}>(r, {parameters}, {axes}, "
        f"{tile.turns}, {tile.given(rows)}, {at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/resample.h",), None, "", call)


FORM = staged_planes(_serves, _planes, lambda problem, gpu: None, _emit)
STREAMED = streamed_planes(_serves, _planes, lambda problem, gpu: None, _emit_streamed)
JOINED = joined_planes(lambda problem: problem.outputs[0].type.elements > 0, _rows, _refuse_joined, _emit_joined)
