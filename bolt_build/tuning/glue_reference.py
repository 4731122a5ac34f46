"""The reference of a problem: the portable family's plain kernels, which share nothing with those that are measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from bolt_build.families.base import Family, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.problems import op_operands
from bolt_build.targets import Target
from bolt_build.tuning.glue_functions import FunctionsCode, expressions, functions_of

_ALIGNMENT = 256


@dataclass(frozen=True)
class Reference:
    """`code` defines `functions_reference`; where it is None, `why_not` says why nothing can be compared."""

    code: FunctionsCode | None
    why_not: str = ""


def reference_of(
    problem: KernelProblem, families: Collection[str], portable: Family | None, target: Target
) -> Reference:
    """The reference for trials of `families`.

    The portable kernels want all tensors of the output's rank in one layout; inputs in another are converted first.
    """
    if portable is None:
        return Reference(None, "the target has no portable kernels to compare with")
    if set(families) <= {portable.name}:
        return Reference(None, "only the portable family computes this: there is nothing to compare it with")
    odd = _in_another_layout(problem)
    if not odd:
        candidates, refusals = portable.candidates(problem, target)
        if not candidates:
            return Reference(None, f"the portable family has no kernel for it: {refusals[0].reason}")
        return Reference(functions_of(problem, candidates[0], portable, "reference"))
    return _converted(problem, odd, portable, target)


def _in_another_layout(problem: KernelProblem) -> tuple[int, ...]:
    """The op's inputs that are images like the output, but stored in another order."""
    output = problem.outputs[0]
    rank, layout = len(output.shape), output.format.layout
    return tuple(
        index
        for index in op_operands(problem)
        if not (operand := problem.inputs[index]).constant
        and len(operand.shape) == rank >= 3
        and operand.format.layout is not layout
    )


def _converted(problem: KernelProblem, odd: tuple[int, ...], portable: Family, target: Target) -> Reference:
    inputs, at = list(problem.inputs), expressions(problem)
    sources, offset = list(at.inputs), 0
    includes: list[str] = []
    calls: list[str] = []
    for index in odd:
        operand = problem.inputs[index]
        to = TensorFormat(problem.outputs[0].format.dtype, problem.outputs[0].format.layout)
        conversion = portable.propose_conversion(operand.shape, operand.format, to, target)
        if conversion is None:
            return Reference(None, f"the portable family does not convert {operand.format} to {to}")
        (candidate, *_), _ = portable.candidates(conversion[0], target)
        inputs[index] = Operand(operand.shape, to)
        sources[index] = f"r.scratch_base + {offset}"
        step = StepExpressions((at.inputs[index],), (sources[index],), (None,))
        code = portable.emit(conversion[0], candidate, step)
        includes += code.includes
        calls.append(code.call)
        offset += -(-prod(operand.shape) * to.dtype.nbytes // _ALIGNMENT) * _ALIGNMENT
    plain = replace(problem, inputs=tuple(inputs))
    candidates, refusals = portable.candidates(plain, target)
    if not candidates:
        return Reference(None, f"the portable family has no kernel for it: {refusals[0].reason}")
    code = portable.emit(plain, candidates[0], StepExpressions(tuple(sources), at.outputs, at.prepare_inputs))
    text = f"""
// The reference: the input converted, then the plain kernel.
std::size_t scratch_reference(const void*) {{ return {offset}; }}
void run_reference(const void*, const bolt::Run& r) {{
  {chr(10).join([*calls, code.call]).replace(chr(10), chr(10) + "  ")}
}}
const bolt::tuning::Functions functions_reference = {{nullptr, scratch_reference, run_reference, nullptr}};"""
    return Reference(FunctionsCode((*includes, *code.includes), text))
