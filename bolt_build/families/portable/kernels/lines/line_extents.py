"""A tensor seen as lines along one axis."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import Operand, memory_axes
from bolt_build.families.common.cxx import struct


def lines_text(operand: Operand, axis: int) -> str:
    """The C++ value of its extents, in the order of memory."""
    order = memory_axes(len(operand.shape), operand.format.layout)
    shape, place = [operand.shape[each] for each in order], order.index(axis)
    outer, inner = prod(shape[:place]), prod(shape[place + 1 :])
    return struct("bolt::portable::Lines", outer=outer, extent=shape[place], inner=inner)
