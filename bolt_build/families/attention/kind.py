"""What the family asks of a kind of kernels, and what kinds share: a candidate is a tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from bolt_build.families.attention.shape import Shape
from bolt_build.families.base import Candidate, Refusal
from bolt_build.families.common import blocks, stated
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.targets import Gpu, Target

FAMILY = "attention"
_MOST = 16
"""So many candidates of a kind are offered: those that are predicted to be fastest."""


@dataclass(frozen=True)
class Offer:
    """A kernel for a problem, and its predicted seconds."""

    seconds: float
    candidate: Candidate


class Tile(Protocol):
    """What a block of a kind's kernels computes, in steps of `keys`."""

    @property
    def keys(self) -> int: ...

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes the problem on this GPU, None where one does."""
        ...

    def seconds(self, shape: Shape, target: Target) -> float:
        """Predicted time."""
        ...

    def flops(self, shape: Shape) -> int:
        """Operations of both products, those on padding included."""
        ...

    def cxx(self, shape: Shape) -> str:
        """The C++ type."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of kernels: its C++ header, the GPUs that run it (a reason against one, or None), its tiles for a problem,
    and how candidates state them.

    `read` raises ValueError for parameters that no kernel of the kind has."""

    header: str
    serves: Callable[[Shape, Gpu], str | None]
    tiles: Callable[[Shape], Iterable[Tile]]
    read: Callable[[Reader], Tile]

    def tile_of(self, candidate: Candidate) -> Tile | None:
        """The tile that a candidate of this kind states, None for one of another kind."""
        return stated.tile_if_any(candidate, self.read)

    def offers(self, shape: Shape, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
        """The fastest tiles by prediction; and why others are none, each reason once."""
        gpu = gpu_of(target)
        if (reason := self.serves(shape, gpu)) is not None:
            return (), (Refusal(FAMILY, f"{self.header} kernels", reason),)
        found, reasons = list[Offer](), dict[str, Refusal]()
        for tile in self.tiles(shape):
            if (reason := tile.refuse(shape, gpu)) is None:
                found.append(Offer(tile.seconds(shape, target), candidate_of(tile)))
            else:
                reasons.setdefault(reason, Refusal(FAMILY, f"tile {tile}", reason))
        found.sort(key=lambda offer: (offer.seconds, str(offer.candidate)))
        return tuple(found[:_MOST]), tuple(reasons.values())

    def refuse(self, shape: Shape, candidate: Candidate, target: Target) -> str | None:
        """`Family.refuse`, for a candidate that the kind reads."""
        tile = self.tile_of(candidate)
        if tile is None or candidate.settings or tile not in self.tiles(shape):
            return f"{candidate} is none of its candidates"
        gpu = gpu_of(target)
        return self.serves(shape, gpu) or tile.refuse(shape, gpu)


def gpu_of(target: Target) -> Gpu:
    """The row of the target's GPU."""
    assert target.gpu is not None, "kinds are asked about GPUs alone"
    return target.gpu


def candidate_of(tile: Tile) -> Candidate:
    """The kernel with a tile."""
    return Candidate(FAMILY, tile.parameters)


_WAIT = 0.6e-6
"""Seconds that a step waits for its keys where they are asked for behind the last product of the step before, and no$
other block computes meanwhile."""
_MEMORY = 0.72
"""Part of the memory's bandwidth that is reached."""
L2 = 1.2
"""Bandwidth of the L2 cache, in that of the memory: of keys and values, which every block of a head reads again."""
POWERS = 16
"""Powers of two that a multiprocessor computes a clock."""
OPERATIONS = 6
"""Instructions for each score beside its power: scaling, the largest one, the sum, and rounding to half precision."""
CAPPED = 3
"""More of them where scores have a cap: a product, a sum and what is left of 1."""
POLYNOMIAL = 29
"""Instructions that count for a power that is a polynomial: no shape on an H200 gained from those."""
_HIDDEN = 0.29
"""Part of the time of these, and of reads from shared memory, that passes while nothing else is computed."""

_IN_ORDER = 20.0
"""Elements of masks that a multiprocessor loads a clock where a lane's lie beside each other. By reckoning; those that
follow were fitted."""
DISTANCES = 40.0
"""Where they are two for each distance. Reckoned first; seven shapes on an H200 agree with it."""
_SHARED_ROW = 16.0
"""Where queries share them."""
_LINES, _ODD_LINES, _SHARED_LINES = 12.8, 5.0, 3.2
"""Where lines of memory are copied first: rows of whole sixteen bytes, others, and those that several images read.
Fitted to an H200's times of 14 masks."""
_EIGHT_ROWS = 1.2
"""Where a load has two neighbours of each of eight rows, wherever they lie."""


