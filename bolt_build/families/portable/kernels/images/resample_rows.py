"""Planes, and images of odd channels, of which each result is one pixel, as nearest ones are: rows whose elements
threads look for one by one, in whole accesses of the result. Of rows that are left out nothing is read."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.kernels.elementwise.tile_threads import numbers
from bolt_build.families.portable.kernels.images.pool_windows import channels_last
from bolt_build.families.portable.kernels.images.resample_images import Images, images_of, stores_wider
from bolt_build.families.portable.kernels.moves.flat_rows import FlatRows, row_form
from bolt_build.families.portable.typed import ctype

_SECTOR, _ACCESS = 32, 16
"""Bytes that memory has at least, and those of an access at most."""
_COLUMN, _ROW, _ELEMENT = 9, 12, 6.0
"""Instructions of a thread for where a column or a row is and its weight, and for an element beside the lines of its
load: fitted to 24 kernels of four problems on an H200."""


def _read(images: Images) -> float:
    """Bytes of the sectors that are read."""
    rows, columns = images.rows, images.columns
    many = images.outer * (min(rows.made, rows.extent) if rows.taps else rows.extent)
    row = columns.extent * images.inner * images.nbytes
    pixels = min(columns.made * max(_SECTOR, images.inner * images.nbytes), row) if columns.taps else row
    ends = _SECTOR if rows.taps and rows.made < rows.extent else 0
    return float(min(many * (pixels + ends), images.outer * rows.extent * row))


def nearest(problem: KernelProblem, at: StepExpressions | None) -> FlatRows | None:
    """Rows of nearest pixels; None of results that have several neighbours or another type, of pixels that are whole
    accesses, and of nothing. Pixels may lie apart."""
    images = images_of(problem)
    rows, columns = images.rows, images.columns
    if stores_wider(problem) or not problem.outputs[0].type.elements:
        return None
    if channels_last(problem) and images.inner * images.nbytes % _ACCESS == 0:
        return None
    if max(rows.taps, columns.taps) != 1:
        return None
    kind = ctype(problem.inputs[0].format.dtype)
    given, made = (at.input_pitch(0), at.pitch(0)) if at else (0, 0)
    inner = images.inner
    extents = numbers((rows.extent, rows.made, columns.extent, columns.made, inner, given or inner, made or inner))
    tables = list(at.inputs[1:]) if at else [""] * 4
    pairs = [(tables.pop(0), tables.pop(0)) if axis.taps else ("nullptr", "nullptr") for axis in (rows, columns)]
    first, weights = (
        ", ".join(f"static_cast<const {dtype}*>({pair[place]})" for pair in pairs)
        for place, dtype in enumerate(("std::int64_t", "float"))
    )
    pointer = f"static_cast<const {kind}*>({at.inputs[0] if at else ''})"
    name = f"bolt::portable::NearestRows<{kind}, {extents}, {rows.taps}, {columns.taps}>"
    return FlatRows(
        images.outer * rows.made,
        columns.made * images.inner,
        images.nbytes,
        f"{name}{{{pointer}, {first}, {weights}}}",
        _COLUMN,
        _ROW,
        problem.inputs[0].type.elements,
        _read(images) - problem.inputs[0].nbytes,
        header="bolt_portable/cuda/images/resample_rows.h",
        element=_ELEMENT,
        apart=images.nbytes * images.columns.extent / images.columns.made if inner == 1 else 0.0,
        driver="nearest_apart" if made else "flat_rows",
    )


FORM = row_form(nearest, lambda problem: False)
