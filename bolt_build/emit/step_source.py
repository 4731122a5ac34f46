"""One step of a plan as the templates print it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.emit.text import c_string, comment, kernel_text, operand_text, problem_text, wrapped
from bolt_build.families.base import Family, StepCode, StepExpressions
from bolt_build.planner.engine_plan import Location, Parts, Step, StepTensor
from bolt_build.planner.parts import part_of
from bolt_build.targets import Target


@dataclass(frozen=True)
class StepSource:
    """Text of one step: `comments` are the lines above its code, `member_type` is "" for a kernel without state.

    `kept_weights` are indices of the weights that its call reads at run time. A view has an empty `call`.
    `counts`: it reads `Run::counters`.
    """

    index: int
    name: str
    comments: tuple[str, ...]
    includes: tuple[str, ...]
    member_type: str
    constructor_arguments: str
    call: str
    kept_weights: tuple[int, ...]
    info: tuple[str, str, str]
    counts: bool

    @property
    def parameter(self) -> str:
        """Name of the step's `const bolt::Run&`, left out where the call has no use for it."""
        return " r" if self.call else ""


def step_source(step: Step, families: dict[str, Family], target: Target, parts: int = 1) -> StepSource:
    """Of a step that computes one of `parts` parts of the batch. Raises ValueError where no family has the candidate's
    name, a view would have to move bytes, or parts of the batch are not computed by themselves."""
    code = _code(step, families, target, parts)
    arguments = [f"p.step({step.index})", code.member_arguments] if code.member_arguments else [f"p.step({step.index})"]
    call = code.call
    kept = _kept(step, code)
    return StepSource(
        index=step.index,
        name=step.name,
        comments=_comments(step, kept, parts),
        includes=code.includes,
        member_type=code.member_type or "",
        constructor_arguments=wrapped(", ".join(arguments), 15),
        call=wrapped(call, 8),
        kept_weights=kept,
        info=(c_string(step.name), c_string("\n".join(step.covers)), c_string(_kernel(step))),
        counts=code.counts,
    )


def _kept(step: Step, code: StepCode) -> tuple[int, ...]:
    """Indices of the weights that the step's call reads: all that it has, or input 0 alone where others were read when
    its kernel was made."""
    if step.view:
        return ()
    read = step.inputs if code.member_type is None else step.inputs[:1]
    return tuple(sorted({tensor.location.at for tensor in read if tensor.location.kind == "weight"}))


def _code(step: Step, families: dict[str, Family], target: Target, parts: int) -> StepCode:
    if step.view:
        if not all(_lies_within(tensor, step.outputs[0]) for tensor in step.inputs):
            raise ValueError(f"step {step.index} '{step.name}' is a view, but its output is not where its input is")
        return StepCode(includes=(), member_type=None, member_arguments="", call="")
    family = families.get(step.candidate.family)
    if family is None:
        wanted, known = step.candidate.family, ", ".join(families)
        raise ValueError(f"step {step.index} '{step.name}' needs family '{wanted}', which is none of: {known}")
    at = StepExpressions(
        inputs=tuple(expression(tensor.location, tensor.parts) for tensor in step.inputs),
        outputs=tuple(expression(tensor.location, tensor.parts) for tensor in step.outputs),
        prepare_inputs=tuple(
            f"p.weight({tensor.location.at})" if tensor.location.kind == "weight" else None for tensor in step.inputs
        ),
        pitches=tuple(tensor.pitch for tensor in step.outputs),
        input_pitches=tuple(tensor.pitch for tensor in step.inputs),
    )
    problem = step.problem if parts == 1 else part_of(step.problem, parts)
    if problem is None:
        raise ValueError(f"step {step.index} '{step.name}' has no parts, but its span has {parts}")
    return family.emit(problem, step.candidate, target, at)


