"""Determinants of square matrices."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.graph.ops.products.det import LARGEST, Det


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    x, output = problem.inputs[0], problem.outputs[0]
    rows = x.shape[-1]
    most = next(size for size in (4, 8, 16, LARGEST) if rows <= size)
    parameters = struct("bolt::portable::Det", matrices=prod(x.shape[:-2]), rows=rows)
    types = f"{most}, {COMPUTED[x.format.dtype]}, {COMPUTED[output.format.dtype]}"
    call = f"bolt::portable::det<{types}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/det.h",), None, "", call)


RULES = (
    Rule(
        Det, _refuse, _emit, lambda problem: 0.01, gpu_efficiency=0.002, gpu_bandwidth=lambda problem: 0.1,
        layouts=row_major,
    ),
)  # fmt: skip
