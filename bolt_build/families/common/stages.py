"""How the operand of an epilogue stage relates to the output: what every family must know to apply it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bolt_build.families.base import KernelProblem, Operand, same_bytes


class Reach(Enum):
    """What one element of the operand is combined with."""

    SAME = "same"
    """The output's element at the same place in memory."""
    AXIS = "axis"
    """All elements with one index along one axis (per channel)."""
    SCALAR = "scalar"
    """Every element."""


@dataclass(frozen=True)
class Spread:
    """How an operand is spread over the output; `axis` is logical, counted in the output's shape, for AXIS."""

    reach: Reach
    axis: int = -1


def aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """`shape` with leading ones up to `rank`, as NumPy broadcasts."""
    return (1,) * (rank - len(shape)) + shape


def spread(operand: Operand, output: Operand) -> Spread | None:
    """How `operand` is spread over `output`; None where it is none of the simple ways."""
    rank = len(output.shape)
    if len(operand.shape) > rank:
        return None
    shape = aligned(operand.shape, rank)
    wide = [axis for axis, extent in enumerate(shape) if extent != 1]
    if not wide:
        return Spread(Reach.SCALAR)
    if shape == output.shape and len(operand.shape) == rank and _same_order(operand, output):
        return Spread(Reach.SAME)
    if len(wide) == 1 and shape[wide[0]] == output.shape[wide[0]]:
        return Spread(Reach.AXIS, wide[0])
    return None


def _same_order(operand: Operand, output: Operand) -> bool:
    dtype = output.format.dtype
    in_dtype = type(output.format)(dtype, operand.format.layout)
    return same_bytes(output.shape, in_dtype, output.format)


def spreads(problem: KernelProblem) -> tuple[Spread | None, ...]:
    """`spread` of each stage's operand over output 0; SCALAR stands for stages without operand."""
    return tuple(
        Spread(Reach.SCALAR) if stage.operand is None else spread(problem.inputs[stage.operand], problem.outputs[0])
        for stage in problem.epilogue
    )


def may_share(problem: KernelProblem, names: tuple[str, ...], in_place: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(input, 0) for each input whose memory may be output 0's, for a step that reads the values `names`.

    These are the op's own inputs in `in_place` and stage operands that lie like the output: each element is read only
    before the same element is written. A value that the step also reads in another way is left out.
    """
    stages = zip(problem.epilogue, spreads(problem), strict=True)
    of_stages = [stage.operand for stage, how in stages if how is not None and how.reach is Reach.SAME]
    read_in_place = {*in_place, *(index for index in of_stages if index is not None)}
    safe = {
        index
        for index in read_in_place
        if all(names[other] != names[index] or other in read_in_place for other in range(len(names)))
    }
    return tuple((index, 0) for index in sorted(safe) if _same_storage(problem.inputs[index], problem.outputs[0]))


def _same_storage(operand: Operand, output: Operand) -> bool:
    return (
        not operand.constant
        and operand.shape == output.shape
        and operand.format.dtype.nbytes == output.format.dtype.nbytes
        and operand.format.layout == output.format.layout
    )
