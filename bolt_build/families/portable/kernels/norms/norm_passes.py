"""How a GPU normalises in two passes: elements are read from memory for their statistics, and soon again from L2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.epilogue import chain
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms.norm_loops import loop_text, pointers_text, types_text, with_scratch
from bolt_build.families.portable.kernels.norms.norm_nest import (
    InSlabs,
    Nest,
    element_bytes,
    found,
    loops_text,
    nest_for,
    operands_share,
    refuse,
    seconds_of,
    serves,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

THREADS = (128, 256)
"""Threads of a block."""
MOST_SLABS = 4095
"""Of `most_pass_slabs`: each slab has a counter."""
_BYTES = (32 << 10, 64 << 10, 128 << 10)
"""Parts of a slab that are tried."""
_LINE = 64
"""Bytes that memory gives at once."""
_SEVERAL = 4
_AHEAD = (8 << 20, 16 << 20, 24 << 20)
"""Bytes between what is gathered and what is stored that are tried, of a GPU with 50 MB of L2."""


@dataclass(frozen=True)
class PassTile(InSlabs, NumberTile):
    """`across` loads of `LANES` channels make a slab, whose positions are cut in `parts`. Of each part a block of
    `threads` threads gathers statistics, and another one stores results. So many slabs are gathered `ahead` of the
    first that is stored."""

    SETTINGS = ("across", "parts", "threads", "ahead")

    across: int
    parts: int
    threads: int
    ahead: int

    def share(self, nest: Nest) -> int:
        """Positions of a part."""
        return ceil(nest.many / self.parts)

    def statistics(self, nest: Nest) -> int:
        """Of a slab."""
        return self.width // nest.group

    def shared(self, nest: Nest) -> int:
        """Bytes of shared memory of a block."""
        return 4 * max(self.parts_of_sums * self.width + self.statistics(nest), 3 * self.threads)

    def scratch(self, nest: Nest) -> int:
        """Bytes: mean and squares of each part, mean and factor of each slab."""
        return 8 * nest.slabs(self.width) * (self.parts + 1) * self.statistics(nest)


def tiles(nest: Nest, element: int, gpu: Gpu) -> Iterator[PassTile]:
    """The widest slabs that blocks have threads for, in parts of several sizes; where these are few parts, narrow ones
    too, which are more."""
    for threads in THREADS:
        for across in _widths(nest, threads, element, gpu):
            slab, items = nest.many * across * LANES * element, nest.slabs(across * LANES)
            for part in dict.fromkeys(min(max(1, ceil(slab / most)), nest.many) for most in _BYTES):
                part = ceil(nest.many / ceil(nest.many / part))
                wanted = (ceil(most * gpu.l2 / (50 << 20) / slab) for most in _AHEAD)
                for ahead in dict.fromkeys(min(each, items) for each in wanted):
                    yield PassTile(across, part, threads, ahead)


def _widths(nest: Nest, threads: int, element: int, gpu: Gpu) -> list[int]:
    loads = nest.channels.extent // LANES
    widths = [each for each in range(min(loads, threads), 0, -1) if loads % each == 0]
    whole = [each for each in widths if each * LANES % nest.group == 0] or widths[:1]
    # All elements in parts of the least size: each multiprocessor has room for several.
    few = nest.slabs(whole[0] * LANES) * nest.many * whole[0] * LANES * element < _SEVERAL * gpu.sms * _BYTES[0]
    narrow = [each for each in whole if each * LANES * element >= _LINE]
    return list(dict.fromkeys((whole[0], *narrow[-1:]))) if few else whole[:1]


def refuse_tile(tile: PassTile, nest: Nest, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such passes on this GPU, None where one does."""
    if tile.threads not in THREADS:
        return "there are kernels of 128 or 256 threads"
    if (reason := tile.refuse_slab(nest)) is not None:
        return reason
    if ceil(nest.many / tile.share(nest)) != tile.parts:
        return Reason("{} positions are not cut in {} parts of one size", nest.many, tile.parts)
    items = nest.slabs(tile.width)
    if items > MOST_SLABS:
        return Reason("{} slabs are more than the {} that there are counters for", items, MOST_SLABS)
    if tile.ahead > items:
        return Reason("{} slabs ahead are more than the {} that there are", tile.ahead, items)
    return refuse_shared(tile.shared(nest), gpu)


