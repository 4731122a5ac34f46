"""Normalisations by statistics of the data itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cxx import braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.kernels.norm_slabs import Slabs, slabs
from bolt_build.families.portable.kernels.rows import LANES, WARP, held
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norm import Norm
from bolt_build.targets import target_named

STATISTICS = {"variance": "NormVariance", "rms": "NormMeanSquare", "l1": "NormMagnitudes", "l2": "NormSquares"}


@dataclass(frozen=True)
class _Loops:
    """Loops over statistics, and over the elements of one; steps in x, scale, bias and per-channel operands."""

    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]


def _steps(operand: Operand, rank: int) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a tensor of `rank` that the operand broadcasts to."""
    shape, own = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
    return tuple(0 if extent == 1 else step for extent, step in zip(shape, own, strict=True))


def _loops(problem: KernelProblem) -> _Loops:
    """In the order of memory. An operand that is not there has the steps of the one before it."""
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Norm)
    rank, own = len(output.shape), op_operands(problem)
    sides = [_steps(problem.inputs[index], rank) for index in own]
    sides += [(0,) * rank if len(sides) == 1 else sides[-1]] * (3 - len(sides))
    channels = channel_axis(problem)
    sides.append(tuple(int(axis == channels) for axis in range(rank)))
    kept, reduced = [], []
    for axis in memory_axes(rank, output.format.layout):
        loop = Loop(output.shape[axis], tuple(side[axis] for side in sides))
        if axis not in op.axes:
            kept.append(loop)
        elif axis == 1 and op.groups != 1:
            each = output.shape[1] // op.groups
            kept.append(Loop(op.groups, tuple(step * each for step in loop.steps)))
            reduced.append(Loop(each, loop.steps))
        else:
            reduced.append(loop)
    return _Loops(merged(kept, 4), merged(reduced, 4))


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or refuse_stages(problem)) is not None:
        return reason
    loops = _loops(problem)
    most = max(len(loops.kept), len(loops.reduced))
    return Reason("normalises in {} loops, at most {} are supported", most, MOST_AXES) if most > MOST_AXES else None


MANY_ROWS = 2048
"""Of so many rows a GPU's warps take two each, so that scale and bias are read half as often. Of fewer rows some
multiprocessors would have none."""


def _in_registers(loops: _Loops) -> tuple[int, int]:
    """Loads a thread and threads a row with which a GPU reads rows once; (0, 32) where they do not fit, or do not lie
    as neighbours."""
    *outer, last = loops.reduced
    steps = [loop.steps[index] for loop in loops.kept for index in (0, 1, 2)]
    if outer or last.steps[0] != 1 or any(step % LANES for step in steps):
        return 0, WARP
    if any(last.steps[index] not in (0, 1) for index in (1, 2)):
        return 0, WARP
    return held(last.extent)


def slabs_of(problem: KernelProblem) -> Slabs | None:
    """How a GPU keeps in shared memory what does not fit into registers; None where loads would not be aligned,
    where registers have room for rows, and on hosts."""
    gpu, loops = target_named(problem.target).gpu, _loops(problem)
    if gpu is None or _in_registers(loops)[0]:
        return None
    return slabs(loops.kept, loops.reduced, problem.inputs[0].format.dtype.nbytes, gpu)


def _loop(loop: Loop) -> str:
    return f"{{{', '.join(map(str, (loop.extent, *loop.steps)))}}}"


def _nest(loops: tuple[Loop, ...]) -> str:
    return braces(_loop(loop) for loop in loops)


def _norm(kept: tuple[Loop, ...], reduced: tuple[Loop, ...], epsilon: float) -> str:
    return struct(
        "bolt::portable::Norm",
        kept_rank=len(kept),
        kept=_nest(kept),
        reduced_rank=len(reduced),
        reduced=_nest(reduced),
        epsilon=literal(epsilon),
    )


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Norm)
    loops, own = _loops(problem), op_operands(problem)
    parameters = _norm(loops.kept, loops.reduced, op.epsilon)
    kinds = [COMPUTED[problem.inputs[index].format.dtype] for index in own]
    kinds += ["bolt::portable::Ones", "bolt::portable::Zeros"][len(kinds) - 1 :]
    pointers = [at.inputs[index] for index in own] + ["nullptr"] * (3 - len(own))
    loads, threads = _in_registers(loops)
    types = ", ".join(
        (f"bolt::portable::{STATISTICS[op.statistic]}", *kinds, COMPUTED[problem.outputs[0].format.dtype])
    )
    found = slabs_of(problem)
    if found is not None:
        around = found.kept or (Loop(1, (0, 0, 0, 0)),)
        slab = struct(
            "bolt::portable::NormSlab",
            across=found.across,
            cluster=found.cluster,
            share=found.share,
            chunk=found.chunk,
            group=found.group,
            threads=found.threads,
            clusters=found.clusters,
            channels=_loop(found.channels),
        )
        how = f"{str(found.clusters > 0).lower()}, bolt::portable::NormOperands::{found.operands}"
        values = f"{slab}, {', '.join(pointers)}, {at.outputs[0]}, {chain(problem, at)}"
        call = (
            f"bolt::portable::norm_in_slabs<{how}, {types}>(r, {parameters}, "
            f"{_norm(around, found.positions, op.epsilon)}, {values});"
        )
        return StepCode(("bolt_portable/norm.h",), None, "", call)
    rows = prod(loop.extent for loop in loops.kept)
    shared = all(step == 0 for loop in loops.kept for step in loop.steps[1:3])
    early = shared and all(problem.inputs[index].constant for index in own[1:])
    each = 2 if early and threads == WARP and rows >= MANY_ROWS else 1
    held = f"{loads}, {threads}, {each}, {str(early).lower()}"
    call = (
        f"bolt::portable::norm<{held}, {types}>(r, {parameters}, {', '.join(pointers)}, {at.outputs[0]}, "
        f"{chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


def _bandwidth(problem: KernelProblem) -> float:
    """Less where rows fit neither into registers nor slabs into shared memory: they are read three times."""
    if _in_registers(_loops(problem))[0]:
        return 0.7
    found = slabs_of(problem)
    return 0.25 if found is None else found.bandwidth


RULES = (Rule(Norm, _refuse, _emit, lambda problem: 0.05, gpu_bandwidth=_bandwidth, in_place=(0,)),)
