"""Strides and loops: what a dense tensor's layout means for the code that walks over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import Operand, memory_axes

MOST_AXES = 8
"""Axes that the strided kernels' parameter structs have room for."""


def strides(operand: Operand, pitch: int = 0) -> tuple[int, ...]:
    """Elements between neighbours along each logical axis, where rows lie `pitch` elements apart (0: dense)."""
    found = [0] * len(operand.shape)
    step = 1
    for outer, axis in enumerate(reversed(memory_axes(len(operand.shape), operand.format.layout))):
        found[axis] = step
        step *= pitch if pitch and not outer else operand.shape[axis]
    return tuple(found)


@dataclass(frozen=True)
class Loop:
    """One loop of a nest: its trip count and each tensor's stride. A `fixed` one is never merged with others."""

    extent: int
    steps: tuple[int, ...]
    fixed: bool = False


def merged(loops: Iterable[Loop], tensors: int) -> tuple[Loop, ...]:
    """The same nest over `tensors` tensors, outermost first, with as few loops as possible; at least one."""
    kept: list[Loop] = []
    for loop in loops:
        if loop.extent == 1 and not loop.fixed:
            continue
        outer = kept[-1] if kept else None
        if (
            outer is not None
            and not outer.fixed
            and not loop.fixed
            and all(o == loop.extent * i for o, i in zip(outer.steps, loop.steps, strict=True))
        ):
            kept[-1] = Loop(outer.extent * loop.extent, loop.steps)
        else:
            kept.append(loop)
    return tuple(kept) or (Loop(1, (1,) * tensors),)


def around(operand: Operand, axis: int | None) -> tuple[int, int, int]:
    """The tensor in memory order seen as (outer, axis, inner) extents; one long axis where `axis` is None."""
    if axis is None:
        return 1, prod(operand.shape), 1
    order = memory_axes(len(operand.shape), operand.format.layout)
    at = order.index(axis)
    extents = [operand.shape[a] for a in order]
    return prod(extents[:at]), extents[at], prod(extents[at + 1 :])


def three(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Spatial attributes as depth, height and width; missing leading ones are `fill`."""
    return (fill,) * (3 - len(values)) + values
