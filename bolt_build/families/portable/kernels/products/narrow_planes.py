"""How a GPU computes convolutions of one position over few planes in half precision: heads that talk to each other, and
colours of an image. Threads have some neighbours of every plane, so nothing is brought to channels last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.products.narrow_products import MOST
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

_LANES = (8, 4, 2, 1)
_HELD = 96
"""Sums of a thread, and words of what it has read, at most."""
_REACHED = {8: 0.55, 4: 0.54, 2: 0.5, 1: 0.3}
"""The part of the bandwidth that accesses of so many elements reach: what 8 convolutions took on an H100, but for one
at a time, which is a guess."""


@dataclass(frozen=True)
class PlanesTile(NumberTile):
    """A thread has so many neighbours of each plane."""

    lanes: int


def _sizes(problem: KernelProblem) -> tuple[int, int, int]:
    """Channels, filters and elements of a plane."""
    shape = problem.inputs[op_operands(problem)[0]].shape
    return shape[1], problem.outputs[0].shape[1], prod(shape[2:])


def _serves(problem: KernelProblem) -> bool:
    """Of one position, over planes."""
    op = problem.op
    if not isinstance(op, Conv) or op.groups > 1 or problem.outputs[0].format.layout is not Layout.ROW:
        return False
    kernel = problem.inputs[op_operands(problem)[1]].shape[2:]
    still = max((*kernel, *op.strides)) == 1 and not any((*op.pads_begin, *op.pads_end))
    return still and max(_sizes(problem)[:2]) <= MOST


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    x, w = (problem.inputs[index].format.dtype for index in op_operands(problem)[:2])
    return None if x is w and x in HALVES else "multiplies factors that are both in f16, or both in bf16"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PlanesTile]:
    yield from map(PlanesTile, _LANES)


def _refuse_tile(problem: KernelProblem, tile: PlanesTile, gpu: Gpu) -> str | None:
    channels, filters, inner = _sizes(problem)
    if tile.lanes not in _LANES:
        return "a thread has 1, 2, 4 or 8 neighbours"
    if inner % tile.lanes:
        return Reason("{} elements of a plane are no multiple of {}", inner, tile.lanes)
    held = tile.lanes * filters + tile.lanes * channels // 2
    return Reason("a thread would hold {} numbers, at most {} stay in registers", held, _HELD) if held > _HELD else None


def _seconds(problem: KernelProblem, tile: PlanesTile, target: Target) -> float:
    return moved(problem.nbytes, target) / _REACHED[tile.lanes] + OVERLAPPED * target.launch_seconds + 0.3e-6


def _emit(problem: KernelProblem, tile: PlanesTile, at: StepExpressions) -> StepCode:
    own, (channels, filters, inner) = op_operands(problem), _sizes(problem)
    types = f"{COMPUTED[problem.inputs[own[0]].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"
    before = tuple(bias(problem, at, index) for index in own[2:])
    how, images = f"{channels}, {filters}, {tile.lanes}, {types}", problem.outputs[0].shape[0]
    call = (
        f"bolt::portable::narrow_planes<{how}>(r, {images}, {inner}, {at.inputs[own[0]]}, "
        f"{at.inputs[own[1]]}, {at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/cuda/products/narrow_matmul.h",), None, "", call)


FORM: Form[PlanesTile] = Form(
    "narrow", _serves, _refuse, _tiles, _refuse_tile, _seconds, PlanesTile.read, _emit
)  # fmt: skip
