"""A movement of elements as loops, and how fast a GPU goes through them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import PART_ALIGNMENT, KernelProblem, Operand, memory_axes
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import COMPUTED, MOVED
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.typed import searched
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.rearrange import Rearrange, axes_of
from bolt_build.graph.ops.moves.shape import Slice, Transpose

_BLOCKS, _TRANSPOSED, _SCATTERED = 0.95, 0.35, 0.15
"""Parts of a GPU's bandwidth that elements of half precision reach where threads turn blocks of them in registers, in
tiles of shared memory, and one by one."""
_MOST_STAGED = 0.55
"""The part that wider elements reach at most where they go through shared memory: of 8 bytes 0.42 to 0.69 as an H200
measured."""
_TURNED, _STAGED, _APART = 0.25e-6, 0.9e-6, 1.0e-6
"""Seconds in which elements are turned in registers, in which they go through shared memory, and in which they come one
by one. Fitted, as the parts are, to 150 times of an H200."""
_LAUNCH, _TOGETHER = 0.9e-6, 32
"""Seconds of a further launch of a concatenation, and parts that one launch copies (`ConcatCopies`)."""
_TILE, _BLOCK, _RUN, _LINE, _MANY, _PIXELS = 8, 4, 8, 128, 512, 512
"""From how many columns on there are tiles; what extents are multiples of where there are blocks; elements of a run
below which threads copy one by one, and of one that is in no whole blocks; pixels of few colours from which on strips
and blocks of threads have enough of them."""
_STEPPED, _SHORT_STEP = 0.7, 16
"""The part of the bandwidth that slices reach whose elements lie a few apart, with what lies between them, as an H200
measured; and elements of half precision of a sector."""
_WIDE = 0.5
"""Part of the bandwidth where neighbouring threads store 64 bytes each, as measured on an H100."""
_WRITTEN, _WORD = 0.35, 4
"""The part where they store as many of elements that are read once and stored often, wider than so many bytes, as an
H200 measured."""
_CONVERTED = {**COMPUTED, DType.F64: "double"}
"""Element types that a copy converts between."""


def copied_types(source: Operand, output: Operand) -> str | None:
    """Template arguments of a copy between these element types; None where there is no such conversion."""
    a, b = source.format.dtype, output.format.dtype
    if a is b:
        return f"{MOVED[a.nbytes]}, {MOVED[a.nbytes]}"
    if a in _CONVERTED and b in _CONVERTED:
        return f"{_CONVERTED[a]}, {_CONVERTED[b]}"
    return None


def copy_bandwidth(problem: KernelProblem) -> float:
    """What a copy reaches: all of it along rows, less where they become columns."""
    return _reached(problem)[0]


def copy_latency(problem: KernelProblem) -> float:
    return _reached(problem)[1]


def concat_latency(problem: KernelProblem) -> float:
    return _LAUNCH * (ceil(len(problem.inputs) / _TOGETHER) - 1)


def expand_bandwidth(problem: KernelProblem) -> float:
    """What a copy that repeats rows reaches: less where threads look for their elements one by one."""
    found = (
        copy_bandwidth(problem)
        if _in_lanes(problem)
        else searched(8, 1, problem.nbytes / problem.outputs[0].type.elements)
    )
    several = copy_loops(problem)[0][-1].extent % _BLOCK == 0
    return found * (_WRITTEN if several and problem.outputs[0].format.dtype.nbytes > _WORD else 1.0)


def cast_bandwidth(problem: KernelProblem) -> float:
    """What a conversion reaches: less where a thread's elements are several accesses of one side, which lie apart from
    those of its neighbours."""
    widest = max(operand.format.dtype.nbytes for operand in (problem.inputs[0], problem.outputs[0]))
    return min(copy_bandwidth(problem), _WIDE if widest > 4 and not is_same_type(problem) else 1.0)


def is_same_type(problem: KernelProblem) -> bool:
    return problem.inputs[0].format.dtype is problem.outputs[0].format.dtype


def expands_whole(problem: KernelProblem) -> bool:
    """True where repeated rows are whole accesses."""
    return expand_bandwidth(problem) == 1.0


def _in_lanes(problem: KernelProblem) -> bool:
    """Whether rows of the output are whole accesses, of neighbours of the input."""
    loops, _ = copy_loops(problem)
    steps = (loop.steps[0] for loop in loops[:-1])
    return loops[-1].steps[0] == 1 and all(each % _BLOCK == 0 for each in (loops[-1].extent, *steps))


def in_whole_accesses(problem: KernelProblem) -> bool:
    """True where threads of the plain kernel move rows, or turn blocks of them in registers, in whole accesses."""
    return _part(problem)[0] >= _BLOCKS


def _part(problem: KernelProblem) -> tuple[float, float]:
    """Part of the bandwidth that elements of half precision reach, and seconds beside it."""
    loops, _ = copy_loops(problem)
    inner = loops[-1]
    if inner.steps[0] in (0, 1):
        short = isinstance(problem.op, Rearrange) and inner.extent < _RUN
        broken = len(loops) > 1 and inner.extent % _BLOCK > 0 and inner.extent < _LINE
        # Rows that are less than a thread's neighbours, and begin inside of an access, are moved element by element.
        begins = any(step % _BLOCK for loop in loops[:-1] for step in loop.steps)
        broken = broken or (begins and inner.extent < _RUN)
        return (_SCATTERED if short or broken else 1.0), 0.0
    if isinstance(problem.op, Slice) and abs(inner.steps[0]) <= _SHORT_STEP:
        return _STEPPED * 2 / (1 + abs(inner.steps[0])), 0.0
    # The loop whose elements are neighbours in the input; a short one only if it is the next.
    turned = next((loop for loop in reversed(loops[:-1]) if loop.steps[0] == 1), None)
    if turned is not None and turned is not loops[-2] and turned.extent < _TILE:
        turned = None
    if turned is None:
        return _SCATTERED, _APART
    if _interleaves(loops, turned) or _in_blocks(loops, turned):
        return _BLOCKS, _TURNED
    # Shorter rows go through shared memory where they are whole pixels, and many.
    tiled = inner.extent >= _TILE or (turned.steps[1] == inner.extent and turned.extent >= _MANY)
    return _TRANSPOSED if tiled and inner.steps[0] >= _TILE else _SCATTERED, _STAGED


def _in_blocks(loops: tuple[Loop, ...], turned: Loop) -> bool:
    """Whether the rows `turned` and the columns are whole accesses, wherever they begin."""
    inner = loops[-1]
    whole = inner.extent >= _TILE and all(loop.extent % _BLOCK == 0 for loop in (inner, turned))
    return whole and all(
        (loop is turned or loop.steps[0] % _BLOCK == 0) and (loop is inner or loop.steps[1] % _BLOCK == 0)
        for loop in loops
    )


def _interleaves(loops: tuple[Loop, ...], turned: Loop) -> bool:
    """Whether few colours become whole pixels, or whole pixels planes, in threads of four pixels each."""
    inner = loops[-1]
    for beside, along, side in ((inner, turned, 1), (turned, inner, 0)):
        if beside.extent > _BLOCK or along.steps[side] != beside.extent:
            continue
        # Of fewer pixels most threads of a block have none.
        fits = along.extent % _BLOCK == 0 and along.extent >= _PIXELS
        for loop in loops:
            fits = fits and all(
                loop is along or (loop is beside and each == side) or loop.steps[each] % _BLOCK == 0 for each in (0, 1)
            )
        if fits:
            return True
    return False


def _reached(problem: KernelProblem) -> tuple[float, float]:
    """Part of the bandwidth, and seconds beside it."""
    loops, _ = copy_loops(problem)
    reached, latency = _part(problem)
    if loops[-1].steps[0] in (0, 1):
        return reached, latency
    # Elements take as long in fp32 as in half precision, so more bytes are a larger part.
    width = problem.nbytes / max(problem.outputs[0].type.elements, 1)
    return min(1.0 if reached >= _BLOCKS else _MOST_STAGED, reached * width / 4), latency


def copy_loops(problem: KernelProblem, given: int = 0, pitch: int = 0) -> tuple[tuple[Loop, ...], int]:
    """Loops of a copy with the steps of input and output, and the input's offset. Rows of the input lie `given`
    elements apart, those of the output `pitch` (0: dense)."""
    loops, offset = _nest(problem, given, pitch)
    return merged(loops, 2), offset


def strided_text(loops: Sequence[Loop], offset: int) -> str:
    """A `StridedCopy` of so many elements along loops, from element `offset` of the input on."""
    return struct(
        "bolt::portable::StridedCopy",
        rank=len(loops),
        extent=braces(loop.extent for loop in loops),
        **{"in": braces(loop.steps[0] for loop in loops)},
        out=braces(loop.steps[1] for loop in loops),
        in_offset=offset,
        out_offset=0,
    )


def rows_kept(problem: KernelProblem, given: int = 0, pitch: int = 0) -> tuple[tuple[Loop, ...], int]:
    """The same, in loops that are as many wherever rows lie: none goes over several rows of a side."""
    source, output = problem.inputs[0], problem.outputs[0]
    loops, offset = _nest(problem, given, pitch)
    apart, _ = _nest(problem, source.row + PART_ALIGNMENT, output.row + PART_ALIGNMENT)
    both = merged((Loop(one.extent, (*one.steps, *other.steps)) for one, other in zip(loops, apart, strict=True)), 4)
    return tuple(Loop(loop.extent, loop.steps[:2]) for loop in both), offset


def neighbours_kept(problem: KernelProblem) -> bool:
    """True where the innermost of these loops is of neighbours of the output, wherever its rows lie: rows of one
    element leave none."""
    return rows_kept(problem, pitch=problem.outputs[0].row + PART_ALIGNMENT)[0][-1].steps[1] == 1


def _nest(problem: KernelProblem, given: int, pitch: int) -> tuple[list[Loop], int]:
    """A loop for each axis of the output, or for each part of one."""
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
    return [Loop(output.shape[axis], (steps[axis], to[axis])) for axis in order], offset


def _rearranged_loops(
    op: Rearrange, source: Operand, output: Operand, given: tuple[int, ...], to: tuple[int, ...]
) -> tuple[list[Loop], int]:
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
    return loops, offset
