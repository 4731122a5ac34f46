"""What kernels of reductions and of places of the greatest have in common on GPUs: loops over what is kept and what is
taken together, and several blocks that share a result."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.portable.kernels.lines.rows import BLOCK
from bolt_build.families.portable.typed import ctype, is_computed
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.targets import Gpu, Target

LOADS = 4
"""Words that a thread asks for at once."""
WORD = 16
"""Bytes of one."""
_SPACE = "bolt::portable"
_OF_WINDOWS = {"max": "max", "average": "mean"}
"""What a pooling does with the elements of a window that has no padding."""
_POWER = 4.5
"""Instructions of an exponential of a difference from the greatest element, of several that are taken together."""
COUNTED = 2**31 - 64
"""Elements are counted in 32 bits."""


@dataclass(frozen=True)
class Nest:
    """Loops over what is kept and over what is taken together, outermost first, with steps in the input; which of the
    kept ones is over the epilogue's channels, -1 for none; bytes of an element and of a total; and instructions of an
    element beyond those of a sum."""

    kept: tuple[Loop, ...]
    folded: tuple[Loop, ...]
    channels: int
    element: int
    total: int
    further: float = 0.0

    @property
    def lanes(self) -> int:
        """Elements of a word."""
        return WORD // self.element

    @property
    def results(self) -> int:
        return prod(loop.extent for loop in self.kept)

    @property
    def count(self) -> int:
        """Elements of a result."""
        return prod(loop.extent for loop in self.folded)

    @property
    def aligned(self) -> bool:
        """Whether every run of neighbours begins with a word, if the tensor does."""
        steps = [loop.steps[0] for loop in (*self.kept, *self.folded)]
        return all(step == 1 or step % self.lanes == 0 for step in steps)


def reduce_loops(problem: KernelProblem) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Of a reduction: kept loops in the order of the output's memory, reduced ones in that of the input's; steps in the
    input."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Reduce)
    steps = strides(source)
    rank = len(source.shape)
    of_input = tuple(range(rank)) if op.keepdims else tuple(a for a in range(rank) if a not in op.axes)
    channels = channel_axis(problem)
    kept = [
        Loop(source.shape[of_input[axis]], (steps[of_input[axis]],), fixed=axis == channels)
        for axis in memory_axes(len(output.shape), output.format.layout)
        if of_input[axis] not in op.axes
    ]
    order = memory_axes(rank, source.format.layout)
    reduced = [Loop(source.shape[axis], (steps[axis],)) for axis in order if axis in op.axes]
    return merged(kept, 1) if kept else (), merged(reduced, 1) if reduced else ()


def reduce_struct(kept: tuple[Loop, ...], reduced: tuple[Loop, ...], channels: int) -> str:
    return struct(
        f"{_SPACE}::Reduce",
        kept_rank=len(kept),
        kept=braces(loop.extent for loop in kept),
        kept_stride=braces(loop.steps[0] for loop in kept),
        reduced_rank=len(reduced),
        reduced=braces(loop.extent for loop in reduced),
        reduced_stride=braces(loop.steps[0] for loop in reduced),
        channel_axis=channels,
    )


def numbers_of(op: Reduce) -> int:
    """Numbers of a total: the greatest element and a sum, or one."""
    return 2 if op.mode == "log_sum_exp" else 1


def reduce_mode(op: Reduce) -> str:
    """The name of its C++ type."""
    return "Reduce" + "".join(part.capitalize() for part in op.mode.split("_"))


def nest_for(problem: KernelProblem) -> Nest | None:
    """Of reductions over an axis at least, of places of one element a line, and of poolings whose windows follow each
    other along rows; None for everything else."""
    op, source = problem.op, problem.inputs[0]
    element = source.format.dtype.nbytes
    if isinstance(op, Places) and op.count == 1:
        order = memory_axes(len(source.shape), source.format.layout)
        shape, place = [source.shape[each] for each in order], order.index(op.axis)
        extent, inner = shape[place], prod(shape[place + 1 :])
        kept = merged((Loop(prod(shape[:place]), (extent * inner,)), Loop(inner, (1,))), 1)
        return Nest(kept, (Loop(extent, (inner,)),), -1, element, 16 if element == 8 else 8)
    if isinstance(op, Pool) and windows_follow(problem):
        count = op.kernel[-1]
        return Nest((Loop(problem.outputs[0].type.elements, (count,)),), (Loop(count, (1,)),), -1, element, 4)
    if not isinstance(op, Reduce) or not op.axes:
        return None
    kept, reduced = reduce_loops(problem)
    channels = next((place for place, loop in enumerate(kept) if loop.fixed), -1)
    summed = 8 if op.mode == "mean" and not is_computed(problem) else element
    total, several = 4 if is_computed(problem) else summed, numbers_of(op)
    return Nest(kept, reduced, channels, element, total * several, _POWER * (several - 1))


def windows_follow(problem: KernelProblem) -> bool:
    """Whether a pooling's windows are runs of neighbours that follow each other and are all of its input."""
    op, source = problem.op, problem.inputs[0]
    if not isinstance(op, Pool) or problem.epilogue or source.format.layout is not Layout.ROW:
        return False
    count, rows = op.kernel[-1], (*op.kernel[:-1], *op.strides[:-1])
    bare = not any((*op.pads_begin, *op.pads_end)) and set(rows) <= {1}
    return bare and op.strides[-1] == count > 1 and op.dilations[-1] == 1 and source.shape[-1] % count == 0


