"""What the family asks of a kind of kernels, and what kinds share: candidates are a tile and a run of tiles a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Protocol, TypeVar

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, Refusal, StepExpressions
from bolt_build.families.common import blocks, stated
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.grouped.shape import Shape
from bolt_build.targets import Gpu, Target

FAMILY = "grouped"
RUNS = (1, 2, 4, 8, 16)
"""Tiles that a block may compute one behind the other."""
_USUAL = 2
"""The run by which tiles are compared before each has its best."""
_MOST = 24
"""So many candidates of a kind are offered: those that are predicted to be fastest."""


@dataclass(frozen=True)
class Offer:
    """A kernel for a problem, and its predicted seconds."""

    seconds: float
    candidate: Candidate


@dataclass(frozen=True)
class Sums:
    """Sums that tiles leave beside their results: `rows` of them an image, and the `shared` memory of a block in bytes.

    Where blocks add them up themselves, an image has `tiles`, each a sum in the end; images of a block and parts of
    channels have one of `counters`; and a block takes `kept` bytes.
    """

    rows: int
    shared: int
    tiles: int
    counters: int
    kept: int

    @classmethod
    def of_tiles(cls, tiles: int, counters: int, shared: int) -> Sums:
        """A row a tile, in shared memory all the while."""
        return cls(tiles, shared, tiles, counters, shared)


class Tile(Protocol):
    """What a block of a kind's kernels computes at a time. `halves` are the types that they compute in."""

    halves: ClassVar[tuple[DType, ...]]

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    def blocks(self, shape: Shape, run: int) -> int:
        """Blocks that compute `run` tiles each."""
        ...

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes the problem on this GPU, None where one does."""
        ...

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        """Predicted time."""
        ...

    def sums(self, shape: Shape) -> Sums | None:
        """How its kernels also leave sums of each tile's results; None where they do not."""
        ...

    def flops(self, shape: Shape) -> int:
        """Operations, those on padding included."""
        ...

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        """How the kernel wants weights packed, as C++, and the number of biases that it reads."""
        ...

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """The C++ type."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of kernels: its C++ header, the problems it is for, its tiles for one, and how candidates state them.

    `read` raises ValueError for parameters that no kernel of the kind has. `declared` are headers that plans include
    beside those of all kinds."""

    header: str
    serves: Callable[[Shape], bool]
    tiles: Callable[[Shape], Iterable[Tile]]
    read: Callable[[Reader], Tile]
    declared: tuple[str, ...] = ()

    def tile_of(self, candidate: Candidate) -> Tile | None:
        """The tile that a candidate of this kind states, None for one of another kind."""
        return stated.tile_if_any(candidate, self.read)

    def offers(self, shape: Shape, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
        """The fastest tiles by prediction, each with its best run; and why others are none, each reason once."""
        legal, reasons = list[tuple[float, Tile]](), dict[str, Refusal]()
        gpu = gpu_of(target)
        for tile in self.tiles(shape):
            if (reason := tile.refuse(shape, gpu) or refuse_half(tile.halves, shape.dtype)) is None:
                legal.append((tile.seconds(shape, target, _USUAL), tile))
            else:
                reasons.setdefault(reason, Refusal(FAMILY, f"tile {tile}", reason))
        legal.sort(key=lambda each: each[0])
        found = []
        for _, tile in legal[: 2 * _MOST]:
            seconds, run = min((tile.seconds(shape, target, run), run) for run in runs(tile, shape))
            found.append(Offer(seconds, candidate_of(tile, run)))
        found.sort(key=lambda offer: (offer.seconds, str(offer.candidate)))
        return tuple(found[:_MOST]), tuple(reasons.values())

    def refuse(self, shape: Shape, candidate: Candidate, target: Target) -> str | None:
        """`Family.refuse`, for a candidate that the kind reads."""
        tile = self.tile_of(candidate)
        if tile is None or tile not in self.tiles(shape):
            return f"{candidate} is none of its candidates"
        if all(candidate != candidate_of(tile, run) for run in runs(tile, shape)):
            return f"{candidate} has settings that it cannot have here, or lacks some"
        gpu = gpu_of(target)
        return tile.refuse(shape, gpu) or refuse_half(tile.halves, shape.dtype)


T = TypeVar("T", bound=Tile)


READS_APART = (0,)
"""All kinds copy the halo of a tile from pixels that may lie apart: `ProposedStep.reads_apart`."""


def between_rows(at: StepExpressions) -> dict[str, int]:
    """The arguments of a convolution whose input, or result, has rows that lie apart: none where they are dense."""
    return {name: pitch for name, pitch in (("y_row", at.pitch(0)), ("x_row", at.input_pitch(0))) if pitch}


def gpu_of(target: Target) -> Gpu:
    """The row of the target's GPU."""
    assert target.gpu is not None, "kinds are asked about GPUs alone"
    return target.gpu


def runs(tile: Tile, shape: Shape) -> tuple[int, ...]:
    """The runs that a tile may have: no longer than twice all tiles there are."""
    return tuple(run for run in RUNS if run == 1 or tile.blocks(shape, run) < tile.blocks(shape, run // 2))


def candidate_of(tile: Tile, run: int) -> Candidate:
    """The kernel with a run."""
    return Candidate(FAMILY, tile.parameters, (("run", run),))


def run_of(candidate: Candidate) -> int:
    """The run that a candidate states. Raises ValueError where it states none."""
    reader = Reader(candidate.settings)
    if not reader.has("run"):
        raise ValueError(f"{candidate} states not all of its settings")
    run = reader.number("run")
    reader.end()
    return run


_BEGIN = 0.2e-6
"""Seconds that a block takes until its first tile's halo and its weights are there, beside a launch."""
_TILE = 0.8e-6
"""Seconds from a tile's first copy to its last store where nothing else keeps the multiprocessor busy. Fitted to 249
times of an H200."""
_L2 = 2.0
"""Bandwidth of the L2 cache, in that of the memory."""


@dataclass(frozen=True)
class Load:
    """What a tile asks of a multiprocessor: threads, registers of each, bytes of shared memory and bytes that are read
    into it; `busy` are the multiprocessor's seconds of instructions a tile."""

    threads: int
    registers: int
    shared: int
    read: int
    busy: float


def occupancy(load: Load, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds at once."""
    return blocks.occupancy(load.threads, load.registers, load.shared, gpu)


def seconds_of(shape: Shape, load: Load, blocks: int, run: int, target: Target) -> float:
    """Predicted time of `blocks` blocks of `run` tiles: what memory takes, what halos take from L2, what the busiest
    multiprocessor computes, and how long blocks in turn wait for their own loads, of which the longest counts most;
    and a launch."""
    gpu = gpu_of(target)
    busiest = ceil(blocks / gpu.sms)
    waits = ceil(busiest / occupancy(load, gpu)) * (_BEGIN + run * _TILE)
    return limited_by(shape, replace(load, read=load.read * run), blocks, busiest * run * load.busy, target, waits)


def limited_by(
    shape: Shape, load: Load, blocks: int, computed: float, target: Target, waits: float = _BEGIN, launch: float = 1.0
) -> float:
    """Predicted time of `blocks` blocks that compute for `computed` seconds and wait for `waits`, each of which reads
    `load.read` bytes; and the part `launch` of a launch."""
    gpu = gpu_of(target)
    memory = shape.nbytes / target.bandwidth
    halos = (load.read * blocks + shape.nbytes - shape.input_bytes) / (_L2 * target.bandwidth)
    # The last blocks have the memory to themselves, but not all multiprocessors ask it for something.
    busiest = ceil(blocks / gpu.sms)
    uneven = 1 + 0.5 * (busiest * gpu.sms / blocks - 1) if blocks > gpu.sms else 1 + 0.25 * (gpu.sms / blocks - 1)
    return norm((memory * min(uneven, 2.0), halos, computed, waits)) + launch * target.launch_seconds


def norm(seconds: tuple[float, ...]) -> float:
    """About the longest, and a little more where others are nearly as long: what overlaps does so in part."""
    longest = max(seconds)
    return float(longest * sum((each / longest) ** 3 for each in seconds) ** (1 / 3))
