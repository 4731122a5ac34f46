"""How a GPU computes windows over few planes in half precision: masks of partial convolutions, edges and blurs of
images, maps that a gate of pixels is made of. Tensor cores would multiply zeros for the most part, so threads do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import in_single
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

MOST, MOST_TAPS, _MOST_ACROSS = 4, 128, 31
"""Channels of a group, and its filters; products of a result, and columns that a window reaches over."""
_LANES = (8, 4, 2, 1)
_HELD = 80
"""Sums of a thread, and what it has of a row."""
_THREAD, _ROW, _VALUE, _FACTOR = 120, 20, 4, 2
"""Instructions of a thread, of each row that it reads, each value of that, and each factor. Multiplications come
beside. Counted in the source, not measured."""
_ISSUED = 0.35
"""Part of the instructions that a multiprocessor could issue: a mask of 256x256 at batch 32 took 10.6 us on an H200."""


@dataclass(frozen=True)
class StencilTile(NumberTile):
    """A thread has so many neighbours of a row."""

    lanes: int


@dataclass(frozen=True)
class _Sizes:
    """Channels and filters of a group, and rows and columns: of a window, from one to the next, and between taps."""

    channels: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]

    def span(self, lanes: int) -> int:
        """Values of a row that windows of so many neighbours have."""
        return (lanes - 1) * self.strides[1] + (self.kernel[1] - 1) * self.dilations[1] + 1


def _pair(values: tuple[int, ...], fill: int) -> tuple[int, int]:
    """Rows and columns; a line is one row."""
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def _sizes(problem: KernelProblem) -> _Sizes:
    op, (filters, channels, *kernel) = problem.op, problem.inputs[op_operands(problem)[1]].shape
    assert isinstance(op, Conv)
    pairs = (_pair(tuple(kernel), 1), _pair(op.strides, 1), _pair(op.dilations, 1))
    return _Sizes(channels, filters // op.groups, *pairs)


def _serves(problem: KernelProblem) -> bool:
    """Of several positions, over planes of images and lines."""
    op, output = problem.op, problem.outputs[0]
    if not isinstance(op, Conv) or output.format.layout is not Layout.ROW or len(output.shape) not in (3, 4):
        return False
    of = _sizes(problem)
    products = of.channels * prod(of.kernel)
    return max(of.channels, of.filters) <= MOST and prod(of.kernel) > 1 and products <= MOST_TAPS


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    of = _sizes(problem)
    if in_single(problem):
        return "of images all in fp32 the plain kernel is an implicit product"
    if (reach := (of.kernel[1] - 1) * of.dilations[1] + 1) > _MOST_ACROSS:
        return Reason("a window reaches over {} columns, at most {} stay in registers", reach, _MOST_ACROSS)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[StencilTile]:
    yield from map(StencilTile, _LANES)


def _refuse_tile(problem: KernelProblem, tile: StencilTile, gpu: Gpu) -> str | None:
    of, columns = _sizes(problem), problem.outputs[0].shape[-1]
    if tile.lanes not in _LANES:
        return "a thread has 1, 2, 4 or 8 neighbours"
    if columns % tile.lanes:
        return Reason("rows of {} columns are no multiple of {}", columns, tile.lanes)
    held = tile.lanes * of.filters + of.span(tile.lanes)
    return Reason("a thread would hold {} numbers, at most {} stay in registers", held, _HELD) if held > _HELD else None


def _seconds(problem: KernelProblem, tile: StencilTile, target: Target) -> float:
    of, output = _sizes(problem), problem.outputs[0]
    assert target.gpu is not None, "a form of GPUs"
    rows = of.channels * of.kernel[0]
    factors = rows * of.kernel[1] * of.filters
    issued = _THREAD + rows * (_ROW + _VALUE * of.span(tile.lanes)) + factors * (_FACTOR + tile.lanes)
    threads = output.type.elements // of.filters // tile.lanes
    rate = target.rate("fp32") / 2
    # Few threads wait for one row after the other.
    waits = 0.4e-6 + 0.1e-6 * rows
    busy = max(threads * issued / rate / _ISSUED, waits * ceil(threads / (target.gpu.sms * 2048)) / 2)
    return max(busy, moved(problem.nbytes, target)) + waits / 2 + OVERLAPPED * target.launch_seconds


def _emit(problem: KernelProblem, tile: StencilTile, at: StepExpressions) -> StepCode:
    op, own, of, output = problem.op, op_operands(problem), _sizes(problem), problem.outputs[0]
    assert isinstance(op, Conv)
    x, w = (problem.inputs[index] for index in own[:2])
    (rows, columns), (height, width) = _pair(output.shape[2:], 1), _pair(x.shape[2:], 1)
    (top, left) = _pair(op.pads_begin, 0)
    parameters = struct(
        "bolt::portable::Stencil",
        images=x.shape[0], groups=op.groups, rows=rows, columns=columns, height=height, width=width, top=top, left=left,
        apart_rows=of.dilations[0],
    )  # fmt: skip
    sizes = (of.channels, of.filters, *of.kernel, *of.strides, of.dilations[1], tile.lanes)
    types = (COMPUTED[operand.format.dtype] for operand in (x, w, output))
    before = tuple(bias(problem, at, index) for index in own[2:])
    call = (
        f"bolt::portable::stencil<{', '.join((*map(str, sizes), *types))}>(r, {parameters}, {at.inputs[own[0]]}, "
        f"{at.inputs[own[1]]}, {at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/cuda/images/stencil.h",), None, "", call)


FORM: Form[StencilTile] = Form("stencil", _serves, _refuse, _tiles, _refuse_tile, _seconds, StencilTile.read, _emit)