def headers_of(step: Step, families: dict[str, Family], target: Target) -> tuple[str, ...]:
    """The headers of the kernel of a step that is no view, below its family's `include`: its unit's, or its call's."""
    units = families[step.candidate.family].units(((step.problem, step.candidate),), target)
    if not units:
        return _code(step, families, target, 1).includes
    return tuple(dict.fromkeys(re.findall(r'#include "(.+?)"', units[0].text)))


def _lies_within(one: StepTensor, other: StepTensor) -> bool:
    """True where the bytes of the smaller tensor are some of the larger one's."""
    first, second = _bytes(one), _bytes(other)
    common = range(max(first.start, second.start), min(first.stop, second.stop))
    same_memory = _memory(one.location) == _memory(other.location)
    return same_memory and len(common) == min(len(first), len(second))


def _memory(location: Location) -> tuple[str, int]:
    return location.kind, 0 if location.kind == "arena" else location.at


def _bytes(tensor: StepTensor) -> range:
    begin = tensor.location.at if tensor.location.kind == "arena" else tensor.location.offset
    return range(begin, begin + tensor.reach)


def expression(location: Location, parts: Parts | None = None) -> str:
    """C++ for the address of a tensor during a run, or of the part of it that a span is at. Raises ValueError for an
    unknown kind."""
    if location.kind not in ("arena", "input", "output", "weight"):
        raise ValueError(f"unknown kind of location '{location.kind}'")
    if parts is not None and parts.held is not None:
        return f"r.held({parts.held}, {location.at}, {parts.nbytes})"
    if parts is not None:
        begin = f"{location.offset} + " if location.offset else ""
        if location.kind == "arena":
            return f"r.arena({location.at} + r.part * {parts.nbytes})"
        return f"r.{location.kind}({location.at}, {begin}r.part * {parts.nbytes})"
    offset = f", {location.offset}" if location.offset else ""
    return f"r.{location.kind}({location.at}{offset})"


def _comments(step: Step, kept: Sequence[int], parts: int) -> tuple[str, ...]:
    lines = [f"Step {step.index}: {step.name}"]
    if step.covers and step.covers != (step.name,):
        lines.append(f"nodes   {', '.join(step.covers)}")
    head, *epilogue = problem_text(step.problem)
    lines.append(f"op      {head}")
    lines.extend(f"        {line}" for line in epilogue)
    lines.append(f"kernel  {_kernel(step)}")
    lines.extend(f"in{i}     {_tensor(tensor, kept)}" for i, tensor in enumerate(step.inputs))
    lines.extend(f"out{i}    {_tensor(tensor, kept)}" for i, tensor in enumerate(step.outputs))
    if parts > 1:
        lines.append(f"parts   {parts}, one after the other with the steps of its span")
    lines.append("after   " + (", ".join(f"step {i}" for i in step.after) or "nothing"))
    return tuple(comment(line) for line in lines)


def _kernel(step: Step) -> str:
    return "none: a view of the same bytes" if step.view else kernel_text(step.candidate)


def _tensor(tensor: StepTensor, kept: Sequence[int]) -> str:
    name = f"'{tensor.value}'"
    if tensor.onnx is None:
        name += " (not in the ONNX graph)"
    elif tensor.onnx != tensor.value:
        name += f" (ONNX '{tensor.onnx}')"
    return f"{name} {operand_text(tensor.operand)}, {_place(tensor, kept)}"


def _place(tensor: StepTensor, kept: Sequence[int]) -> str:
    at, nbytes = tensor.location.at, tensor.operand.nbytes
    if tensor.location.kind == "arena":
        apart = f", rows {tensor.pitch} elements apart" if tensor.pitch else ""
        held = tensor.parts.held if tensor.parts is not None else None
        slab = "" if held is None else f"; a part from byte {held} of the slab on"
        return f"arena {at} to {at + tensor.reach}{apart}{slab}"
    if tensor.location.kind == "weight":
        return f"weight {at}" + ("" if at in kept else ", read when the model is created")
    begin = f" from byte {tensor.location.offset} on" if tensor.location.offset else ""
    return f"{tensor.location.kind} {at}, {nbytes} bytes{begin}"
