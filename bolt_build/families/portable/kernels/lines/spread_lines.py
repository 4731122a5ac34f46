"""How a GPU takes softmax over long lines of neighbours: each in shared memory of a block or of a cluster, so that it
is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS, _LEAST = 16, 2048
"""Bytes of a word, and elements of the shortest line: shorter ones lie in registers."""
_THREADS, _CLUSTERS = (256, 512, 1024), (1, 2, 4, 8)
"""Threads of a block, and blocks of a cluster."""
_KIB = 1024


@dataclass(frozen=True)
class SpreadTile(NumberTile):
    """A line has `cluster` blocks of so many `threads`, each of which keeps `holds` KiB of it."""

    threads: int
    cluster: int
    holds: int


def _words(of: Lines, cluster: int) -> int:
    """Of a block's part of a line, which may begin within one."""
    lanes = _ACCESS // of.read
    return ceil((of.count + 2 * lanes - 2) // lanes / cluster)


def _wanted(of: Lines, cluster: int) -> int:
    """KiB of a block's part."""
    return ceil(_ACCESS * _words(of, cluster) / _KIB)


def _most(gpu: Gpu) -> int:
    """KiB of a block, beside what its threads tell each other."""
    return gpu.shared_memory // _KIB - 1


def _tiles(of: Lines, gpu: Gpu) -> Iterator[SpreadTile]:
    for threads in _THREADS:
        for cluster in _CLUSTERS:
            yield SpreadTile(threads, cluster, min(_wanted(of, cluster), _most(gpu)))


def _refuse_tile(tile: SpreadTile, of: Lines, gpu: Gpu) -> str | None:
    if tile.threads not in _THREADS or tile.cluster not in _CLUSTERS:
        return "there are blocks of 256, 512 or 1024 threads, in clusters of up to 8"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    if tile.cluster > 1 and (words := _words(of, tile.cluster)) < tile.threads:
        return Reason("{} words of each block's part are fewer than its {} threads", words, tile.threads)
    if tile.holds > _most(gpu):
        return Reason("keeps {} KiB of a line, a block has {}", tile.holds, _most(gpu))
    return None


_REACHED, _ALONE, _AGAIN, _REGISTERS = 0.85, 0.3, 0.6, 64
"""As an H200 took 16 kernels of three problems: the part of a GPU's bandwidth that is reached; the part of a block's
time in which it asks for nothing, which others of a multiprocessor fill; what a byte that is read again takes of one
from memory; and registers of a thread."""
_RATE, _ELEMENT, _THREAD = 0.8 * 128 * 1.7e9, 16, 60
"""Instructions that a multiprocessor's threads begin a second, those of an element in both passes, and those of a
thread beside its elements."""
_TOGETHER = 2
"""Blocks of a multiprocessor whose loads and instructions hide each other; those of one follow each other."""
_SINGLE, _WAITS, _MEETS = 60e9, 2.0e-6, 1.5e-6
"""Bytes a second that one multiprocessor moves; seconds from a block's first load to its last store beside that; and
those in which blocks of a cluster begin together and tell each other sums, in each wave of them."""


def _seconds(problem: KernelProblem, tile: SpreadTile, target: Target, of: Lines) -> float:
    gpu = target.gpu
    assert gpu is not None, "lines are a GPU's"
    blocks, shared = of.groups * tile.cluster, tile.holds * _KIB
    there = min(float(occupancy(tile.threads, _REGISTERS, shared, gpu)), blocks / gpu.sms)
    again = max(0.0, 1 - shared / (_ACCESS * _words(of, tile.cluster)))
    nbytes = problem.nbytes + _AGAIN * again * problem.inputs[0].nbytes
    memory = moved(nbytes, target) / (_REACHED * there / (there + _ALONE)) if there >= 1 else 0.0
    rounds = ceil(blocks / (gpu.sms * max(there, 1.0)))
    single = rounds * max(there, 1.0) * nbytes / blocks / _SINGLE
    issued = (of.elements * _ELEMENT + blocks * tile.threads * _THREAD) / (gpu.sms * _RATE * min(1.0, there))
    loads = max(memory, single)
    both = max(loads, issued) + (1 - min(1.0, there / _TOGETHER)) * min(loads, issued)
    meets = rounds * _MEETS if tile.cluster > 1 else 0.0
    return float(both + _WAITS + meets + OVERLAPPED * target.launch_seconds)


def spread(
    serves: Callable[[KernelProblem], bool],
    lines: Callable[[KernelProblem], Lines],
    emit: Callable[[KernelProblem, SpreadTile, StepExpressions], StepCode],
) -> Form[SpreadTile]:
    """The form of softmax and its logarithm."""
    return Form(
        "spread",
        lambda problem: serves(problem) and not lines(problem).are_columns and lines(problem).count >= _LEAST,
        lambda problem, gpu: None,
        lambda problem, gpu: _tiles(lines(problem), gpu),
        lambda problem, tile, gpu: _refuse_tile(tile, lines(problem), gpu),
        lambda problem, tile, target: _seconds(problem, tile, target, lines(problem)),
        SpreadTile.read,
        emit,
    )
