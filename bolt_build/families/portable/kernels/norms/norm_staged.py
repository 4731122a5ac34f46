"""How a GPU normalises lines of odd extents: through shared memory, in whole accesses."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.kernels.lines.register_lines import RegisterTile, registers
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.lines.staged import Lines, StagedTile, staged
from bolt_build.families.portable.kernels.norms.norm_loops import Loops, loops_of, norm_text, pointers_text, types_text
from bolt_build.graph.ops.norms.norm import Norm

_FEW = 4
"""Neighbours of an access that is as fast as whole ones, where rows are a multiple of it."""


def _serves(problem: KernelProblem) -> bool:
    """Rows and columns of which no access divides both sides, and rows of whole ones that registers have no room
    for."""
    if not isinstance(problem.op, Norm):
        return False
    loops = loops_of(problem)
    (*outer, last), inner = loops.reduced, loops.reduced[-1].steps[0]
    if outer or not last.extent:
        return False
    if inner > 1:
        return inner % LANES != 0
    return last.extent % LANES != 0 and (last.extent % _FEW != 0 or not loops.in_registers[0])


def _of_elements(loops: Loops) -> bool:
    return loops.shares_operands


def _of_lines(loops: Loops) -> bool:
    return not any(loops.reduced[-1].steps[1:3])


def _lines(problem: KernelProblem) -> Lines:
    loops = loops_of(problem)
    count, inner = loops.reduced[-1].extent, loops.reduced[-1].steps[0]
    read, stored = (operand.format.dtype.nbytes for operand in (problem.inputs[0], problem.outputs[0]))
    floats = len(op_operands(problem)) - 1 if _of_elements(loops) else 0
    return Lines(prod(loop.extent for loop in loops.kept) // inner, count, inner, read, stored, floats)


def _refuse(problem: KernelProblem) -> str | None:
    loops = loops_of(problem)
    if not (_of_elements(loops) or _of_lines(loops)):
        return "scales or biases are neither the same for all lines nor for all elements of one"
    return None


def _emit(problem: KernelProblem, tile: StagedTile | RegisterTile, at: StepExpressions) -> StepCode:
    op, loops = problem.op, loops_of(problem)
    assert isinstance(op, Norm)
    operands = "of_elements" if _of_elements(loops) else "of_lines"
    early = _of_elements(loops) and all(problem.inputs[index].constant for index in op_operands(problem)[1:])
    how = f"{tile.text(_lines(problem))}, bolt::portable::StagedOperands::{operands}, {boolean(early)}"
    call = (
        f"bolt::portable::norm_staged<{how}, {types_text(problem)}>(r, "
        f"{norm_text(loops.kept, loops.reduced, op.epsilon)}, {pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


FORM = staged(_serves, _lines, _refuse, _emit)
IN_REGISTERS = registers(_serves, _lines, _refuse, _emit)
