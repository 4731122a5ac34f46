"""The loops of a normalisation, over its statistics and over the elements of each, and how its kernels are called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import KernelProblem, Operand, StepExpressions, memory_axes
from bolt_build.families.common.cxx import braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import channel_axis
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP, held
from bolt_build.graph.ops.norms.norm import Norm

STATISTICS = {
    "variance": "NormVariance",
    "deviation": "NormDeviation",
    "rms": "NormMeanSquare",
    "l1": "NormMagnitudes",
    "l2": "NormSquares",
}


@dataclass(frozen=True)
class Loops:
    """Loops over statistics, and over the elements of one; steps in x, scale, bias and per-channel operands."""

    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]

    @property
    def lanes(self) -> int:
        """Neighbouring elements of a row that one access may have, as rows, scale and bias lie; 0 where statistics are
        not of rows of neighbours, or rows of whole loads have a scale or a bias each, of which slabs read one."""
        *outer, last = self.reduced
        if outer or last.steps[0] != 1 or any(last.steps[index] not in (0, 1) for index in (1, 2)):
            return 0
        beside = [index for index in (0, 1, 2) if last.steps[index] == 1]
        whole = [last.extent, *(loop.steps[index] for loop in self.kept for index in beside)]
        lanes = next(lanes for lanes in (LANES, 4, 2, 1) if not any(each % lanes for each in whole))
        apart = any(loop.steps[index] % LANES for loop in self.kept for index in (1, 2))
        return 0 if lanes == LANES and apart else lanes

    @property
    def neighbours(self) -> int:
        """Elements of a row whose elements are neighbours, and which begins at whole loads, as scale and bias do; 0
        where statistics are not of such rows."""
        return self.reduced[-1].extent if self.lanes == LANES else 0

    @property
    def in_registers(self) -> tuple[int, int]:
        """Loads a thread and threads a row with which a GPU's plain kernel reads rows once; (0, 32) where they do not
        fit, or do not lie as neighbours."""
        return held(self.reduced[-1].extent, self.lanes) if self.lanes else (0, WARP)

    @property
    def shares_operands(self) -> bool:
        """True where all rows have the same scale and bias."""
        return all(step == 0 for loop in self.kept for step in loop.steps[1:3])


def _steps(operand: Operand, rank: int) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a tensor of `rank` that the operand broadcasts to."""
    shape, own = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
    return tuple(0 if extent == 1 else step for extent, step in zip(shape, own, strict=True))


def loops_of(problem: KernelProblem) -> Loops:
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
    return Loops(merged(kept, 4), merged(reduced, 4))


def loop_text(loop: Loop) -> str:
    """A `NormLoop`."""
    return f"{{{', '.join(map(str, (loop.extent, *loop.steps)))}}}"


def norm_text(kept: tuple[Loop, ...], reduced: tuple[Loop, ...], epsilon: float) -> str:
    """A `Norm`."""
    return struct(
        "bolt::portable::Norm",
        kept_rank=len(kept),
        kept=braces(map(loop_text, kept)),
        reduced_rank=len(reduced),
        reduced=braces(map(loop_text, reduced)),
        epsilon=literal(epsilon),
    )


def types_text(problem: KernelProblem) -> str:
    """Template arguments: the statistic, and the element types of x, scale, bias and what is stored."""
    assert isinstance(problem.op, Norm)
    kinds = [COMPUTED[problem.inputs[index].format.dtype] for index in op_operands(problem)]
    kinds += ["bolt::portable::Ones", "bolt::portable::Zeros"][len(kinds) - 1 :]
    statistic = f"bolt::portable::{STATISTICS[problem.op.statistic]}"
    return ", ".join((statistic, *kinds, COMPUTED[problem.outputs[0].format.dtype]))


def pointers_text(problem: KernelProblem, at: StepExpressions) -> str:
    """Arguments: x, scale, bias and what is stored."""
    own = op_operands(problem)
    return ", ".join((*(at.inputs[index] for index in own), *("nullptr",) * (3 - len(own)), at.outputs[0]))


def with_scratch(problem: KernelProblem, nbytes: int, at: StepExpressions) -> tuple[StepExpressions, tuple[str, str]]:
    """Expressions of a kernel with so many bytes of scratch memory, whose plan keeps constants for it; and the type
    of what the plan holds, with its arguments (`PassedNorm`)."""
    inputs, constants = list(at.inputs), list[str]()
    for index, operand in enumerate(problem.inputs):
        if index and operand.constant:
            expression = at.prepare_inputs[index]
            inputs[index] = f"kernel.constant({len(constants)})"
            constants.append(f'bolt::portable::PassedConstant{{{expression}, "{expression}", {operand.nbytes}}}')
    arguments = ", ".join((str(nbytes), *constants))
    return replace(at, inputs=tuple(inputs)), ("bolt::portable::PassedNorm", arguments)
