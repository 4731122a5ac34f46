"""Rows of neighbours that a GPU's threads hold in registers, so that what is read twice is loaded once."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason

LANES, WARP, BLOCK = 8, 32, 256
"""Of the CUDA drivers: elements that a thread loads at once, threads of a warp and of a block."""
_THREADS, _MOST_LOADS, _MOST_SINGLE = (4, 8, 16, WARP, BLOCK), 8, 16
"""Threads that may share a row; loads that one of them has registers for, and of one element each."""
_USUAL = ((4, 3), (8, 3), (16, 3), (WARP, 4), (BLOCK, 4))
"""Threads that share a row where no candidate says so, and how many loads each of them then has at most: rows of 96
elements have four with three."""
_USUAL_NARROW = ((4, 6), (8, 6), (16, 6), (WARP, 8), (BLOCK, 8))
_USUAL_SINGLE = ((16, 4), (WARP, 16), (BLOCK, 16))
"""The same where loads are of four or two elements, and where elements are loaded one by one: then a warp has rows for
which a block would wait at its sums."""


def held(extent: int, lanes: int = LANES) -> tuple[int, int]:
    """Usual loads of `lanes` (`LANES`, 4, 2 or 1) elements a thread, and threads a row of `extent`; (0, `WARP`) for
    rows that are too long or are no multiple of `lanes`."""
    if extent % lanes == 0:
        for threads, most in _USUAL if lanes == LANES else _USUAL_SINGLE if lanes == 1 else _USUAL_NARROW:
            loads = -(-extent // (threads * lanes))
            if loads <= most:
                return loads, threads
    return 0, WARP


def in_a_warp(loads: int, threads: int, extent: int, lanes: int) -> bool:
    """Whether a warp holds rows of `extent` for which `held` has a block: its threads would have one load each, and
    wait for each other as long as for memory. So an H200 took rows of 1152 elements."""
    return threads == BLOCK and loads == 1 and lanes == LANES and extent <= WARP * LANES * _MOST_LOADS


@dataclass(frozen=True)
class RowTile:
    """So many `threads` share a row, and take so many `rows` at a time."""

    threads: int
    rows: int = 1

    @property
    def parameters(self) -> Named:
        return (("threads", self.threads), *((("rows", self.rows),) if self.rows > 1 else ()))

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> RowTile:
        return RowTile(reader.number("threads"), reader.number("rows", 1))

    def loads(self, extent: int, lanes: int = LANES) -> int:
        """Of a thread."""
        return ceil(extent / (self.threads * lanes))


def refuse_row(tile: RowTile, extent: int, lanes: int = LANES) -> str | None:
    """Why no kernel holds rows of `extent` neighbours so, None where one does."""
    if tile.threads not in _THREADS or tile.rows not in (1, 2):
        return "there are kernels of 4, 8, 16, 32 or 256 threads a row, of 1 or 2 rows"
    if tile.rows > 1 and tile.threads > WARP:
        return "a block has one row at a time"
    if extent % lanes:
        return Reason("rows of {} elements are no whole loads of {}", extent, lanes)
    most = _MOST_LOADS if lanes > 1 else _MOST_SINGLE
    if (loads := tile.loads(extent, lanes)) > most:
        what = "{} elements are {} loads of each of {} threads, which hold {} at most"
        return Reason(what, extent, loads, tile.threads, most)
    return None
