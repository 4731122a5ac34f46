"""Sinkhorn's iterations of small matrices."""

from __future__ import annotations

from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.common.cxx import boolean, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.graph.ops.products.sinkhorn import Sinkhorn
from bolt_build.targets import Target

_THREADS = 128
"""Of a block, each of which has a matrix."""
_TURN = 45e-9
"""Seconds of one turn: sums, reciprocals and products wait for each other. Estimated."""
_ELEMENT = 1.1e-9
"""Seconds that each element of a matrix adds to a turn where a multiprocessor has a block. Estimated."""


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, x, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Sinkhorn)
    parameters = struct(
        "bolt::portable::Sinkhorn", matrices=prod(x.shape[:-2]), turns=op.turns, epsilon=literal(op.epsilon)
    )  # fmt: skip
    types = f"{x.shape[-2]}, {x.shape[-1]}, {boolean(op.rows_first)}, {COMPUTED[x.format.dtype]}, "
    types += COMPUTED[output.format.dtype]
    call = f"bolt::portable::sinkhorn<{types}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/sinkhorn.h",), None, "", call)


def _gpu_seconds(problem: KernelProblem, target: Target) -> float:
    assert target.gpu is not None
    op, shape = problem.op, problem.inputs[0].shape
    assert isinstance(op, Sinkhorn)
    rounds = ceil(prod(shape[:-2]) / (_THREADS * target.gpu.sms))
    return OVERLAPPED * target.launch_seconds + op.turns * (_TURN + rounds * shape[-2] * shape[-1] * _ELEMENT)


RULES = (Rule(Sinkhorn, _refuse, _emit, lambda problem: 0.05, gpu_seconds=_gpu_seconds, layouts=row_major),)
