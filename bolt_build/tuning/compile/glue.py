"""C++ that makes candidates measurable: sources of several problems each, and one table of them all, linked to
candidates.so.

A source calls the candidates of its problems through `Family.emit`, as an engine does, and computes references
through the portable family. Compile what ends in .cu with nvcc, C++17, the target's `compile_flags`, and what ends in
.cpp with the C++ compiler; both with `include_dir()`, the runtime's include directory and those of the families and
their tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2, sqrt
from pathlib import Path

from bolt_build.digest import digest
from bolt_build.emit.text import c_string, comment, operand_text, problem_text
from bolt_build.families.base import Family, KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import may_share
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Target
from bolt_build.tuning.compile.glue_functions import functions_of
from bolt_build.tuning.compile.glue_reference import reference_of
from bolt_build.tuning.trials.tuning_set import ProblemTrials

_DRIVER = Path(__file__).resolve().parents[1] / "driver"
_UNIFORM = sqrt(3.0)
"""Values drawn evenly from between -this and this have a variance of one."""


@dataclass(frozen=True)
class GlueSource:
    """A generated source: `name` is a file name, equal only for equal problems; `text` is C++ (CUDA for .cu).
    `problems` are the digests of those whose candidates it calls. `label` is what people call it."""

    name: str
    text: str
    problems: tuple[str, ...] = ()
    label: str = ""


_TOGETHER = 12
"""Problems of a source, about: what all of them include takes the compiler longer than what each of them adds."""


def include_dir() -> Path:
    """Directory of `bolt_tuning/*.h`: the ABI between candidates.so and the driver."""
    return _DRIVER / "include"


def driver_units() -> tuple[Path, ...]:
    """What the driver is compiled from, sorted: C++17 for the C++ compiler, and CUDA for nvcc with the target's flags.
    A unit in `units/` includes several sources.

    Compiled with `include_dir()` and CUDA's include directories; linked with its `link_flags` into one program.
    """
    return tuple(sorted([*(_DRIVER / "src" / "units").glob("*.cpp"), *(_DRIVER / "src").glob("*.cu")]))


def driver_sources() -> tuple[Path, ...]:
    """The C++ sources that `driver_units` include, sorted."""
    return tuple(sorted((_DRIVER / "src").glob("*.cpp")))


def without(trials: ProblemTrials, candidates: Collection[str]) -> ProblemTrials:
    """`trials` but those whose candidate's digest is among `candidates`, and the variants of those."""
    kept = [
        index
        for index, trial in enumerate(trials.trials)
        if trial.candidate.digest not in candidates
        and (trial.of is None or trials.trials[trial.of].candidate.digest not in candidates)
    ]
    place = {old: new for new, old in enumerate(kept)}
    left = (trials.trials[index] for index in kept)
    return replace(trials, trials=tuple(t if t.of is None else replace(t, of=place[t.of]) for t in left))


def grouped_sources(
    problems: Sequence[ProblemTrials], family_of: Mapping[str, Family], target: Target
) -> tuple[GlueSource, ...]:
    """Sources of all problems, several in each. Problems of the same families are together, and which of them depends
    on their own digests, so that one problem more leaves most sources as they were."""
    of_families: dict[tuple[str, ...], list[ProblemTrials]] = {}
    for each in problems:
        families = tuple(sorted({trial.candidate.family for trial in each.trials}))
        of_families.setdefault(families, []).append(each)
    groups: dict[tuple[tuple[str, ...], int], list[ProblemTrials]] = {}
    for families, found in of_families.items():
        parts = 1 << max(0, ceil(log2(len(found) / _TOGETHER)))
        for each in found:
            groups.setdefault((families, int(each.problem.digest[:8], 16) % parts), []).append(each)
    return tuple(source_of(group, family_of, target) for group in groups.values())


def source_of(problems: Sequence[ProblemTrials], family_of: Mapping[str, Family], target: Target) -> GlueSource:
    """The source of these problems. Raises KeyError where a candidate's family is not in `family_of`."""
    made = [_calls(each, family_of, target) for each in problems]
    includes = dict.fromkeys(header for code, _ in made for header in code)
    digests = tuple(each.problem.digest for each in problems)
    name = digests[0] if len(digests) == 1 else digest(digests)
    lines = ['#include "bolt_tuning/glue.h"', *(f'#include "{header}"' for header in includes), ""]
    lines += [line for _, text in made for line in text]
    families = ", ".join(sorted({trial.candidate.family for each in problems for trial in each.trials}))
    label = f"calls of {len(problems)} problem{'s' * (len(problems) != 1)}, {families}"
    return GlueSource(f"t_{name[:16]}.cu", "\n".join(lines), digests, label)


