"""Normalisations by statistics of the data itself."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.kernels import norm_passes, norm_slabs, norm_turns
from bolt_build.families.portable.kernels.norm_loops import loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.kernels.rows import WARP
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norm import Norm

MANY_ROWS = 2048
"""Of so many rows a GPU's warps take two each, so that scale and bias are read half as often. Of fewer rows some
multiprocessors would have none."""


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or refuse_stages(problem)) is not None:
        return reason
    loops = loops_of(problem)
    most = max(len(loops.kept), len(loops.reduced))
    return Reason("normalises in {} loops, at most {} are supported", most, MOST_AXES) if most > MOST_AXES else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    """The plain kernel: rows in registers, or elements that are read three times."""
    assert isinstance(problem.op, Norm)
    loops = loops_of(problem)
    loads, threads = loops.in_registers
    rows = prod(loop.extent for loop in loops.kept)
    early = loops.shares_operands and all(problem.inputs[index].constant for index in op_operands(problem)[1:])
    each = 2 if early and threads == WARP and rows >= MANY_ROWS else 1
    call = (
        f"bolt::portable::norm<{loads}, {threads}, {each}, {boolean(early)}, {types_text(problem)}>(r, "
        f"{norm_text(loops.kept, loops.reduced, problem.op.epsilon)}, {pointers_text(problem, at)}, "
        f"{chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


def _bandwidth(problem: KernelProblem) -> float:
    """Less where a block has one row, because it waits for its sums, and where rows do not fit into registers: they are
    read three times."""
    loads, threads = loops_of(problem).in_registers
    return (0.7 if threads <= WARP else 0.55) if loads else 0.25


RULES = (
    Rule(
        Norm,
        _refuse,
        _emit,
        lambda problem: 0.05,
        gpu_bandwidth=_bandwidth,
        in_place=(0,),
        forms=(norm_slabs.FORM, norm_passes.FORM, norm_turns.FORM),
    ),
)
