"""What the oneDNN family knows of one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.graph.ir import Layout, Node, Op, TensorType

Layouts = tuple[tuple[Layout, ...], Layout]
"""A layout for each input and one for the output."""


def channels_last(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Every tensor of the output's rank channels-last (constants are row-major anyway)."""
    return (
        (tuple(Layout.CHANNELS_LAST if t.rank == output.rank else Layout.ROW for t in inputs), Layout.CHANNELS_LAST),
    )


def row_major(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Every tensor row-major."""
    return (((Layout.ROW,) * len(inputs), Layout.ROW),)


def either(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Everything row-major; and, from rank 3, everything channels-last."""
    rows = row_major(node, inputs, output)
    return rows if output.rank < 3 else (*rows, *channels_last(node, inputs, output))


@dataclass(frozen=True)
class Rule:
    """How one operator is offered, refused, priced and emitted.

    `refuse` gives a sentence, or None for a problem that `emit` can take. `efficiency` is the part of the target's peak
    arithmetic rate that is expected; `algorithm` names the primitive in the candidate.
    """

    op: type[Op]
    algorithm: str
    layouts: Callable[[Node, tuple[TensorType, ...], TensorType], tuple[Layouts, ...]]
    refuse: Callable[[KernelProblem], str | None]
    emit: Callable[[KernelProblem, StepExpressions], StepCode]
    efficiency: float
    shares: Callable[[KernelProblem, tuple[str, ...]], tuple[tuple[int, int], ...]] = lambda problem, names: ()
