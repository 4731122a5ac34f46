"""How a GPU takes softmax over long lines that lie side by side, of which registers hold too little: in two passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.register_lines import MOST_ELEMENTS
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.targets import Gpu, Target

_THREADS, _ACROSS, _BLOCKS = (4, 8, 16, 32), (32, 64), (256, 512, 1024)
"""Threads of a line, lines of a block side by side, and threads of a block."""
_BATCH = 8
"""Elements that a thread asks for at once."""


@dataclass(frozen=True)
class TwiceTile(NumberTile):
    """A line has so many `threads`, and a block's threads so many lines `across` them."""

    threads: int
    across: int

    @property
    def block(self) -> int:
        return self.threads * self.across


def _tiles() -> Iterator[TwiceTile]:
    cuts = (TwiceTile(threads, across) for threads in _THREADS for across in _ACROSS)
    yield from (tile for tile in cuts if tile.block in _BLOCKS)


def _refuse_tile(tile: TwiceTile) -> str | None:
    if tile.threads not in _THREADS or tile.across not in _ACROSS or tile.block not in _BLOCKS:
        return "4 to 32 threads share a line, of 32 or 64 in blocks of 256 to 1024 threads"
    return None


_REACHED, _UNDER_WAY, _AGAIN, _WAIT, _REGISTERS = 0.6, 24 << 10, 0.5, 1.0e-6, 40
"""Guesses, for no GPU has timed these kernels: the part of a GPU's bandwidth that is reached where a
multiprocessor's threads ask for so many bytes at once; what a byte that is read again takes of one from memory, for L2
has some; seconds between an ask and the next one; and registers of a thread."""
_RATE, _ELEMENT = 0.8 * 128 * 1.7e9, 30
"""Instructions that a multiprocessor's threads begin a second, and those of an element in both passes."""


def _seconds(problem: KernelProblem, tile: TwiceTile, target: Target, of: Lines) -> float:
    gpu = target.gpu
    assert gpu is not None, "lines are a GPU's"
    blocks = ceil(of.groups * of.inner / tile.across)
    there = min(float(occupancy(tile.block, _REGISTERS, 8 * tile.block, gpu)), blocks / gpu.sms)
    asked = there * tile.block * _BATCH * of.read
    reached = _REACHED * min(1.0, asked / _UNDER_WAY)
    memory = moved(problem.nbytes + _AGAIN * problem.inputs[0].nbytes, target) / reached
    issued = of.elements * _ELEMENT / (gpu.sms * _RATE * min(1.0, there))
    turns = 2 * ceil(of.count / (tile.threads * _BATCH))
    return float(max(memory, issued, turns * _WAIT) + OVERLAPPED * target.launch_seconds)


def twice(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    emit: Callable[[KernelProblem, TwiceTile, StepExpressions], StepCode],
) -> Form[TwiceTile]:
    """The form of softmax and its logarithm."""
    return Form(
        "twice",
        lambda problem: serves(problem) and lines(problem).are_columns and lines(problem).count > MOST_ELEMENTS,
        lambda problem, gpu: None,
        lambda problem, gpu: _tiles(),
        lambda problem, tile, gpu: _refuse_tile(tile),
        lambda problem, tile, target: _seconds(problem, tile, target, lines(problem)),
        TwiceTile.read,
        emit,
    )


_CLUSTERS = (2, 4, 8)
"""Blocks that share lines."""
_SHARED, _MEETS, _CLUSTER = 1.35, 1.5e-6, 0.35e-6
"""What memory takes more than where blocks have lines of their own, as seven kernels of an H200 did; guesses at seconds
in which blocks of a cluster begin together and tell each other what they have, and for each step of its size, in powers
of two."""


@dataclass(frozen=True)
class SharedTwiceTile(NumberTile):
    """The same, where the `cluster` blocks of lines share their elements."""

    threads: int
    across: int
    cluster: int

    @property
    def of_block(self) -> TwiceTile:
        return TwiceTile(self.threads, self.across)


def _shared_tiles(of: Lines, gpu: Gpu) -> Iterator[SharedTwiceTile]:
    """Where blocks with lines of their own would leave half of the multiprocessors without any: else those were faster
    on an H200."""
    few = [tile for tile in _tiles() if 2 * ceil(of.groups * of.inner / tile.across) <= gpu.sms]
    yield from (SharedTwiceTile(tile.threads, tile.across, cluster) for tile in few for cluster in _CLUSTERS)


def _refuse_shared(tile: SharedTwiceTile) -> str | None:
    if tile.cluster not in _CLUSTERS:
        return "there are clusters of 2, 4 or 8 blocks"
    return _refuse_tile(tile.of_block)


def _shared_seconds(problem: KernelProblem, tile: SharedTwiceTile, target: Target, of: Lines) -> float:
    gpu, block = target.gpu, tile.of_block
    assert gpu is not None, "lines are a GPU's"
    blocks = ceil(of.groups * of.inner / tile.across) * tile.cluster
    resident = occupancy(block.block, _REGISTERS, 8 * block.block, gpu)
    there = min(float(resident), blocks / gpu.sms)
    reached = _REACHED * min(1.0, there * block.block * _BATCH * of.read / _UNDER_WAY)
    memory = _SHARED * moved(problem.nbytes + _AGAIN * problem.inputs[0].nbytes, target) / reached
    issued = of.elements * _ELEMENT / (gpu.sms * _RATE * min(1.0, there))
    turns = 2 * ceil(of.count / (tile.threads * tile.cluster * _BATCH))
    rounds = ceil(blocks / tile.cluster / clusters_at_once(tile.cluster, resident, gpu))
    met = rounds * (_MEETS + _CLUSTER * log2(tile.cluster))
    return float(max(memory, issued, turns * rounds * _WAIT) + met + OVERLAPPED * target.launch_seconds)


def shared_twice(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    emit: Callable[[KernelProblem, SharedTwiceTile, StepExpressions], StepCode],
) -> Form[SharedTwiceTile]:
    """The same in clusters of blocks."""
    return Form(
        "shared_twice",
        lambda problem: serves(problem) and lines(problem).are_columns and lines(problem).count > MOST_ELEMENTS,
        lambda problem, gpu: None if gpu.warpgroup_mma else "blocks form clusters from sm_90 on",
        lambda problem, gpu: _shared_tiles(lines(problem), gpu),
        lambda problem, tile, gpu: _refuse_shared(tile),
        lambda problem, tile, target: _shared_seconds(problem, tile, target, lines(problem)),
        SharedTwiceTile.read,
        emit,
    )
