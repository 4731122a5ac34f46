"""How a GPU normalises in slabs: neighbouring channels at all positions, which a block or a cluster of blocks keeps in
shared memory, so that each element is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.common.geometry import MOST_AXES, Loop
from bolt_build.families.portable.kernels.rows import LANES, WARP
from bolt_build.targets import Gpu

_CLUSTERS = {1: 1.0, 2: 0.99, 4: 0.97, 8: 0.93}
"""Blocks of a cluster, and a guess at what is left of the bandwidth: they wait for each other."""
_RESIDENT, _SEVERAL, _TWICE = {1: 0.6, 2: 0.7}, 0.75, 0.85
"""The same of blocks that share a multiprocessor, one, two or several: of several one loads while another computes. And
of blocks that copy one slab while they compute another."""
_THREADS = ((128, 24 << 10), (256, 112 << 10), (512, 1 << 30))
"""Threads of a block that keeps at most so many bytes: of those that an H200 was tried with."""
_GPC = 16
_REGISTERS, _RESERVED = (64, 96), 1 << 10
"""Registers of a thread whose block has one slab, or two, and bytes of shared memory that a block takes on top of its
own."""
_LINE, _SECTOR = 64, 32
"""Bytes that memory gives at once, and of which L2 knows whether it has them."""


@dataclass(frozen=True)
class Slabs:
    """`kept` are the loops around `channels`, `positions` those inside; steps as in the loops that they are made of.

    `group` neighbouring channels have one statistic. `across` loads of `LANES` channels make a slab. The `cluster`
    blocks of a slab, of `threads` threads, have `share` positions each, and keep `chunk` of them at once, in `bytes` of
    shared memory. Of so many `clusters` that run at once each computes one slab after the other, and copies the next
    one meanwhile (0: as many as there are slabs, one each). `bandwidth` is a guess at the part of a GPU's that they
    reach.
    """

    kept: tuple[Loop, ...]
    positions: tuple[Loop, ...]
    channels: Loop
    group: int
    across: int
    cluster: int
    share: int
    chunk: int
    threads: int
    clusters: int
    bytes: int
    bandwidth: float

    @property
    def operands(self) -> str:
        """What is known of scale and bias (`NormOperands`)."""
        around = [step for loop in (*self.kept, *self.positions) if loop.extent > 1 for step in loop.steps[1:3]]
        if not any(step for loop in self.positions if loop.extent > 1 for step in loop.steps[1:3]):
            return "fixed"
        loads = set(self.channels.steps[1:3]) == {1} and not any(step % LANES for step in around)
        return "side_by_side" if loads else "any"


@dataclass(frozen=True)
class _Nest:
    kept: tuple[Loop, ...]
    positions: tuple[Loop, ...]
    channels: Loop
    group: int


def _scaled(loop: Loop, by: int) -> tuple[int, ...]:
    return tuple(step * by for step in loop.steps)


def _nest(kept: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> _Nest | None:
    """Loops around, inside and along neighbouring channels; None where none are, or loads would not be aligned."""
    nest: _Nest | None = None
    *outer, last = kept
    *positions, inner = reduced
    if last.steps[0] == 1:
        nest = _Nest(tuple(outer), reduced, last, 1)
    elif inner.steps[0] == 1 and positions and last.steps == _scaled(inner, inner.extent):
        channels = Loop(last.extent * inner.extent, inner.steps)
        nest = _Nest(tuple(outer), tuple(positions), channels, inner.extent)
    elif inner.steps[0] == 1 and inner.extent % LANES == 0:
        # One statistic of all that lies side by side, as much of it a slab's width as a warp's threads share evenly.
        across = next(each for each in (8, 4, 2, 1) if inner.extent % (each * LANES) == 0)
        rest = Loop(inner.extent // (across * LANES), _scaled(inner, across * LANES))
        nest = _Nest(kept, (*positions, rest), Loop(across * LANES, inner.steps), across * LANES)
    if nest is None or nest.channels.extent % LANES:
        return None
    loops = [loop for loop in (*nest.kept, *nest.positions) if loop.extent > 1]
    if any(loop.steps[0] % LANES for loop in loops) or len(nest.positions) > MOST_AXES:
        return None
    return nest


@dataclass(frozen=True)
class _Block:
    """Slabs that a block has in shared memory, positions of each, threads, bytes, and how many such blocks share a
    multiprocessor."""

    slabs: int
    chunk: int
    threads: int
    bytes: int
    resident: int


def _block(slabs: int, chunk: int, across: int, group: int, element: int, gpu: Gpu) -> _Block:
    own = across * LANES
    elements = slabs * chunk * own * element
    threads = next(many for many, most in _THREADS if elements <= most)
    rows = threads // WARP if WARP % across == 0 else threads // across
    taken = elements + 4 * rows * own + 16 * own // group
    memory = (gpu.shared_memory + _RESERVED) // (taken + _RESERVED)
    return _Block(slabs, chunk, threads, taken, min(memory, gpu.registers // (_REGISTERS[slabs - 1] * threads)))


def _blocks(share: int, across: int, group: int, element: int, gpu: Gpu) -> Iterator[_Block]:
    """Blocks that keep their share whole, if they can; as large a part of it as leaves room for another block; and two
    shares."""
    own = across * LANES
    for most in (gpu.shared_memory, (gpu.shared_memory + _RESERVED) // 2 - _RESERVED):
        # What is not elements is a bound: of 512 threads.
        room = (most - 16 * own // group - 4 * LANES * 512) // (own * element)
        if room > 0:
            yield _block(1, ceil(share / ceil(share / room)), across, group, element, gpu)
    two = _block(2, share, across, group, element, gpu)
    if two.resident > 0 and gpu.async_copies:
        yield two


def _shapes(nest: _Nest, element: int, gpu: Gpu) -> Iterator[Slabs]:
    loads, positions = nest.channels.extent // LANES, prod(loop.extent for loop in nest.positions)
    whole = nest.positions[-1].steps[0] == nest.channels.extent
    for across in range(1, min(loads, 64) + 1):
        own = across * LANES
        if loads % across or own % nest.group:
            continue
        run, slabs = own * element, prod(loop.extent for loop in nest.kept) * loads // across
        lines = 1.0 if whole and across == loads else run / (run + _SECTOR) if run % _LINE else 1 - 5 / run
        for cluster, waits in _CLUSTERS.items():
            if cluster > 1 and (not gpu.warpgroup_mma or cluster > positions):
                continue
            share = ceil(positions / cluster)
            for block in _blocks(share, across, nest.group, element, gpu):
                # A cluster is of one GPC. Those of an H200 have 16 or 18 multiprocessors.
                found = gpu.sms // _GPC * _GPC if cluster > 2 else gpu.sms
                at_once = found * block.resident // cluster
                if block.slabs > 1 and at_once >= slabs:
                    continue
                waves = slabs / at_once
                busy = waves / ceil(waves) if waves >= 1 else min(1.0, slabs * cluster / gpu.sms)
                chunks = ceil(share / block.chunk)
                read = 2 / (2 + (chunks - 1) / chunks)
                fills = _TWICE if block.slabs > 1 else _RESIDENT.get(block.resident, _SEVERAL)
                clusters = at_once if block.slabs > 1 else 0
                yield Slabs(
                    nest.kept, nest.positions, nest.channels, nest.group, across, cluster, share, block.chunk,
                    block.threads, clusters, block.bytes, waits * fills * busy * lines * read,
                )  # fmt: skip


def slabs(kept: tuple[Loop, ...], reduced: tuple[Loop, ...], element: int, gpu: Gpu) -> Slabs | None:
    """What is predicted to be fastest of a normalisation with these loops over elements of `element` bytes, outermost
    first; None where loads of `LANES` would not be aligned, or no slab has whole groups."""
    nest = _nest(kept, reduced)
    return None if nest is None else max(_shapes(nest, element, gpu), key=lambda each: each.bandwidth, default=None)
