"""Heads that are normalised, scaled and turned on their way to attention: one kernel, each row read once."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cxx import braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.kernels.norm_loops import STATISTICS
from bolt_build.families.portable.kernels.rows import LANES, WARP
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.heads import HeadRows, Rotary

_SPACE = "bolt::portable"
_LOOPS, _MOST_LOADS = 4, 8
"""Axes of heads that the kernel's parameters have room for, and loads of a head that a thread has registers for."""


@dataclass(frozen=True)
class _Form:
    """What a kernel computes of heads that lie over `axes`, each of `depth` elements: `does` says it, and scale, bias,
    cosines and sines are the inputs of these numbers, None where they are not there."""

    axes: tuple[int, ...]
    depth: int
    turned: int
    does: HeadRows
    operands: tuple[int | None, int | None, int | None, int | None]


def _form(problem: KernelProblem) -> _Form:
    op, rows = problem.op, problem.inputs[0]
    if isinstance(op, Rotary):
        does = HeadRows(1, rotary=True, interleaved=op.interleaved)
        *axes, depth = rows.shape
    else:
        assert isinstance(op, HeadRows)
        does = op
        *axes, depth = op.apart(rows.type)
    waiting = list(range(1, len(problem.inputs)))
    there = (does.scaled, does.shifted, does.rotary, does.rotary)
    scale, bias, cos, sin = (waiting.pop(0) if each else None for each in there)
    turned = problem.inputs[cos].shape[-1] if cos is not None else 0
    return _Form(tuple(axes), depth, turned, does, (scale, bias, cos, sin))


def _steps(operand: Operand, rank: int) -> tuple[int, ...]:
    """Elements between neighbours along each axis of heads that the operand broadcasts to, and along a head."""
    shape, own = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
    return tuple(0 if extent == 1 else step for extent, step in zip(shape, own, strict=True))


def _of_rows(problem: KernelProblem, form: _Form, pitch: int) -> tuple[int, ...]:
    """Elements between neighbouring heads along each axis, where rows lie `pitch` elements apart (0: dense)."""
    row = problem.inputs[0]
    if isinstance(problem.op, Rotary):
        return strides(row, pitch)[:-1]
    return (*strides(row, pitch)[:2], form.depth)


def _loops(problem: KernelProblem, form: _Form, pitch: int = 0) -> tuple[Loop, ...]:
    """Over the heads; steps in the rows, in what is stored, and in scale, bias, cosines and sines."""
    rank = len(form.axes) + 1
    sides = [_of_rows(problem, form, pitch), _of_rows(problem, form, 0)]
    sides += [(0,) * rank if index is None else _steps(problem.inputs[index], rank) for index in form.operands]
    loops = (Loop(extent, tuple(side[axis] for side in sides)) for axis, extent in enumerate(form.axes))
    return merged(loops, len(sides))


def _lanes(form: _Form, loops: tuple[Loop, ...]) -> int:
    """Elements that a GPU's thread loads at once: parts of heads, of what is turned and of its halves are whole loads
    of them."""
    steps = [step for loop in loops for step in loop.steps]
    parts = [form.depth, form.turned, form.turned // (1 if form.does.interleaved else 2), *steps]
    return next(lanes for lanes in (LANES, 4, 2, 1) if all(part % lanes == 0 for part in parts))


def _threads(form: _Form, lanes: int) -> tuple[int, int]:
    """A GPU's threads for a head, and the loads of each."""
    threads = next((n for n in (4, 8, 16, WARP) if n * lanes >= form.depth), WARP)
    return threads, -(-form.depth // (threads * lanes))


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or no_epilogue(problem)) is not None:
        return reason
    form = _form(problem)
    scale_and_bias = [problem.inputs[index] for index in form.operands[:2] if index is not None]
    if any(each.shape[-1:] != (form.depth,) for each in scale_and_bias):
        return Reason("scales and shifts heads by {} numbers each", form.depth)
    loops = _loops(problem, form)
    if len(loops) > _LOOPS:
        return Reason("heads lie over {} axes, at most {} are supported", len(loops), _LOOPS)
    loads = _threads(form, _lanes(form, loops))[1]
    most = "heads of {} elements are {} loads of each thread, which holds {} at most"
    return Reason(most, form.depth, loads, _MOST_LOADS) if loads > _MOST_LOADS else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    form, pitch = _form(problem), at.input_pitch(0)
    does, loops = form.does, _loops(problem, form, pitch)
    lanes = _lanes(form, loops)
    threads, loads = _threads(form, lanes)
    statistic = STATISTICS[does.statistic] if does.statistic else "AsItIs"
    turn = "TurnsNothing" if not does.rotary else "TurnsNeighbours" if does.interleaved else "TurnsHalves"
    kinds, pointers = [], []
    for index, missing in zip(form.operands, ("Ones", "Zeros", "Ones", "Zeros"), strict=True):
        kinds.append(f"{_SPACE}::{missing}" if index is None else COMPUTED[problem.inputs[index].format.dtype])
        pointers.append("nullptr" if index is None else at.inputs[index])
    parameters = struct(
        f"{_SPACE}::Heads",
        rank=len(loops),
        loops=braces(f"{{{', '.join(map(str, (loop.extent, *loop.steps)))}}}" for loop in loops),
        depth=form.depth,
        turned=form.turned,
        epsilon=literal(does.epsilon),
    )
    types = [COMPUTED[problem.inputs[0].format.dtype], COMPUTED[problem.outputs[0].format.dtype], *kinds]
    how = f"{lanes}, {threads}, {loads}, {_SPACE}::{statistic}, {_SPACE}::{turn}, {', '.join(types)}"
    arguments = ", ".join((at.inputs[0], at.outputs[0], *pointers))
    return StepCode(
        ("bolt_portable/heads.h",), None, "", f"{_SPACE}::heads<{how}>(r, {parameters}, {arguments});"
    )  # fmt: skip


_NORMED, _TURNED, _BOTH = 0.73, 0.56, 0.34
"""Parts of a GPU's bandwidth where heads are normalised or scaled, where pairs are turned, whose cosines and sines each
row reads again, and where both are."""
_WAITS = 0.5e-6
"""Seconds in which threads of a head join their sums. All are fitted to 82 times of an H200."""


def _bandwidth(problem: KernelProblem) -> float:
    does = _form(problem).does
    return _NORMED if not does.rotary else _BOTH if does.statistic else _TURNED


RULES = tuple(
    Rule(
        op, _refuse, _emit, lambda problem: 0.05, gpu_bandwidth=_bandwidth, gpu_latency=lambda problem: _WAITS,
        layouts=row_major,
        reads_apart=lambda problem: (0,),
    )
    for op in (HeadRows, Rotary)
)  # fmt: skip
