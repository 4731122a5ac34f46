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
    """What a block of a kind's kernels computes."""

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


_BEGIN = 1.45e-6
"""Seconds that a block takes until its first keys are there, and from its last product to its end."""
_STEP = 0.23e-6
"""Seconds of a step of keys in which warps wait for copies, for each other and for what they have just computed."""
_ALONE = 0.34
"""Part of the time of a step that warps without any others beside them take for what they compute."""
_L2 = 1.75
"""Bandwidth of the L2 cache, in that of the memory: of keys and values, which every block of a head reads again."""
_POWERS = 16
"""Powers of two that a multiprocessor computes a clock."""
OPERATIONS = 6
"""Instructions for each score beside its power: scaling, the largest one, the sum, and rounding to half precision."""
_HIDDEN = 0.5
"""Part of the time of these, and of reads from shared memory, that passes while nothing else is computed."""


_MASKED = 1.5
"""Elements of masks that a multiprocessor loads a clock: a load has two neighbours of each of eight rows, wherever they
lie. Fitted to 76 steps of six networks on an H200, where that was most of their time."""


@dataclass(frozen=True)
class Load:
    """What a block asks of a multiprocessor: threads, registers of each, bytes of shared memory; of a step of keys how
    many powers are computed by the function, other instructions of the softmax, the operations of both products, bytes
    that they read from shared memory, bytes of keys, values and masks, and elements of masks."""

    threads: int
    registers: int
    shared: int
    powers: int
    others: int
    flops: int
    read: int
    copied: float
    masked: float


def beside(load: Load, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds at once."""
    return blocks.beside(load.threads, load.registers, load.shared, gpu)


@dataclass(frozen=True)
class Steps:
    """Steps of keys that blocks take, on average and at most."""

    mean: float
    most: int


def seconds_of(
    shape: Shape, load: Load, blocks: int, steps: Steps, share: float, reached: float, target: Target
) -> float:
    """Predicted time of `blocks` blocks of `steps`, whose instructions have `share` of the peak rate and which reach
    `reached` of what the multiprocessor can do: what memory takes, what L2 takes, what the busiest multiprocessor
    computes, how long blocks in turn wait, of which the longest counts most; and a launch.

    Products and powers of a multiprocessor hardly overlap in these kernels. Constants were fitted to the times of some
    2,100 kernels for nine shapes on an H200; of other GPUs they are guesses."""
    gpu = gpu_of(target)
    # Multiprocessors of a data centre's GPUs before Hopper have half as many lanes.
    lanes = 64 if gpu.sm in (75, 80) else 128
    clock = target.rate("fp32") / (2 * lanes * gpu.sms)
    products = load.flops / (target.rate("fp16") * share / gpu.sms)
    powers = load.powers / (_POWERS * clock)
    others = load.others / (lanes * clock), load.read / (128 * clock)
    step = (products + powers + _HIDDEN * sum(others)) / reached + load.masked / (_MASKED * clock)
    busiest, resident = ceil(blocks / gpu.sms), beside(load, gpu)
    # A warp does one after the other, and has a quarter of the multiprocessor.
    alone = (products + powers + sum(others)) * max(1.0, 4 * 32 / load.threads) * _ALONE
    waits = ceil(busiest / resident) * (_BEGIN + steps.mean * (_STEP + alone)) + (steps.most - steps.mean) * (
        _STEP + alone
    )
    copies = blocks * steps.mean * load.copied / (_L2 * target.bandwidth)
    return _norm((shape.nbytes / target.bandwidth, copies, busiest * steps.mean * step, waits)) + target.launch_seconds


def _norm(seconds: tuple[float, ...]) -> float:
    """About the longest, and a little more where others are nearly as long: what overlaps does so in part."""
    longest = max(seconds)
    return float(longest * sum((each / longest) ** 3 for each in seconds) ** (1 / 3))