def nest_of(problem: KernelProblem) -> Nest:
    """The same of what a form serves."""
    nest = nest_for(problem)
    assert nest is not None, "forms are asked about what they serve"
    return nest


def neighbours_are_taken(problem: KernelProblem) -> bool:
    """Whether what is taken together lies in runs of neighbours."""
    nest = nest_for(problem)
    return nest is not None and nest.folded[-1].steps[0] == 1


def neighbours_are_kept(problem: KernelProblem) -> bool:
    """Whether results that lie side by side are of elements that do."""
    nest = nest_for(problem)
    return nest is not None and not neighbours_are_taken(problem) and bool(nest.kept) and nest.kept[-1].steps[0] == 1


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no kernel reads words of the problem's tensor."""
    nest = nest_of(problem)
    elements = nest.results * nest.count
    if elements == 0:
        return "there are no elements"
    if elements > COUNTED:
        return Reason("{} elements are more than the {} that it counts", elements, COUNTED)
    loops = max(len(nest.kept), len(nest.folded))
    return Reason("walks over {} loops, at most {} are supported", loops, MOST_AXES) if loops > MOST_AXES else None


def refuse_blocks(blocks: int, tiles: int, parts: int) -> str | None:
    """Why no `blocks` blocks share each of `tiles` results or groups of them, of which there are so many parts."""
    if blocks < 1 or blocks > max(parts, 1):
        return Reason("{} parts of a result are not shared by {} blocks", parts, blocks)
    # Results that blocks share have a counter a tile.
    if blocks > 1 and tiles > MOST_COUNTERS:
        return Reason("{} groups of results are more than the {} that there are counters for", tiles, MOST_COUNTERS)
    return None


_WAVES = (1, 2, 4, 8)
"""Blocks of a multiprocessor that are tried where they share results."""


def shares(tiles: int, parts: int, gpu: Gpu) -> list[int]:
    """Blocks that may share a result: one, and where there are few results as many as keep a GPU busy, about."""
    wanted = (ceil(waves * gpu.sms / max(tiles, 1)) for waves in _WAVES)
    several = (min(each, parts) for each in wanted) if tiles <= MOST_COUNTERS else ()
    return list(dict.fromkeys((1, *several)))


