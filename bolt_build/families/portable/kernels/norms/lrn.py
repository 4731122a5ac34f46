"""Local response normalisation across channels."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.kernels.lines.register_lines import RegisterTile, registers
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.lines.staged import Lines, StagedTile, staged
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.normalization import Lrn

_MOST_WINDOW = 16
"""Channels of a window whose squares a thread holds beside its own."""


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _call(problem: KernelProblem, at: StepExpressions, function: str, template: tuple[str, ...] = ()) -> StepCode:
    op = problem.op
    assert isinstance(op, Lrn)
    outer, channels, inner = around(problem.outputs[0], 1)
    parameters = struct(
        "bolt::portable::Lrn",
        outer=outer,
        channels=channels,
        inner=inner,
        size=op.size,
        alpha=literal(op.alpha),
        beta=literal(op.beta),
        bias=literal(op.bias),
    )
    types = (COMPUTED[operand.format.dtype] for operand in (problem.inputs[0], problem.outputs[0]))
    how = ", ".join((*template, *types))
    call = f"bolt::portable::{function}<{how}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/lrn.h",), None, "", call)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    return _call(problem, at, "lrn")


def _lines(problem: KernelProblem) -> Lines:
    assert isinstance(problem.op, Lrn)
    read, stored = (operand.format.dtype.nbytes for operand in (problem.inputs[0], problem.outputs[0]))
    return Lines(*around(problem.outputs[0], 1), read, stored, around=problem.op.size - 1)


def _refuse_lines(problem: KernelProblem) -> str | None:
    assert isinstance(problem.op, Lrn)
    if (size := problem.op.size) > _MOST_WINDOW:
        return Reason("windows of {} channels are wider than {}", size, _MOST_WINDOW)
    return None


def _emit_staged(problem: KernelProblem, tile: StagedTile | RegisterTile, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, Lrn)
    return _call(problem, at, "lrn_staged", (tile.text(_lines(problem)), str(problem.op.size)))


_WIDE, _CACHED = 0.4, 0.14
"""Parts of the bandwidth where a thread has eight neighbouring channels, a guess; and where each element is read
once for every window that it is in, as measured on an H100."""


def _bandwidth(problem: KernelProblem) -> float:
    _, channels, inner = around(problem.outputs[0], 1)
    return _WIDE if inner == 1 and channels % LANES == 0 else _CACHED


def _serves(problem: KernelProblem) -> bool:
    return isinstance(problem.op, Lrn)


FORMS = tuple(form(_serves, _lines, _refuse_lines, _emit_staged) for form in (staged, registers))
RULES = (Rule(Lrn, _refuse, _emit, lambda problem: 0.02, gpu_bandwidth=_bandwidth, forms=FORMS),)
