"""Rows of neighbours that a GPU's threads hold in registers, so that what is read twice is loaded once."""

from __future__ import annotations

LANES, WARP, BLOCK = 8, 32, 256
"""Of the CUDA drivers: elements that a thread loads at once, threads of a warp and of a block."""
_HELD = 4
"""Such loads that a thread holds."""
_THREADS = ((4, 3), (8, 3), (16, 3), (WARP, _HELD), (BLOCK, _HELD))
"""Threads that share a row, and how many loads each of them has at most: rows of 96 elements have four with three."""
_SINGLE = ((WARP, 8), (BLOCK, 8))
"""The same where elements are loaded one by one."""


def held(extent: int, lanes: int = LANES) -> tuple[int, int]:
    """Loads of `lanes` (`LANES` or 1) elements a thread, and threads a row of `extent`; (0, `WARP`) for rows that are
    too long or are no multiple of `lanes`."""
    if extent % lanes == 0:
        for threads, most in _THREADS if lanes == LANES else _SINGLE:
            loads = -(-extent // (threads * lanes))
            if loads <= most:
                return loads, threads
    return 0, WARP
