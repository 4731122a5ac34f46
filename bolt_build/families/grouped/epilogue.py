"""The type of the epilogue, for which units instantiate kernels: all that the portable family's chains can be."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.functors import activation_type, binary
from bolt_build.families.common.stages import Reach, Spread, spreads
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary

_SPACE = "bolt::portable"
_REACH = {Reach.SAME: "Same", Reach.AXIS: "Channel", Reach.SCALAR: "Scalar"}


def epilogue_type(problem: KernelProblem) -> str:
    """`bolt::portable::Chain<bolt::portable::Apply<bolt::portable::Relu>>`: what `chain` writes."""
    stages = [
        _stage_type(problem, stage, how)
        for stage, how in zip(problem.epilogue, spreads(problem), strict=True)
        if how is not None
    ]
    return f"{_SPACE}::Chain<{', '.join(stages)}>"


def _stage_type(problem: KernelProblem, stage: EpilogueOp, how: Spread) -> str:
    if stage.operand is None:
        assert isinstance(stage.op, Activation)
        return f"{_SPACE}::Apply<{activation_type(stage.op)}>"
    assert isinstance(stage.op, Binary)
    operand = f"{_SPACE}::{_REACH[how.reach]}<{COMPUTED[problem.inputs[stage.operand].format.dtype]}>"
    return f"{_SPACE}::Combine<{binary(stage.op)}, {operand}, {boolean(stage.swapped)}>"
