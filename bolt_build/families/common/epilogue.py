"""Emission of elementwise stages as chains of functors."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.functors import ACTIVATIONS, BINARIES, activation, binary
from bolt_build.families.common.stages import Reach, Spread, spreads
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary


def refuse_stages(problem: KernelProblem, axis: int | None = None) -> str | None:
    """A reason why the epilogue cannot be emitted.

    All per-channel operands must follow one logical axis of the output: `axis` where it is given.
    """
    axes = set() if axis is None else {axis}
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if isinstance(stage.op, Activation):
            if stage.op.function not in ACTIVATIONS:
                return f"there is no portable body for the activation '{stage.op.function}'"
            continue
        if not isinstance(stage.op, Binary) or stage.operand is None:
            return f"an epilogue stage is an activation or a binary function, not {stage.op.kind}"
        if stage.op.function not in BINARIES:
            return f"there is no portable body for the binary function '{stage.op.function}'"
        if how is None:
            shapes = f"{list(problem.inputs[stage.operand].shape)} is neither like {list(problem.outputs[0].shape)}"
            return f"an epilogue operand {shapes}, per channel, nor a scalar"
        if how.reach is Reach.AXIS:
            axes.add(how.axis)
    return "epilogue operands follow different axes" if len(axes) > 1 else None


def channel_axis(problem: KernelProblem) -> int | None:
    """The logical axis of the output that per-channel operands follow, None where there are none."""
    return next((how.axis for how in spreads(problem) if how is not None and how.reach is Reach.AXIS), None)


def chain(problem: KernelProblem, at: StepExpressions, before: tuple[str, ...] = ()) -> str:
    """The chain that applies the stages of text `before`, then the problem's epilogue."""
    stages = [
        _stage(problem, stage, how, at)
        for stage, how in zip(problem.epilogue, spreads(problem), strict=True)
        if how is not None
    ]
    return f"bolt::portable::chain({', '.join((*before, *stages))})"


def bias(problem: KernelProblem, at: StepExpressions, index: int) -> str:
    """The stage that adds input `index`, one value a channel."""
    dtype = COMPUTED[problem.inputs[index].format.dtype]
    return f"bolt::portable::combine<bolt::portable::Add>(bolt::portable::channel<{dtype}>({at.inputs[index]}))"


def _stage(problem: KernelProblem, stage: EpilogueOp, how: Spread, at: StepExpressions) -> str:
    if stage.operand is None:
        assert isinstance(stage.op, Activation)
        return f"bolt::portable::apply({activation(stage.op)})"
    assert isinstance(stage.op, Binary)
    reach = {Reach.SAME: "same", Reach.AXIS: "channel", Reach.SCALAR: "scalar"}[how.reach]
    dtype, given = COMPUTED[problem.inputs[stage.operand].format.dtype], at.inputs[stage.operand]
    operand = f"bolt::portable::{reach}<{dtype}>({given})"
    if how.reach is Reach.SAME and (pitch := at.input_pitch(stage.operand)):
        operand = f"bolt::portable::apart<{dtype}>({given}, {problem.inputs[stage.operand].row}, {pitch})"
    return f"bolt::portable::combine{'_swapped' if stage.swapped else ''}<{binary(stage.op)}>({operand})"
