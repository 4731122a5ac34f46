"""Forward substitution within square matrices."""

from __future__ import annotations

from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.graph.ops.products.substitution import LARGEST, Substitution
from bolt_build.targets import Target

_ALONE = 6e-6
"""Seconds that a block of 64 columns takes: eight panels of eight rows, with loads of those above. Estimated."""
_BLOCK = 1.2e-6
"""Seconds that each further block of them adds to its multiprocessor: its instructions. Estimated."""


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, x, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Substitution)
    rows = x.shape[-1]
    parameters = struct("bolt::portable::Substitution", matrices=prod(x.shape[:-2]), rows=rows)
    types = f"{_most(rows)}, {boolean(op.unit)}, {COMPUTED[x.format.dtype]}, {COMPUTED[output.format.dtype]}"
    call = f"bolt::portable::substitution<{types}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/substitution.h",), None, "", call)


def _most(rows: int) -> int:
    """Rows that a kernel is compiled for."""
    return next(size for size in (8, 16, 32, LARGEST) if rows <= size)


def _gpu_seconds(problem: KernelProblem, target: Target) -> float:
    assert target.gpu is not None
    shape = problem.inputs[0].shape
    part = (_most(shape[-1]) / LARGEST) ** 2
    rounds = ceil(prod(shape[:-2]) / target.gpu.sms)
    return OVERLAPPED * target.launch_seconds + part * (_ALONE + max(rounds - 1, 0) * _BLOCK)


RULES = (Rule(Substitution, _refuse, _emit, lambda problem: 0.02, gpu_seconds=_gpu_seconds, layouts=row_major),)