_REACHED = 0.53
"""The part of a GPU's bandwidth that blocks reach at best."""
_BEGIN = 5e-6
"""A guess at the seconds until the first slab is gathered, and put together, and until the last one is stored."""
_ALONE, _ROUND, _TICKET, _COMBINED = 14e-6, 1.35e-6, 8e-9, 0.8e-6
"""Seconds that an H100 took however few the bytes: for counts and waits, for loads of both passes that are under way at
once, for a block's number, and for parts that a thread puts together at once."""
_KEEPS = 0.5
"""The part of L2 that is expected to keep what was read: its other part is where results wait for memory."""
_REGISTERS = 80
_BATCH, _AT_ONCE = 4, 16
"""`batch` and `at_once` of `norm_passes.h`."""


def _seconds(problem: KernelProblem, tile: PassTile, target: Target) -> float:
    gpu, nest, element = target.gpu, nest_for(problem), element_bytes(problem)
    assert gpu is not None, "passes are for GPUs"
    resident = occupancy(tile.threads, _REGISTERS, tile.shared(nest), gpu) * gpu.sms
    part = tile.share(nest) * tile.width * element
    slab = nest.many * tile.width * element
    waits = min(resident, 2 * nest.slabs(tile.width) * tile.parts) * part // 2
    # What is not gathered yet is waited for; what is gathered too early is read from memory again.
    wait = min(1.0, (tile.ahead * slab + 1) / waits)
    read = 1.0 if (tile.ahead + 1) * slab + waits <= _KEEPS * gpu.l2 else 2 / 3
    loads = tile.share(nest) * tile.across / tile.threads
    filled = loads / (loads + 6.0)  # beside few loads of a thread, its addresses, sums and waits are much
    reached = _REACHED * read * (0.5 + 0.5 * wait) * filled * operands_share(nest)
    return max(seconds_of(problem, target, reached) + _BEGIN, _alone(tile, nest)) + found(nest, loads)


def _alone(tile: PassTile, nest: Nest) -> float:
    """Seconds of one part after the other: loads wait for those before them, and blocks for their numbers."""
    rows = max(tile.threads // tile.across, 1)
    loads = ceil(ceil(tile.share(nest) / rows) / _BATCH)
    lanes = max(tile.threads // tile.statistics(nest), 1)
    combined = ceil(ceil(tile.parts / lanes) / _AT_ONCE)
    blocks = 2 * nest.slabs(tile.width) * tile.parts
    return _ALONE + _ROUND * loads + _TICKET * blocks + _COMBINED * combined


def _emit(problem: KernelProblem, tile: PassTile, at: StepExpressions) -> StepCode:
    nest = nest_for(problem)
    passes = struct(
        "bolt::portable::NormPasses",
        across=tile.across,
        share=tile.share(nest),
        group=nest.group,
        threads=tile.threads,
        ahead=tile.ahead,
        channels=loop_text(nest.channels),
    )
    at, member = with_scratch(problem, tile.scratch(nest), at)
    call = (
        f"bolt::portable::norm_in_passes<bolt::portable::NormOperands::{nest.operands}, {types_text(problem)}>(r, "
        f"{loops_text(problem, nest)}, {passes}, {pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), *member, call, counts=True)


FORM: Form[PassTile] = Form(
    "passes",
    serves,
    refuse,
    lambda problem, gpu: tiles(nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, nest_for(problem), gpu),
    _seconds,
    PassTile.read,
    _emit,
)
