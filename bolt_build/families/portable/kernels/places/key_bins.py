"""How a GPU's threads put keys of a line in bins of shared memory, and sort them there (`cuda/places/key_bins.h`)."""

from __future__ import annotations

from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.geometry import strides
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.places.sorted_places import extent_of, in_words
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import Places

_EACH = (4, 8, 12, 20, 28, 36)
"""Neighbouring keys of a thread that are tried: lanes that read them in words of 16 bytes seldom share banks."""
_ROUNDS = 16
"""Keys of a bin that are sorted by exchanges of neighbours, and so those of other warps at either end of a warp's."""
STATIC = 48 << 10
"""Bytes of shared memory that a block has without asking for more."""
_HELD_REGISTERS = 16 << 10
"""Registers of a block that hold elements: others are for all else that its threads do."""
WORD = 8
"""Elements of half precision in a word of 16 bytes."""


def up(many: float, multiple: int) -> int:
    return ceil(many / multiple) * multiple


def refuse_few(problem: KernelProblem) -> str | None:
    """Why no kernel of keys is for the problem that takes the first of equal elements first."""
    op, dtype = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, Places)
    if dtype.nbytes > 4:
        return f"keys have no room for {dtype.value} and a place"
    return "takes the first of equal elements, not the last" if op.last else None


def neighbours(problem: KernelProblem) -> bool:
    """Whether elements of a line lie beside each other."""
    op, source = problem.op, problem.inputs[0]
    assert isinstance(op, Places)
    return strides(source)[op.axis] == 1


def paired(problem: KernelProblem, threads: int, holds: int, extent: int) -> bool:
    """Whether threads hold neighbours of half precision in pairs, of a line or of parts of it with `extent` elements:
    in words wherever these begin, or where all begin with words."""
    if problem.inputs[0].format.dtype not in (DType.F16, DType.BF16) or not neighbours(problem):
        return False
    if not in_words(problem):
        return False
    whole = extent % WORD == 0 and extent_of(problem) % WORD == 0
    return holds % WORD == 0 and threads * holds >= extent + (0 if whole else WORD - 1)


def holds_for(problem: KernelProblem, threads: int, extent: int, most: int) -> int | None:
    """Elements that each thread holds of so many: in pairs, where that is less than half more. None where it cannot."""
    single, most = ceil(extent / threads), min(most, _HELD_REGISTERS // threads)
    whole = extent % WORD == 0 and extent_of(problem) % WORD == 0
    more = up((extent if whole else extent + WORD - 1) / threads, WORD)
    if paired(problem, threads, more, extent) and more <= 2 * most and (2 * more < 3 * single or more == WORD):
        return more
    return single if single <= most else None


def refuse_held(problem: KernelProblem, threads: int, holds: int, extent: int, most: int) -> str | None:
    """Why threads do not hold so many elements of a line, or of a part of one."""
    if threads * holds < extent:
        return Reason("{} elements are more than {} threads hold", extent, threads)
    if holds > most * (2 if paired(problem, threads, holds, extent) else 1):
        return Reason("{} threads do not hold {} elements each", threads, holds)
    return None


def room_for(threads: int, need: int, size: int) -> tuple[int, int] | None:
    """Neighbouring keys of a thread, and how many there is room for, at least `need` of `size` bytes; None where there
    are too many."""
    wide = 16 // size
    if threads == WARP:
        each = max(wide, up(need / WARP, wide))
        each += 4 if each % 8 == 0 and each > 8 else 0
        return (each, WARP * each) if each <= max(_EACH) else None
    room = up(need, threads)
    return next(((each, room) for each in _EACH[:-1] if _own(each) * (threads // WARP) >= room), None)


def _own(each: int) -> int:
    """Keys of a warp beside those of others."""
    return WARP * each - 2 * _ROUNDS


def bins_for(threads: int, wanted: float) -> int:
    """A power of two, of which each thread has four or more."""
    bins = max(128, 4 * threads)
    while bins < wanted and bins < max(2048, 4 * threads):
        bins *= 2
    return bins


def bins_bytes(threads: int, room: int, bins: int, size: int) -> int:
    """Bytes of shared memory of a line."""
    keys = room
    if threads > WARP:
        of_thread = 1
        while of_thread * threads < room:
            of_thread *= 2
        keys = max(room, of_thread * threads)
    return keys * size + 4 * bins + 4 * (3 * threads // WARP + 8)


def refuse_bins(threads: int, each: int, room: int, bins: int, size: int, more: int = 0) -> str | None:
    """Why so many threads do not sort up to `room` keys of `size` bytes in bins, beside `more` keys."""
    wide = 16 // size
    if threads not in (32, 64, 128, 256, 512, 1024):
        return Reason("no line has {} threads", threads)
    if each % wide or each > max(_EACH) or (threads > WARP and _own(each) <= 0):
        return Reason("threads do not sort {} keys of {} bytes each", each, size)
    if WARP * each != room if threads == WARP else _own(each) * (threads // WARP) < room or room % WARP:
        return Reason("{} threads that sort {} keys each have no room for {}", threads, each, room)
    if bins & (bins - 1) or bins < 4 * threads or bins // (4 * threads) * (threads // WARP) > WARP:
        return Reason("{} threads do not add up {} bins", threads, bins)
    own = bins_bytes(threads, room, bins, size) + more * size
    if (together := own * (4 if threads == WARP else 1)) > STATIC:
        return Reason("takes {} bytes of shared memory, a block has {}", together, STATIC)
    return None


def expected_sifted(wanted: float, extent: int, group: int) -> float:
    """Elements of a random line up to a bound that the least of `wanted` groups of so many are up to."""
    share = wanted * group / extent
    return extent * (1 - (1 - share) ** (1 / group)) if share < 1 else extent


def group_for(count: int, extent: int, most: int) -> int | None:
    """Elements of a group, so that there are half as many groups again as elements are wanted; None where that takes
    groups of one."""
    return next((group for group in (32, 16, 8, 4, 2) if group <= most and extent / group >= 1.4 * count + 8), None)


def groups_of(problem: KernelProblem, threads: int, holds: int, extent: int) -> int:
    """Registers of a thread that hold its elements, which groups are of."""
    return holds // 2 if paired(problem, threads, holds, extent) else holds
