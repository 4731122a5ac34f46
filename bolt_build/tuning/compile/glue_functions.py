"""The C++ functions by which one trial is prepared, run and dropped."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.emit.text import comment
from bolt_build.families.base import Candidate, Family, KernelProblem, StepExpressions
from bolt_build.targets import Target


@dataclass(frozen=True)
class FunctionsCode:
    """Text that defines `functions_<name>`, and the headers that it needs."""

    includes: tuple[str, ...]
    text: str


def expressions(problem: KernelProblem) -> StepExpressions:
    """Where a trial's tensors are: constants in the weights table, at their place among the inputs."""
    places = [("weight" if operand.constant else "input", index) for index, operand in enumerate(problem.inputs)]
    return StepExpressions(
        inputs=tuple(f"r.{kind}({index})" for kind, index in places),
        outputs=tuple(f"r.output({index})" for index in range(len(problem.outputs))),
        prepare_inputs=tuple(f"p.weight({index})" if kind == "weight" else None for kind, index in places),
    )


def functions_of(
    problem: KernelProblem, candidate: Candidate, family: Family, target: Target, name: str
) -> FunctionsCode:
    """`functions_<name>`: the code that an engine would have for this step."""
    code = family.emit(problem, candidate, target, expressions(problem))
    call = code.call
    text = f"\n// {comment(str(candidate))}\n"
    if code.member_type is None:
        text += f"void run_{name}(const void*, const bolt::Run& r) {{ {call} }}\n"
        text += f"const bolt::tuning::Functions functions_{name} = {{\n"
        text += f"    nullptr, bolt::tuning::no_scratch, run_{name}, nullptr}};"
        return FunctionsCode(code.includes, text)
    text += (
        f"using Kernel_{name} = {code.member_type};\n"
        f"void* make_{name}(const bolt::Prepare& p) {{ return new Kernel_{name}(p, {code.member_arguments}); }}\n"
        f"void run_{name}(const void* made, [[maybe_unused]] const bolt::Run& r) {{\n"
        f"  const auto& kernel = *static_cast<const Kernel_{name}*>(made);\n"
        f"  {call}\n"
        "}\n"
        f"const bolt::tuning::Functions functions_{name} = {{\n"
        f"    make_{name}, bolt::tuning::scratch_of<Kernel_{name}>, run_{name}, bolt::tuning::drop<Kernel_{name}>}};"
    )
    return FunctionsCode(code.includes, text)
