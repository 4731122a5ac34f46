"""How a GPU pads axes that no whole access divides: through tiles of the output, where the sources of places along each
axis are found once for all elements of a thread."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cost import moved
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.kernels.elementwise.tile_threads import THREADS, numbers, seconds_of, threads_along
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.shape import Pad
from bolt_build.targets import Gpu, Target

_SIZES = (512, 1024, 2048, 4096, 8192)
"""Elements of a tile that are tried."""
_MOST_TURNS, _MOST_PLACES = 64, 40
"""Turns of a thread at most, each of which is code of its own; and places along all axes that its registers hold."""
_BLOCK, _PLACE, _ELEMENT, _RAGGED = 10, 7.5, 5.7, 4
"""Instructions of a thread for its tile, for where a place comes from, for an element, and for each axis that may end
within a tile: as kernels on an H200 behave."""
_REACHED, _TILE = 0.75, 1.5e-6
"""The part of the bandwidth at which tiles go, and seconds from a block's first load to its last store."""
_AGAIN = 1.6
"""How many times as long tiles take of what is repeated whole, as an H200 took planes of 29 by 29 four times."""
_ROWS = {"constant": 0.62, "reflect": 0.32, "edge": 0.36, "wrap": 0.32}
"""Part of the bandwidth that the plain kernel reaches by mode where rows are no whole accesses: an H200's, of a few
sizes; of the last mode a guess."""
_SHORT, _LONG = 0.7, 256
"""The part of that for rows of fewer elements, each of which is looked for anew."""
_WIDTHS = (4, 8)
"""Elements of a whole access of the plain kernel."""


@dataclass(frozen=True)
class PadAxis:
    """Extents of both tensors along an axis, and what stands in front."""

    given: int
    made: int
    begin: int

    @property
    def plain(self) -> bool:
        return self.given == self.made and self.begin == 0


@dataclass(frozen=True)
class PadTile:
    """So many elements along each axis, as few as there are."""

    cut: tuple[int, ...]

    @property
    def parameters(self) -> Named:
        return (("tile", "x".join(map(str, self.cut))),)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> PadTile:
        return PadTile(reader.numbers("tile"))


@functools.lru_cache(maxsize=256)
def pad_axes(problem: KernelProblem) -> tuple[PadAxis, ...]:
    """In the order of memory, outermost first. An axis is one with that inside of it where that is not padded, and it
    is not either, or has constants around it."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pad)
    found = list[PadAxis]()
    for axis in reversed(memory_axes(len(output.shape), output.format.layout)):
        own = PadAxis(source.shape[axis], output.shape[axis], op.begin[axis])
        if found and found[-1].plain and (own.plain or op.mode == "constant"):
            run = found[-1].made
            found[-1] = PadAxis(own.given * run, own.made * run, own.begin * run)
        else:
            found.append(own)
    return tuple(reversed(found))


def pads_whole(problem: KernelProblem) -> bool:
    """True where the plain kernel moves whole accesses."""
    assert isinstance(problem.op, Pad)
    inner = pad_axes(problem)[-1]
    width = _WIDTHS[0]
    runs = problem.op.mode == "constant" or inner.plain
    return runs and all(each % width == 0 for each in (inner.given, inner.made, inner.begin))


def pad_bandwidth(problem: KernelProblem) -> float:
    """Part of a GPU's bandwidth that the plain kernel reaches."""
    assert isinstance(problem.op, Pad)
    if pads_whole(problem):
        return 1.0
    return _ROWS[problem.op.mode] * (_SHORT if pad_axes(problem)[-1].made < _LONG else 1.0)


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    return "threads of the plain kernel have whole accesses" if pads_whole(problem) else None


def _parts(cut: tuple[int, ...]) -> tuple[int, ...]:
    """Turns along each axis of which a tile has several elements, the innermost first."""
    return threads_along(tuple(own for own in reversed(cut) if own > 1), 1)[1]


def _instructions(axes: tuple[PadAxis, ...], cut: tuple[int, ...]) -> float:
    """Of all threads for a tile."""
    parts = _parts(cut)
    ragged = sum(axis.made % own > 0 for axis, own in zip(axes, cut, strict=True))
    return THREADS * (_BLOCK + sum(parts) * _PLACE + prod(parts) * (_ELEMENT + _RAGGED * ragged))


def _tile(axes: tuple[PadAxis, ...], size: int) -> PadTile:
    """About so many elements of the innermost axes."""
    cut, left = [1] * len(axes), size
    for i in reversed(range(len(axes))):
        extent = axes[i].made
        parts = ceil(extent / max(left, 1))
        cut[i] = ceil(extent / parts)
        left = ceil(left / extent)
        if cut[i] < extent or left <= 1:
            break
    return PadTile(tuple(cut))


def tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PadTile]:
    yield from dict.fromkeys(_tile(pad_axes(problem), size) for size in _SIZES)


def refuse_tile(problem: KernelProblem, tile: PadTile, gpu: Gpu) -> str | None:
    """Why no kernel pads in such tiles, None where one does."""
    axes = pad_axes(problem)
    if len(axes) != len(tile.cut):
        return Reason("a tile states {} axes of {}", len(tile.cut), len(axes))
    if any(not 1 <= own <= axis.made for own, axis in zip(tile.cut, axes, strict=True)):
        return "a tile has at least one element of each axis, and at most all"
    if prod(tile.cut) < 2:
        return "a tile of one element is none"
    parts = _parts(tile.cut)
    if prod(parts) > _MOST_TURNS:
        return Reason("a thread would have {} turns, at most {} are code", prod(parts), _MOST_TURNS)
    if sum(parts) > _MOST_PLACES:
        return Reason("a thread would have {} places along its axes, at most {}", sum(parts), _MOST_PLACES)
    return None


def seconds(problem: KernelProblem, tile: PadTile, target: Target) -> float:
    """What the bytes take, or what the instructions do, if that is longer."""
    axes = pad_axes(problem)
    blocks = prod(ceil(axis.made / own) for axis, own in zip(axes, tile.cut, strict=True))
    memory = moved(problem.nbytes, target) / _REACHED
    again = any(axis.made > 2 * axis.given - 1 for axis in axes)
    return seconds_of(memory, _instructions(axes, tile.cut), blocks, _TILE, target) * (_AGAIN if again else 1.0)


def emit_tiled_pad(problem: KernelProblem, tile: PadTile, at: StepExpressions, dtype: str, value: str) -> StepCode:
    """`value` of the C++ type stands around the elements."""
    op, axes = problem.op, pad_axes(problem)
    assert isinstance(op, Pad)
    inside = [prod(axis.made for axis in axes[place + 1 :]) if own > 1 else 0 for place, own in enumerate(tile.cut)]
    ragged = sum(1 << i for i, (axis, own) in enumerate(zip(axes, tile.cut, strict=True)) if axis.made % own)
    cut, steps, apart = map(numbers, (tile.cut, inside, [1] * len(axes)))
    parameters = struct(
        "bolt::portable::Pad",
        rank=len(axes),
        **{"in": braces(axis.given for axis in axes)},
        out=braces(axis.made for axis in axes),
        begin=braces(axis.begin for axis in axes),
    )
    how = f"bolt::portable::PadTile<{cut}, {ragged}u, {steps}, {apart}>, bolt::portable::PadMode::{op.mode}, {dtype}"
    call = f"bolt::portable::tiled_pad<{how}>(r, {parameters}, {value}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/cuda/moves/tiled_pad.h",), None, "", call)
