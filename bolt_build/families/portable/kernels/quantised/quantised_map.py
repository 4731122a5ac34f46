"""Functions of quantised tensors element by element: one loop nest that reads and stores integers."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.functors import ACTIVATIONS, BINARIES, TRANSCENDENTAL, activation, binary
from bolt_build.families.portable.rule import Rule
from bolt_build.families.portable.typed import ctype, emit_pointwise, refuse_pointwise
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.quantised.quantised_map import QuantisedMap
from bolt_build.targets import Gpu


def _operators(op: QuantisedMap) -> tuple[Op, ...]:
    return (op.function, *(stage.op for stage in op.stages))


def _refuse(problem: KernelProblem) -> str | None:
    assert isinstance(problem.op, QuantisedMap)
    for op in _operators(problem.op):
        names = ACTIVATIONS if isinstance(op, Activation) else BINARIES
        if not isinstance(op, Activation | Binary) or op.function not in names:
            return f"there is no portable body for {op.kind}"
    return refuse_pointwise(problem)


def _body(op: QuantisedMap) -> str:
    """A lambda of an element of every input."""
    parameters, sides = [], []
    for index, side in enumerate(op.sides):
        if len(side) == 1:
            parameters.append(f"float x{index}")
            sides.append(f"x{index}")
        else:
            parameters += [f"auto q{index}", f"float s{index}", f"auto z{index}"]
            sides.append(f"bolt::portable::Dequantize{{}}(q{index}, s{index}, z{index})")
    made = _called(op.function, sides[: op.first])
    for stage in op.stages:
        own = [made] if stage.operand is None else [made, sides[stage.operand]]
        made = _called(stage.op, own[::-1] if stage.swapped else own)
    rounded = f"bolt::portable::Quantize<{ctype(op.to)}>{{}}({made}, scale, zero)"
    return f"[]({', '.join((*parameters, 'float scale', 'auto zero'))}) {{ return {rounded}; }}"


def _called(op: Op, sides: list[str]) -> str:
    if isinstance(op, Activation):
        return f"{activation(op)}({sides[0]})"
    assert isinstance(op, Binary)
    return f"{binary(op)}{{}}({', '.join(sides)})"


_HEADERS = ("bolt_portable/quantize.h", "bolt_portable/functions.h")


def _tabled(problem: KernelProblem) -> int | None:
    """The only input with several elements, where each element of the result follows from one of 256 values."""
    wide = [index for index, operand in enumerate(problem.inputs) if operand.type.elements != 1]
    if len(wide) != 1:
        return None
    (index,), (output,) = wide, problem.outputs
    operand = problem.inputs[index]
    return index if operand.format.dtype.nbytes == 1 and operand.shape == output.shape else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (output,) = problem.op, problem.outputs
    assert isinstance(op, QuantisedMap)
    wide = _tabled(problem)
    if wide is None:
        return replace(emit_pointwise(problem, at, _body(op)), includes=_HEADERS)
    types = [ctype(operand.format.dtype) for operand in problem.inputs]
    given = [
        "q" if index == wide else f"*static_cast<const {type_}*>({pointer})"
        for index, (type_, pointer) in enumerate(zip(types, at.inputs, strict=True))
    ]
    function = f"[&]({types[wide]} q) {{ return {_body(op)}({', '.join(given)}); }}"
    call = (
        f"bolt::portable::by_table<{ctype(output.format.dtype)}, {types[wide]}>(r, {output.type.elements}, "
        f"{at.inputs[wide]}, {at.outputs[0]}, {function});"
    )
    return StepCode(_HEADERS, None, "", call)


def _efficiency(problem: KernelProblem) -> float:
    assert isinstance(problem.op, QuantisedMap)
    slow = any(isinstance(op, Activation) and op.function in TRANSCENDENTAL for op in _operators(problem.op))
    return 0.0025 if slow else 0.05


def _refuse_gpu(problem: KernelProblem, gpu: Gpu) -> str | None:
    return "GPUs compute on the numbers that integers stand for"


RULES = (Rule(QuantisedMap, _refuse, _emit, _efficiency, refuse_gpu=_refuse_gpu),)
