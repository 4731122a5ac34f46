"""Bytes that a step moves at least. Memory brings sectors of 64 bytes: one of which some elements are read comes whole,
one of which none are does not. They are pairs of the sectors of 32 bytes that caches have: an H200 brings both, unless
its limit (cudaLimitMaxL2FetchGranularity) is set lower, and takes as long for one word of each 64 bytes as for all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from bolt_build.families.base import KernelProblem, memory_axes
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Slice

SECTOR = 64

Places = np.ndarray[Any, np.dtype[np.int64]]


def moved_bytes(problem: KernelProblem) -> int:
    """What the problem's kernel reads, in sectors where parts of rows are left out, and what it writes. What is in no
    sector that is read counts nothing: rows that are left out, for example."""
    data, *others = problem.inputs
    made = sum(operand.nbytes for operand in problem.outputs)
    rest = made + sum(operand.nbytes for operand in others)
    if isinstance(problem.op, Gather):
        return rest + _named_bytes(problem)
    places = _places(problem)
    if places is None:
        return problem.nbytes
    order = memory_axes(len(data.shape), data.format.layout)
    shape, taken = [data.shape[axis] for axis in order], [places.get(axis) for axis in order]
    return rest + min(SECTOR * sectors(shape, taken, data.format.dtype.nbytes), data.nbytes)


def _places(problem: KernelProblem) -> dict[int, Places] | None:
    """The places along each axis of the first input that are read, of those that are not all; None where the problem
    does not say."""
    op, data = problem.op, problem.inputs[0]
    if isinstance(op, Slice):
        each = zip(op.begin, op.count, op.step, strict=True)
        return {axis: np.unique(begin + step * np.arange(count)) for axis, (begin, count, step) in enumerate(each)}
    if isinstance(op, Resample):
        tables = zip(op.axes, problem.inputs[2::2], strict=True)
        return {axis: _resampled(data.shape[axis], *weights.shape) for axis, weights in tables}
    return None


def _resampled(extent: int, made: int, taps: int) -> Places:
    """Places of an axis of which results are made. Tables say where each result's neighbours are, and a problem has no
    tables: they lie as centres of pixels do."""
    centres = (np.arange(made) + 0.5) * extent / made - 0.5
    first = np.ceil(centres - taps / 2).astype(np.int64)
    return np.unique(np.clip(first[:, None] + np.arange(taps), 0, extent - 1))


def _named_bytes(problem: KernelProblem) -> int:
    """What indices name that are known when it runs: of each the sectors of its slice, wherever that begins, and no
    more than there are."""
    op, data, indices = problem.op, problem.inputs[0], problem.inputs[1]
    assert isinstance(op, Gather)
    order = memory_axes(len(data.shape), data.format.layout)
    at = order.index(op.axis)
    outer, extent = (prod(data.shape[axis] for axis in axes) for axes in (order[:at], order[at : at + 1]))
    nbytes = data.nbytes // max(outer * extent, 1)
    starts = nbytes * np.arange(extent)
    mean = float(np.mean((starts + nbytes - 1) // SECTOR - starts // SECTOR + 1)) if data.nbytes else 0.0
    return min(round(outer * indices.type.elements * mean * SECTOR), data.nbytes)


def sectors(shape: Sequence[int], places: Sequence[Places | None], nbytes: int) -> int:
    """Sectors of a dense tensor of `shape`, outermost axis first, in which some element of `nbytes` bytes is at one of
    the `places` of each axis, which ascend (None: at all of them)."""
    extents, taken = list(shape), list(places)
    if 0 in extents or any(each is not None and not len(each) for each in taken):
        return 0
    while extents and (taken[-1] is None or len(taken[-1]) == extents[-1]):
        nbytes *= extents.pop()
        taken.pop()
    if not extents:
        return -(-nbytes // SECTOR)
    own, pitch = taken.pop(), extents.pop() * nbytes
    assert own is not None
    starts = np.zeros(1, np.int64)
    for extent, each in zip(extents, taken, strict=True):
        starts = (starts[:, None] * extent + (np.arange(extent) if each is None else each)).ravel()
    starts *= pitch
    # Rows that begin alike have as many.
    skews, kinds = np.unique(starts % SECTOR, return_inverse=True)
    first = (skews[:, None] + own * nbytes) // SECTOR
    last = (skews[:, None] + own * nbytes + nbytes - 1) // SECTOR
    fresh = np.maximum(first[:, 1:], last[:, :-1] + 1)
    counts = last[:, 0] - first[:, 0] + 1 + np.maximum(last[:, 1:] - fresh + 1, 0).sum(1)
    # The last sector of a row may be the first of the next one.
    ends = (starts + own[-1] * nbytes + nbytes - 1) // SECTOR
    shared = ((starts + own[0] * nbytes) // SECTOR)[1:] == ends[:-1]
    return int(counts[kinds].sum() - shared.sum())
