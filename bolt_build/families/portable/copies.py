"""A movement of elements as loops, and how fast a GPU goes through them."""

from __future__ import annotations

from math import ceil, prod

from bolt_build.families.base import KernelProblem, Operand, memory_axes
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.graph.ops.expand import Expand
from bolt_build.graph.ops.rearrange import Rearrange, axes_of
from bolt_build.graph.ops.shape import Slice, Transpose

_BLOCKS, _TRANSPOSED, _SCATTERED = 0.95, 0.35, 0.15
"""Parts of a GPU's bandwidth that elements of half precision reach where threads turn blocks of them in registers, in
tiles of shared memory, and one by one."""
_TURNED, _STAGED, _APART = 0.25e-6, 0.9e-6, 1.0e-6
"""Seconds in which elements are turned in registers, in which they go through shared memory, and in which they come one
by one. Fitted, as the parts are, to 150 times of an H200."""
_LAUNCH, _TOGETHER = 0.9e-6, 32
"""Seconds of a further launch of a concatenation, and parts that one launch copies (`ConcatCopies`)."""
_TILE, _BLOCK, _RUN, _LINE = 8, 4, 8, 128
"""From how many columns on there are tiles; what extents are multiples of where there are blocks; elements of a run
below which threads copy one by one, and of one that is in no whole blocks."""


def copy_bandwidth(problem: KernelProblem) -> float:
    """What a copy reaches: all of it along rows, less where they become columns."""
    return _reached(problem)[0]


def copy_latency(problem: KernelProblem) -> float:
    return _reached(problem)[1]


def concat_latency(problem: KernelProblem) -> float:
    return _LAUNCH * (ceil(len(problem.inputs) / _TOGETHER) - 1)


def _reached(problem: KernelProblem) -> tuple[float, float]:
    """Part of the bandwidth, and seconds beside it."""
    loops, _ = copy_loops(problem)
    inner = loops[-1]
    if inner.steps[0] in (0, 1):
        short = isinstance(problem.op, Rearrange) and inner.extent < _RUN
        broken = len(loops) > 1 and inner.extent % _BLOCK > 0 and inner.extent < _LINE
        return (_SCATTERED if short or broken else 1.0), 0.0
    # The loop whose elements are neighbours in the input; a short one only if it is the next.
    turned = next((loop for loop in reversed(loops[:-1]) if loop.steps[0] == 1), None)
    if turned is not None and turned is not loops[-2] and turned.extent < _TILE:
        turned = None
    extents = (inner.extent, inner.extent if turned is None else turned.extent)
    # Of few columns the kernel takes whole pixels, so that only the other side counts.
    few = min(extents) <= _BLOCK and max(extents) % _BLOCK == 0
    if turned is not None and (few or all(extent % _BLOCK == 0 for extent in extents)):
        reached, latency = _BLOCKS, _TURNED
    else:
        reached = _SCATTERED if inner.steps[0] < _TILE or turned is None else _TRANSPOSED
        latency = _STAGED if turned is not None else _APART
    # Elements take as long in fp32 as in half precision, so more bytes are a larger part.
    width = problem.nbytes / max(problem.outputs[0].type.elements, 1)
    return min(1.0, reached * width / 4), latency


def copy_loops(problem: KernelProblem, given: int = 0, pitch: int = 0) -> tuple[tuple[Loop, ...], int]:
    """Loops of a copy with the steps of input and output, and the input's offset. Rows of the input lie `given`
    elements apart, those of the output `pitch` (0: dense)."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    steps, offset, to = strides(source, given), 0, strides(output, pitch)
    if isinstance(op, Rearrange):
        return _rearranged_loops(op, source, output, steps, to)
    if isinstance(op, Expand):
        rank = len(output.shape)
        shape = aligned(source.shape, rank)
        steps = tuple(0 if n == 1 else step for n, step in zip(shape, (0,) * (rank - len(steps)) + steps, strict=True))
    elif isinstance(op, Transpose):
        steps = tuple(steps[axis] for axis in op.perm)
    elif isinstance(op, Slice):
        offset = sum(begin * step for begin, step in zip(op.begin, steps, strict=True))
        steps = tuple(step * by for step, by in zip(steps, op.step, strict=True))
    order = memory_axes(len(output.shape), output.format.layout)
    return merged((Loop(output.shape[axis], (steps[axis], to[axis])) for axis in order), 2), offset


def _rearranged_loops(
    op: Rearrange, source: Operand, output: Operand, given: tuple[int, ...], to: tuple[int, ...]
) -> tuple[tuple[Loop, ...], int]:
    """The same of elements that change places between axes, each of which may be several loops; `given` and `to` are
    the steps of whole axes."""
    cut, joined = axes_of(source.shape, op.split), op.joined
    assert cut is not None
    assert joined is not None
    steps = [0] * len(op.split)
    for step, group in zip(given, cut, strict=True):
        for axis in reversed(group):
            steps[axis] = step
            step *= op.split[axis]
    loops, offset = list[Loop](), 0
    for axis in memory_axes(len(output.shape), output.format.layout):
        inner, beginning = output.shape[axis], op.begin if axis == 1 else op.first_of(axis)
        if axis != 1 and (half := op.half_of(axis)):
            # Two halves of a whole step change places: the second of one step stands beside the first of the next.
            (outer, part), whole = joined[axis], 2 * half
            offset += half * steps[part] + beginning // whole * steps[outer]
            loops.append(Loop(inner // whole, (steps[outer], to[axis] * whole)))
            loops.append(Loop(2, (steps[outer] - half * steps[part], to[axis] * half)))
            loops.append(Loop(half, (steps[part], to[axis])))
            continue
        for place, part in enumerate(joined[axis]):
            left = prod(op.split[each] for each in joined[axis][place + 1 :])
            offset += beginning // left * steps[part]
            beginning %= left
            loops.append(Loop(inner // left, (steps[part], to[axis] * left)))
            inner = min(inner, left)
    return merged(loops, 2), offset
