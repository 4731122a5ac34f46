"""Heads that are normalised, scaled and turned on their way to attention: one kernel, each row read once."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.kernels.attention import head_pairs
from bolt_build.families.portable.kernels.attention.head_loops import (
    SPACE,
    heads_form,
    lanes_of,
    loops_of,
    parameters,
    pointers,
    threads_of,
    types,
)
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary

_LOOPS, _MOST_LOADS = 4, 8
"""Axes of heads that the kernel's parameters have room for, and loads of a head that a thread has registers for."""


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or no_epilogue(problem)) is not None:
        return reason
    form = heads_form(problem)
    scale_and_bias = [problem.inputs[index] for index in form.operands[:2] if index is not None]
    if any(each.shape[-1:] != (form.depth,) for each in scale_and_bias):
        return Reason("scales and shifts heads by {} numbers each", form.depth)
    loops = loops_of(problem, form)
    if len(loops) > _LOOPS:
        return Reason("heads lie over {} axes, at most {} are supported", len(loops), _LOOPS)
    loads = threads_of(form, lanes_of(form, loops))[1]
    most = "heads of {} elements are {} loads of each thread, which holds {} at most"
    return Reason(most, form.depth, loads, _MOST_LOADS) if loads > _MOST_LOADS else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    form = heads_form(problem)
    loops = loops_of(problem, form, at.input_pitch(0))
    lanes = lanes_of(form, loops)
    threads, loads = threads_of(form, lanes)
    how = f"{lanes}, {threads}, {loads}, {types(problem, form)}"
    call = f"{SPACE}::heads<{how}>(r, {parameters(form, loops)}, {pointers(form, at)});"
    return StepCode(("bolt_portable/heads.h",), None, "", call)


_NORMED, _TURNED, _BOTH = 0.73, 0.56, 0.34
"""Parts of a GPU's bandwidth where heads are normalised or scaled, where pairs are turned, whose cosines and sines each
row reads again, and where both are."""
_WAITS = 0.5e-6
"""Seconds in which threads of a head join their sums. All are fitted to 82 times of an H200."""


def _bandwidth(problem: KernelProblem) -> float:
    does = heads_form(problem).does
    return _NORMED if not does.rotary else _BOTH if does.statistic else _TURNED


RULES = tuple(
    Rule(
        op, _refuse, _emit, lambda problem: 0.05, gpu_bandwidth=_bandwidth, gpu_latency=lambda problem: _WAITS,
        layouts=row_major,
        reads_apart=lambda problem: (0,),
        forms=(head_pairs.FORM,),
    )
    for op in (HeadRows, Rotary)
)  # fmt: skip