@dataclass(frozen=True)
class Pace:
    """Constants of a kind: seconds that a block takes until its first keys are there, and from its last product to its
    end (`begin`); seconds of a step in which warps wait for copies, for each other and for what they have just computed
    (`step`); the part of the time of a step that warps without any others beside them take for what they compute
    (`alone`); and the part that is `reached` of what a multiprocessor can do, products and powers one by one."""

    begin: float
    step: float
    alone: float
    reached: float


WARPS = Pace(1.55e-6, 0.49e-6, 1.03, 0.71)
WARPGROUPS = Pace(1.0e-6, 0.82e-6, 0.51, 1.13)


@dataclass(frozen=True)
class Load:
    """What a block asks of a multiprocessor: threads, registers of each, bytes of shared memory; of a step of keys how
    many powers are computed by the function, other instructions of the softmax, the operations of both products, bytes
    that they read from shared memory, bytes of keys, values and masks, and clocks of loads of masks. `waits`: a step's
    keys are not asked for before those of the step in front are used."""

    threads: int
    registers: int
    shared: int
    powers: float
    others: float
    flops: int
    read: int
    copied: float
    masked: float
    waits: bool = False


def powers_of(shape: Shape, scores: float) -> float:
    """Functions that the special function unit computes for scores: a power each; where they have a cap, a power and a
    reciprocal more."""
    return 3 * scores if shape.capped else scores


def others_of(shape: Shape, scores: int) -> int:
    """Instructions for scores beside these."""
    return (OPERATIONS + (CAPPED if shape.capped else 0)) * scores


def occupancy(load: Load, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds at once."""
    return blocks.occupancy(load.threads, load.registers, load.shared, gpu)


def registers_beside(warpgroups: int, blocks: int) -> int:
    """Registers of each thread of so many warpgroups where a multiprocessor holds `blocks` at once."""
    return 65536 // (128 * warpgroups * blocks) // 8 * 8


@dataclass(frozen=True)
class Steps:
    """Steps of keys that blocks take, on average and at most."""

    mean: float
    most: int


def mask_clocks(shape: Shape, scores: int, copies: bool = False) -> float:
    """Clocks in which a multiprocessor loads what a step's scores begin with; `copies`: through shared memory where
    queries have rows of their own."""
    if not shape.mask:
        return 0.0
    if shape.prepared:
        return (2 if shape.twice else 1) * scores / _IN_ORDER
    if not shape.by_query:
        return scores / _SHARED_ROW
    if shape.relative:
        return scores / DISTANCES
    if not copies:
        return scores / _EIGHT_ROWS
    if shape.batch > shape.masks:
        return scores / _SHARED_LINES
    return scores / (_ODD_LINES if shape.keys * shape.mask_size % 16 else _LINES)


def seconds_of(shape: Shape, load: Load, blocks: int, steps: Steps, share: float, pace: Pace, target: Target) -> float:
    """Predicted time of `blocks` blocks of `steps` whose instructions have `share` of the peak rate: what memory takes,
    what L2 takes, what the busiest multiprocessor computes, how long blocks in turn wait, of which the longest counts
    most; and a launch.

    Products and powers of a multiprocessor hardly overlap in these kernels. Constants were fitted to the times of some
    950 kernels for 50 shapes on an H200; of other GPUs they are guesses."""
    gpu = gpu_of(target)
    # Multiprocessors of a data centre's GPUs before Hopper have half as many lanes.
    lanes = 64 if gpu.sm in (75, 80) else 128
    clock = target.rate("fp32") / (2 * lanes * gpu.sms)
    products = load.flops / (target.rate("fp16") * share / gpu.sms)
    powers, masked = load.powers / (POWERS * clock), load.masked / clock
    others = load.others / (lanes * clock) + load.read / (128 * clock)
    step = (products + powers + _HIDDEN * others) / pace.reached + masked
    busiest, resident = ceil(blocks / gpu.sms), occupancy(load, gpu)
    # A warp does one after the other, and has a quarter of the multiprocessor.
    alone = (products + powers + others) * max(1.0, 4 * 32 / load.threads) * pace.alone
    chain = pace.step + alone + masked / 2
    waits = ceil(busiest / resident) * (pace.begin + steps.mean * chain) + (steps.most - steps.mean) * chain
    if load.waits and busiest < resident:
        waits += (steps.most - 1) * _WAIT
    copies = blocks * steps.mean * load.copied / (L2 * target.bandwidth)
    return norm((moved(shape, target), copies, busiest * steps.mean * step, waits)) + target.launch_seconds


def moved(shape: Shape, target: Target) -> float:
    """Seconds that memory takes for what must move once."""
    return shape.nbytes / (_MEMORY * target.bandwidth)


def norm(seconds: tuple[float, ...]) -> float:
    """About the longest, and a little more where others are nearly as long: what overlaps does so in part."""
    longest = max(seconds)
    return float(longest * sum((each / longest) ** 3 for each in seconds) ** (1 / 3))
