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
