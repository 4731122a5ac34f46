"""What a block of a kernel needs beside what a GPU has."""

from __future__ import annotations

from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu

_BLOCKS, _THREADS = 32, 2048
"""Of a multiprocessor at once, at most."""
_SCHEDULERS = 4
"""Of a multiprocessor, each of which has as many of its registers and every so-manieth warp of a block."""
_RESERVED = 1024
"""Bytes of shared memory that each block costs beside its own."""


def occupancy(threads: int, registers: int, shared: int, gpu: Gpu) -> int:
    """Blocks that a multiprocessor holds at once, one at least: of so many threads, with so many registers each, and
    `shared` bytes of shared memory."""
    room = (
        _BLOCKS, _THREADS // threads, gpu.registers // (registers * threads),
        (gpu.shared_memory + _RESERVED) // (shared + _RESERVED),
    )  # fmt: skip
    return max(1, min(room))


def refuse_shared(nbytes: int, gpu: Gpu) -> str | None:
    """Why no block has so many bytes of shared memory, None where one has."""
    if nbytes > gpu.shared_memory:
        return Reason("takes {} bytes of shared memory, a block has {}", nbytes, gpu.shared_memory)
    return None


def refuse_threads(threads: int, least: int, most: int) -> str | None:
    """Why there are no blocks of so many threads, None where there are."""
    if not least <= threads <= most:
        return Reason("blocks have {} to {} threads, not {}", least, most, threads)
    return None


def refuse_held(registers: int, most: int, threads: int, gpu: Gpu) -> str | None:
    """Why the threads of a block do not hold weights and sums in so many registers, None where they do; `most` is what
    a kind's threads have, whatever the GPU."""
    together = 32 * _SCHEDULERS
    if registers > min(most, gpu.registers // (-(-threads // together) * together)):
        what = "weights and sums take {} registers of a thread, {} threads have not as many"
        return Reason(what, registers, threads)
    return None
