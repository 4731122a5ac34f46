"""Loops of a reduction of an elementwise function, and what its kernels have in common."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.kernels.elementwise.formula import formula_function
from bolt_build.families.portable.kernels.reductions.folds import numbers_of, reduce_mode
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula

_SPACE = "bolt::portable"


@dataclass(frozen=True)
class FormulaNest:
    """Loops over what is kept, in the order of the output's memory, and over what is folded, each with the steps of all
    inputs of the formula; and which of the kept ones is over the epilogue's channels, -1 for none."""

    kept: tuple[Loop, ...]
    folded: tuple[Loop, ...]
    channels: int

    @property
    def even(self) -> bool:
        """Whether eight neighbours of each tensor begin with a word, if the tensors do."""
        return all(step in (0, 1) or step % 8 == 0 for loop in (*self.kept, *self.folded) for step in loop.steps)

    @property
    def results(self) -> int:
        return prod(loop.extent for loop in self.kept)

    @property
    def count(self) -> int:
        """Elements of a result."""
        return prod(loop.extent for loop in self.folded)


def op_of(problem: KernelProblem) -> FoldedFormula:
    assert isinstance(problem.op, FoldedFormula)
    return problem.op


def given(problem: KernelProblem) -> tuple[Operand, ...]:
    """The formula's inputs, without operands of stages."""
    return tuple(problem.inputs[index] for index in op_operands(problem))


def nest_of(problem: KernelProblem) -> FormulaNest:
    op, inputs, output = op_of(problem), given(problem), problem.outputs[0]
    whole = op.whole([operand.type for operand in inputs]).shape
    rank = len(whole)
    sides = []
    for operand in inputs:
        shape, steps = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(shape, steps, strict=True)))
    of_whole = tuple(range(rank)) if op.fold.keepdims else tuple(a for a in range(rank) if a not in op.fold.axes)
    channels = channel_axis(problem)
    kept = [
        Loop(whole[of_whole[axis]], tuple(side[of_whole[axis]] for side in sides), fixed=axis == channels)
        for axis in memory_axes(len(output.shape), output.format.layout)
        if of_whole[axis] not in op.fold.axes
    ]
    layout = next((each.format.layout for each in inputs if len(each.shape) == rank), Layout.ROW)
    order = memory_axes(rank, layout)
    folded = [Loop(whole[axis], tuple(side[axis] for side in sides)) for axis in order if axis in op.fold.axes]
    outer = merged(kept, len(sides)) if kept else ()
    place = next((place for place, loop in enumerate(outer) if loop.fixed), -1)
    return FormulaNest(outer, merged(folded, len(sides)), place)


def fold_struct(problem: KernelProblem, nest: FormulaNest) -> str:
    count = len(given(problem))

    def steps(loops: tuple[Loop, ...]) -> str:
        return braces(braces(loop.steps[i] for loop in loops) for i in range(count))

    return struct(
        f"{_SPACE}::FormulaFold<{count}>",
        kept_rank=len(nest.kept),
        kept=braces(loop.extent for loop in nest.kept),
        kept_step=steps(nest.kept),
        folded_rank=len(nest.folded),
        folded=braces(loop.extent for loop in nest.folded),
        folded_step=steps(nest.folded),
        channel_axis=nest.channels,
    )


def function_of(problem: KernelProblem) -> str:
    return formula_function(op_of(problem).formula, problem.inputs, problem.outputs[0].format.dtype)


def pointers(problem: KernelProblem, at: StepExpressions) -> str:
    return ", ".join(at.inputs[index] for index in op_operands(problem))


def mode_of(problem: KernelProblem) -> str:
    return f"{_SPACE}::{reduce_mode(op_of(problem).fold)}"


def results_of(problem: KernelProblem, at: StepExpressions) -> str:
    """What becomes of totals, as folds have it."""
    out, count = COMPUTED[problem.outputs[0].format.dtype], nest_of(problem).count
    return f"{_SPACE}::float_results<{mode_of(problem)}, {out}>({at.outputs[0]}, {count}, {chain(problem, at)})"


def emit_form(
    problem: KernelProblem, at: StepExpressions, function: str, how: tuple[int, ...], steps: tuple[int, ...],
    blocks: int, totals: int,
) -> StepCode:  # fmt: skip
    """A call of `function` with the constants `how`, along a loop on which the inputs have `steps`. Blocks that share
    results leave `totals` for each other."""
    ways = {0: "alike", 1: "near"}
    sides = ", ".join(
        f"{_SPACE}::FormulaSide<{ctype(operand.format.dtype)}, {_SPACE}::Along::{ways.get(step, 'apart')}>"
        for operand, step in zip(given(problem), steps, strict=True)
    )
    call = (
        f"{_SPACE}::{function}<{', '.join(map(str, how))}, {mode_of(problem)}, {sides}>(r, "
        f"{fold_struct(problem, nest_of(problem))}, {function_of(problem)}, {blocks}, {results_of(problem, at)}, "
        f"{pointers(problem, at)});"
    )
    header = f"bolt_portable/cuda/reductions/{function}.h"
    if blocks == 1:
        return StepCode((header,), None, "", call)
    return StepCode(
        (header,), f"{_SPACE}::SharedTotals", str(4 * numbers_of(op_of(problem).fold) * totals), call, counts=True
    )