def _calls(
    trials: ProblemTrials, family_of: Mapping[str, Family], target: Target
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the code of one problem includes, and the code, in a namespace of its own."""
    problem = trials.problem
    codes = [
        functions_of(problem, t.candidate, family_of[t.candidate.family], target, str(i))
        for i, t in enumerate(trials.trials)
    ]
    families = {trial.candidate.family for trial in trials.trials}
    reference = reference_of(problem, families, family_of.get("portable"), target)
    if reference.code is not None:
        codes.append(reference.code)
    lines = (
        *(f"// {comment(line)}" for line in problem_text(problem)),
        f"namespace problem_{problem.digest[:32]} {{",
        "namespace {",
        *(code.text for code in codes),
        *_description(trials, has_reference=reference.code is not None),
        "}  // namespace",
        "",
        _problem(trials, None if reference.code is not None else reference.why_not),
        f"}}  // namespace problem_{problem.digest[:32]}",
        "",
    )
    return tuple(header for code in codes for header in code.includes), lines


def table_source(problems: Sequence[ProblemTrials], bundle: str, target: Target) -> GlueSource:
    """The table of all problems, for the C++ compiler. `bundle` names the set; results carry the name.

    Raises ValueError for a target that is no GPU.
    """
    if target.gpu is None:
        raise ValueError(f"target '{target.name}' is no GPU")
    symbols = [_symbol(trials.problem) for trials in problems]
    only = 0 if target.gpu.embeds_ptx else 1
    text = f"""\
#include "bolt_tuning/table.h"

{"".join(f'extern "C" const bolt_tuning_problem {symbol};{chr(10)}' for symbol in symbols)}
namespace {{
const bolt_tuning_problem* const problems[] = {{
{"".join(f"    &{symbol},{chr(10)}" for symbol in symbols)}    nullptr}};

const bolt_tuning_set all = {{
    BOLT_TUNING_VERSION, sizeof(bolt_tuning_set), {c_string(bundle)}, {c_string(target.name)},
    {target.gpu.sm}, {only}, {int(target.gpu.overlaps)}, {len(symbols)}, problems,
    bolt::tuning::create, bolt::tuning::run, bolt::tuning::destroy}};
}}  // namespace

extern "C" __attribute__((visibility("default"))) const bolt_tuning_set* bolt_tuning_candidates(void) {{ return &all; }}
"""
    return GlueSource("candidates.cpp", text)


def _symbol(problem: KernelProblem) -> str:
    return f"bolt_tuning_problem_{problem.digest[:32]}"


def _description(trials: ProblemTrials, *, has_reference: bool) -> list[str]:
    """Tables of the operands and trials."""
    problem = trials.problem
    shared = {pair[0] for pair in may_share(problem, tuple(map(str, range(len(problem.inputs)))), ())}
    sides = (("input", problem.inputs), ("output", problem.outputs))
    lines = [
        f"const int64_t {side}_shape_{index}[] = {{{', '.join(map(str, operand.shape)) or '1'}}};"
        for side, operands in sides
        for index, operand in enumerate(operands)
    ]
    for side, operands in sides:
        lines.append(f"const bolt_tuning_operand {side}s[] = {{")
        for index, operand in enumerate(operands):
            given = _values(problem, index) if side == "input" else _Values(0.0, 0.0)
            lines.append(
                f"    {{{c_string(operand_text(operand))}, BOLT_TUNING_{operand.format.dtype.name}, "
                f"{len(operand.shape)}, {side}_shape_{index}, {operand.nbytes}u, {int(operand.constant)}, "
                f"{int(side == 'input' and index in shared)}, {int(given.ascends)}, {given.low!r}, {given.high!r}}},"
            )
        lines.append("};")
    lines.append("const bolt_tuning_trial trials[] = {")
    lines += [
        f"    {{{c_string(t.candidate.digest)}, {c_string(str(t.candidate))}, {-1 if t.of is None else t.of}, "
        f"{float(t.predicted)!r}, &functions_{index}}},"
        for index, t in enumerate(trials.trials)
    ]
    lines.append("    {nullptr, nullptr, -1, 0.0, nullptr}};")
    if has_reference:
        lines.append('const bolt_tuning_trial reference = {"", "portable", -1, 0.0, &functions_reference};')
    return lines


def _problem(trials: ProblemTrials, why_not: str | None) -> str:
    problem = trials.problem
    tensors = [operand_text(operand) for operand in (*problem.inputs, *problem.outputs)]
    tensors[-len(problem.outputs)] = f"-> {tensors[-len(problem.outputs)]}"
    text = "; ".join([*problem_text(problem), " ".join(tensors)])
    reference = "&reference, nullptr" if why_not is None else f"nullptr, {c_string(why_not)}"
    return (
        f'extern "C" const bolt_tuning_problem {_symbol(problem)};\n'
        f"const bolt_tuning_problem {_symbol(problem)} = {{\n"
        f"    {c_string(problem.digest)},\n"
        f"    {c_string(text)},\n"
        f"    {c_string(', '.join(trials.occurs))},\n"
        f"    {len(problem.inputs)}, inputs, {len(problem.outputs)}, outputs, {_depth(problem)!r}, {reference},\n"
        f"    {len(trials.trials)}, trials}};"
    )


def _depth(problem: KernelProblem) -> float:
    """Products, or terms, that make one element of output 0; of products in one kernel, those that are summed up at
    once, because what lies between is rounded like an output."""
    return max(max(1.0, each.flops / (2 * max(1, each.outputs[0].type.elements))) for each in parts(problem))


@dataclass(frozen=True)
class _Values:
    """What an operand is filled with: values between two, random or ascending from the one to the other."""

    low: float
    high: float
    ascends: bool = False


def _values(problem: KernelProblem, index: int) -> _Values:
    """What an input is filled with. Random values are drawn so that sums of products have a variance of about one.
    Tables ascend where their op says so: kernels read what such tables name in runs, and random ones would have them
    measured in the path that they have for tables in no order."""
    first, *behind = parts(problem)
    if behind:
        for each in (first, *behind):
            if index < len(each.inputs):
                return _values(each, index)
            # Input 0 of the next is what this one leaves.
            index -= len(each.inputs) - 1
        raise IndexError(index)
    operand, own = problem.inputs[index], op_operands(problem)
    tables = problem.op.ascending([problem.inputs[each].type for each in own])
    if index in own and (bounds := tables.get(own.index(index))) is not None:
        low, high = bounds
        return _Values(float(low), float(high), ascends=True)
    if not operand.format.dtype.is_float:
        return _Values(0.0, 1.0)
    is_factor = isinstance(problem.op, Conv | MatMul) and len(own) > 1 and index == own[1]
    bound = _UNIFORM / sqrt(_depth(problem)) if is_factor else _UNIFORM if not operand.constant else 1.0
    return _Values(-bound, bound)
