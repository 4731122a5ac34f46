"""How the threads of a block go through the loops of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

THREADS, WARP = 256, 32
"""Threads of a block, and of a warp."""


def threads_along(extents: Sequence[int], lanes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Threads along loops, the innermost first and counted in words of so many elements, and their turns along each: as
    `with_threads` of `boxes.h`."""
    room, box, parts = THREADS, list[int](), list[int]()
    for extent in extents:
        many = extent if box else extent // lanes
        parts.append(ceil(many / min(many, room)))
        box.append(ceil(many / parts[-1]))
        room = 1 if parts[-1] > 1 else room // box[-1]
    return tuple(box), tuple(parts)