_REGISTERS = 56
_REACHED = 0.61
"""The part of a GPU's bandwidth that loads of whole words reach. This and the following are what kernels on an H200
behave like."""
_WAIT = 2.35e-6
"""Seconds between an ask for words and their use, on a busy GPU: bytes that are under way meanwhile keep
memory busy."""
_ROUND = 0.14e-6
"""The same on one that is not busy."""
_ISSUED = 128 * 1.6e9 * 0.6
"""Instructions of threads that a multiprocessor begins in a second."""
_APART = 0.06
"""The part of what is not the longest that does not go on beside it."""
_JOINED, _SHARED = 0.09e-6, 2.0e-6
"""Seconds in which threads join totals, and blocks theirs through memory."""


@dataclass(frozen=True)
class Work:
    """What a cut makes of a problem: `blocks` in all, `rounds` of loads of a thread, of which the part `used` are under
    way on average; `instructions` of all threads; and loads one after the other with which the last block of a result
    joins what others have left, 0 where none share one."""

    blocks: int
    rounds: int
    used: float
    instructions: float
    joins: int


def seconds_of(problem: KernelProblem, work: Work, target: Target) -> float:
    """The longest of what memory takes with so many bytes under way, of what instructions take, and of loads that wait
    for those before them; and a part of the others."""
    gpu = target.gpu
    assert gpu is not None, "folds are for GPUs"
    nest = nest_of(problem)
    resident = min(occupancy(BLOCK, _REGISTERS, BLOCK * nest.lanes * nest.total, gpu), work.blocks / gpu.sms)
    under_way = resident * BLOCK * LOADS * WORD * work.used * gpu.sms
    reached = min(_REACHED, under_way / (_WAIT * target.bandwidth))
    memory = moved(problem.nbytes, target) / reached
    issue = work.instructions / (_ISSUED * gpu.sms * min(1.0, work.blocks / gpu.sms))
    times = memory, issue, _ROUND * work.rounds
    ending = _SHARED + _ROUND * work.joins if work.joins else _JOINED
    return max(times) + _APART * (sum(times) - max(times)) + OVERLAPPED * target.launch_seconds + ending


def emit_fold(
    problem: KernelProblem, at: StepExpressions, function: str, how: tuple[int, ...], blocks: int, totals: int
) -> StepCode:
    """A call of `function` with the constants `how`. Blocks that share results leave `totals` for each other."""
    nest = nest_of(problem)
    op, stored = problem.op, ctype(problem.inputs[0].format.dtype)
    if isinstance(op, Places):
        fold = f"{_SPACE}::PlaceFold<{boolean(op.greatest)}, {boolean(op.last)}, {stored}>"
        results = f"{_SPACE}::PlaceResults({at.outputs[0]})"
    elif isinstance(op, Reduce | Pool) and is_computed(problem):
        of = op if isinstance(op, Reduce) else Reduce(_OF_WINDOWS[op.mode], (0,))
        mode, out = f"{_SPACE}::{reduce_mode(of)}", COMPUTED[problem.outputs[0].format.dtype]
        fold = f"{_SPACE}::FloatFold<{mode}, {stored}>"
        results = f"{_SPACE}::float_results<{mode}, {out}>({at.outputs[0]}, {nest.count}, {chain(problem, at)})"
    else:
        assert isinstance(op, Reduce)
        mode = f"{_SPACE}::typed::{reduce_mode(op)}<{_SPACE}::Computed<{stored}>::type>"
        fold = f"{_SPACE}::TypedFold<{mode}, {stored}>"
        results = f"{_SPACE}::TypedResults<{mode}, {stored}>({at.outputs[0]}, {nest.count})"
    numbers = ", ".join(map(str, how))
    parameters = reduce_struct(nest.kept, nest.folded, nest.channels)
    call = f"{_SPACE}::{function}<{numbers}, {fold}>(r, {parameters}, {blocks}, {at.inputs[0]}, {results});"
    header = f"bolt_portable/cuda/reductions/{function}.h"
    if blocks == 1:
        return StepCode((header,), None, "", call)
    return StepCode((header,), f"{_SPACE}::SharedTotals", str(totals * nest.total), call, counts=True)
