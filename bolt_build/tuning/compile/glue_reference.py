"""The reference of a problem: the portable family's plain kernels, which share nothing with those that are measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from bolt_build.families.base import Family, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.common.chains import parts
from bolt_build.families.common.problems import op_operands
from bolt_build.targets import Target
from bolt_build.tuning.compile.glue_functions import FunctionsCode, expressions, functions_of

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
    Products in one kernel are two plain kernels here, what lies between rounded and stored.
    """
    if portable is None:
        return Reference(None, "the target has no portable kernels to compare with")
    if set(families) <= {portable.name}:
        return Reference(None, "only the portable family computes this: there is nothing to compare it with")
    if len(parts(problem)) == 1 and not _in_another_layout(problem):
        candidates, refusals = portable.candidates(problem, target)
        if not candidates:
            return Reference(None, f"the portable family has no kernel for it: {refusals[0].reason}")
        return Reference(functions_of(problem, candidates[0], portable, target, "reference"))
    sequence = _Sequence(portable, target)
    try:
        sequence.add(problem, expressions(problem))
    except _NoKernelError as error:
        return Reference(None, str(error))
    return Reference(sequence.code())


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


class _NoKernelError(Exception):
    """The portable family cannot compute a part of a reference; the text says which."""


class _Sequence:
    """Plain kernels that run one behind the other, with what they leave for each other in scratch memory."""

    def __init__(self, portable: Family, target: Target) -> None:
        self._portable, self._target = portable, target
        self._includes: list[str] = []
        self._calls: list[str] = []
        self._scratch = 0

    def add(self, problem: KernelProblem, at: StepExpressions) -> None:
        """All that computes the problem. Raises _NoKernelError."""
        *before, last = parts(problem)
        inputs_left, prepared = at.inputs, at.prepare_inputs
        for each in before:
            # What lies between is stored where it is an output as well.
            kept = problem.op.keeps and each is before[-1]
            count, between = len(each.inputs), at.outputs[0] if kept else self._place(each.outputs[0])
            self._add_one(each, StepExpressions(inputs_left[:count], (between,), prepared[:count]))
            inputs_left, prepared = (between, *inputs_left[count:]), (None, *prepared[count:])
        self._add_one(last, StepExpressions(inputs_left, at.outputs[-1:], prepared))

    def _add_one(self, problem: KernelProblem, at: StepExpressions) -> None:
        inputs, sources = list(problem.inputs), list(at.inputs)
        for index in _in_another_layout(problem):
            to = TensorFormat(problem.outputs[0].format.dtype, problem.outputs[0].format.layout)
            inputs[index] = Operand(problem.inputs[index].shape, to)
            sources[index] = self._convert(problem.inputs[index], inputs[index], at.inputs[index])
        self._add_plain(
            replace(problem, inputs=tuple(inputs)), StepExpressions(tuple(sources), at.outputs, at.prepare_inputs)
        )

    def _convert(self, operand: Operand, wanted: Operand, source: str) -> str:
        """Where the operand stands when it has been rewritten."""
        conversion = self._portable.propose_conversion(operand.shape, operand.format, wanted.format, self._target)
        if conversion is None:
            raise _NoKernelError(f"the portable family does not convert {operand.format} to {wanted.format}")
        place = self._place(wanted)
        self._add_plain(conversion[0], StepExpressions((source,), (place,), (None,)))
        return place

    def _add_plain(self, problem: KernelProblem, at: StepExpressions) -> None:
        candidates, refusals = self._portable.candidates(problem, self._target)
        if not candidates:
            raise _NoKernelError(f"the portable family has no kernel for it: {refusals[0].reason}")
        code = self._portable.emit(problem, candidates[0], self._target, at)
        self._includes += code.includes
        self._calls.append(code.call)

    def _place(self, operand: Operand) -> str:
        """Scratch memory for a tensor."""
        place = f"r.scratch_base + {self._scratch}"
        self._scratch += -(-operand.nbytes // _ALIGNMENT) * _ALIGNMENT
        return place

    def code(self) -> FunctionsCode:
        """`functions_reference`."""
        calls = chr(10).join(self._calls).replace(chr(10), chr(10) + "  ")
        text = f"""
// The reference: plain kernels, one behind the other.
std::size_t scratch_reference(const void*) {{ return {self._scratch}; }}
void run_reference(const void*, const bolt::Run& r) {{
  {calls}
}}
const bolt::tuning::Functions functions_reference = {{nullptr, scratch_reference, run_reference, nullptr}};"""
        return FunctionsCode(tuple(self._includes), text)
