"""The heads of a problem as kernels go over them."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, Operand, StepExpressions
from bolt_build.families.common.cxx import braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_loops import STATISTICS
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary

SPACE = "bolt::portable"


@dataclass(frozen=True)
class HeadsForm:
    """What a kernel computes of heads that lie over `axes`, each of `depth` elements: `does` says it, and scale, bias,
    cosines and sines are the inputs of these numbers, None where they are not there."""

    axes: tuple[int, ...]
    depth: int
    turned: int
    does: HeadRows
    operands: tuple[int | None, int | None, int | None, int | None]


def heads_form(problem: KernelProblem) -> HeadsForm:
    op, rows = problem.op, problem.inputs[0]
    if isinstance(op, Rotary):
        does = HeadRows(1, rotary=True, interleaved=op.interleaved, passed=op.passed)
        *axes, depth = rows.shape
    else:
        assert isinstance(op, HeadRows)
        does = op
        *axes, depth = op.apart(rows.type)
    waiting = list(range(1, len(problem.inputs)))
    there = (does.scaled, does.shifted, does.rotary, does.rotary)
    scale, bias, cos, sin = (waiting.pop(0) if each else None for each in there)
    turned = problem.inputs[cos].shape[-1] if cos is not None else 0
    return HeadsForm(tuple(axes), depth, turned, does, (scale, bias, cos, sin))


def _steps(operand: Operand, rank: int) -> tuple[int, ...]:
    """Elements between neighbours along each axis of heads that the operand broadcasts to, and along a head."""
    shape, own = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
    return tuple(0 if extent == 1 else step for extent, step in zip(shape, own, strict=True))


def _of_rows(problem: KernelProblem, form: HeadsForm, pitch: int) -> tuple[int, ...]:
    """Elements between neighbouring heads along each axis, where rows lie `pitch` elements apart (0: dense)."""
    row = problem.inputs[0]
    if isinstance(problem.op, Rotary):
        return strides(row, pitch)[:-1]
    return (*strides(row, pitch)[:2], form.depth)


def loops_of(problem: KernelProblem, form: HeadsForm, pitch: int = 0) -> tuple[Loop, ...]:
    """Over the heads; steps in the rows, in what is stored, and in scale, bias, cosines and sines."""
    rank = len(form.axes) + 1
    sides = [_of_rows(problem, form, pitch), _of_rows(problem, form, 0)]
    sides += [(0,) * rank if index is None else _steps(problem.inputs[index], rank) for index in form.operands]
    loops = (Loop(extent, tuple(side[axis] for side in sides)) for axis, extent in enumerate(form.axes))
    return merged(loops, len(sides))


def lanes_of(form: HeadsForm, loops: tuple[Loop, ...]) -> int:
    """Elements that a GPU's thread loads at once: parts of heads, of what is turned and of its halves are whole loads
    of them."""
    steps = [step for loop in loops for step in loop.steps]
    parts = [form.depth, form.does.passed, form.turned, form.turned // (1 if form.does.interleaved else 2), *steps]
    return next(lanes for lanes in (LANES, 4, 2, 1) if all(part % lanes == 0 for part in parts))


def threads_of(form: HeadsForm, lanes: int) -> tuple[int, int]:
    """A GPU's threads for a head, and the loads of each."""
    threads = next((n for n in (4, 8, 16, WARP) if n * lanes >= form.depth), WARP)
    return threads, -(-form.depth // (threads * lanes))


def types(problem: KernelProblem, form: HeadsForm) -> str:
    """What kernels are compiled for behind how they are cut: statistic, turn, and element types."""
    does = form.does
    statistic = STATISTICS[does.statistic] if does.statistic else "AsItIs"
    turn = "TurnsNothing" if not does.rotary else "TurnsNeighbours" if does.interleaved else "TurnsHalves"
    kinds = [
        f"{SPACE}::{missing}" if index is None else COMPUTED[problem.inputs[index].format.dtype]
        for index, missing in zip(form.operands, ("Ones", "Zeros", "Ones", "Zeros"), strict=True)
    ]
    found = [COMPUTED[problem.inputs[0].format.dtype], COMPUTED[problem.outputs[0].format.dtype], *kinds]
    return f"{SPACE}::{statistic}, {SPACE}::{turn}, {', '.join(found)}"


def parameters(form: HeadsForm, loops: tuple[Loop, ...]) -> str:
    return struct(
        f"{SPACE}::Heads",
        rank=len(loops),
        loops=braces(f"{{{', '.join(map(str, (loop.extent, *loop.steps)))}}}" for loop in loops),
        depth=form.depth,
        turned=form.turned,
        epsilon=literal(form.does.epsilon),
        **({"passed": form.does.passed} if form.does.passed else {}),
    )


def pointers(form: HeadsForm, at: StepExpressions) -> str:
    """Input, output, scale, bias, cosines and sines."""
    own = ["nullptr" if index is None else at.inputs[index] for index in form.operands]
    return ", ".join((at.inputs[0], at.outputs[0], *own))
