"""What is resampled: planes of rows and columns, and how a kernel's call states them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions, memory_axes
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.portable.kernels.images.pool_windows import channels_last
from bolt_build.graph.ops.images.resample import Resample


@dataclass(frozen=True)
class ImageAxis:
    """What there is, what is made of it, and of how many each is made; `taps` 0 of an axis that stays."""

    extent: int
    made: int
    taps: int

    @property
    def step(self) -> int:
        """Elements that a result adds to those of the one before, as a rule."""
        return min(max(ceil(self.extent / max(self.made, 1)), 1), max(self.taps, 1))


@dataclass(frozen=True)
class Images:
    """[outer, rows, columns, inner] of elements of `nbytes`."""

    outer: int
    rows: ImageAxis
    columns: ImageAxis
    inner: int
    nbytes: int


@functools.lru_cache(maxsize=256)
def images_of(problem: KernelProblem) -> Images:
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Resample)
    taps = dict(zip(op.axes, (table.shape[1] for table in problem.inputs[2::2]), strict=True))
    order = memory_axes(len(output.shape), output.format.layout)
    axes = [ImageAxis(source.shape[axis], output.shape[axis], taps.get(axis, 0)) for axis in order]
    first = order.index(op.axes[0])
    before, own, behind = axes[:first], axes[first : first + len(op.axes)], axes[first + len(op.axes) :]
    outer, inner = prod(axis.made for axis in before), prod(axis.made for axis in behind)
    if len(own) == 1 and channels_last(problem):
        # Pixels may lie apart.
        inner = behind[-1].made
    if len(own) == 1 and (inner == 1 or (len(behind) == 1 and channels_last(problem))):
        # Rows stay, and threads go down them with one table of columns.
        rows, columns, outer = ImageAxis(outer, outer, 0), own[0], 1
    elif len(own) == 1:
        beside = prod(axis.made for axis in behind) // max(inner, 1)
        rows, columns = own[0], ImageAxis(beside, beside, 0)
    else:
        rows, columns = own
    return Images(outer, rows, columns, inner, source.format.dtype.nbytes)


def stores_wider(problem: KernelProblem) -> bool:
    """Whether planes of half precision become fp32, as models have their outputs."""
    given, made = problem.inputs[0].format.dtype, problem.outputs[0].format.dtype
    return given in HALVES and made is DType.F32 and not channels_last(problem)


def are_pixels(problem: KernelProblem) -> bool:
    """True where what lies beside each other is the channels of a pixel."""
    return channels_last(problem) and images_of(problem).inner == problem.outputs[0].shape[1]


def _axis_text(axis: ImageAxis, first: str, weights: str) -> str:
    pointers = {
        "first": f"static_cast<const std::int64_t*>({first})", "weights": f"static_cast<const float*>({weights})",
    } if axis.taps else {}  # fmt: skip
    return struct("bolt::portable::ResampledAxis", extent=axis.extent, made=axis.made, taps=axis.taps, **pointers)


def arguments(images: Images, at: StepExpressions) -> tuple[str, str]:
    """What is resampled, and its axes, as a call states them."""
    tables = list(at.inputs[1:])
    axes = []
    for axis in (images.rows, images.columns):
        first, weights = (tables.pop(0), tables.pop(0)) if axis.taps else ("nullptr", "nullptr")
        axes.append(_axis_text(axis, first, weights))
    parameters = struct(
        "bolt::portable::Resample",
        outer=images.outer,
        inner=images.inner,
        in_cell=at.input_pitch(0) or images.inner,
        out_cell=at.pitch(0) or images.inner,
    )
    return parameters, ", ".join(axes)
