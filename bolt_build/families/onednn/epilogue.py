"""Which epilogues oneDNN's post-ops compute exactly, and their emission."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import braces, literal
from bolt_build.families.common.stages import Reach, Spread, spreads
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary

TYPES = {DType.F32: "bolt::onednn::Type::f32", DType.BF16: "bolt::onednn::Type::bf16"}
"""Storage types that this family takes."""

_BINARIES = ("add", "sub", "mul", "div", "max", "min")
_COMMUTATIVE = ("add", "mul", "max", "min")


def eltwise(op: Activation) -> tuple[str, float, float] | None:
    """oneDNN's algorithm, alpha and beta for an activation; None where it has no such function."""
    a, b = op.alpha, op.beta
    known = {
        "relu": ("relu", 0.0, 0.0),
        "leaky_relu": ("relu", a, 0.0),
        "clip": ("clip", a, b),
        "sigmoid": ("logistic", 0.0, 0.0),
        "hard_sigmoid": ("hardsigmoid", a, b),
        "hard_swish": ("hardswish", 1.0 / 6.0, 0.5),
        "tanh": ("tanh", 0.0, 0.0),
        "softplus": ("soft_relu", 1.0, 0.0),
        "gelu": ("gelu_erf", 0.0, 0.0),
        "gelu_tanh": ("gelu_tanh", 0.0, 0.0),
        "silu": ("swish", 1.0, 0.0),
        "swish": ("swish", a, 0.0),
        "exp": ("exp", 0.0, 0.0),
        "sqrt": ("sqrt", 0.0, 0.0),
        "square": ("square", 0.0, 0.0),
        "neg": ("linear", -1.0, 0.0),
        "abs": ("abs", 0.0, 0.0),
        "elu": ("elu", a, 0.0),
        "mish": ("mish", 0.0, 0.0),
    }
    return known.get(op.function)


def refuse_types(problem: KernelProblem) -> str | None:
    """A reason where the tensors are not all stored in one type that this family takes (constants may be f32)."""
    dtype = problem.outputs[0].format.dtype
    if dtype not in TYPES:
        return f"takes tensors in {', '.join(t.value for t in TYPES)}, not in {dtype.value}"
    for operand in problem.inputs:
        if operand.format.dtype is not dtype and not (operand.constant and operand.format.dtype is DType.F32):
            return f"takes tensors of one type, not {operand.format.dtype.value} with {dtype.value}"
    return None


def refuse_stages(problem: KernelProblem, axis: int) -> str | None:
    """A reason why the epilogue is not one that post-ops compute; per-channel constants must follow `axis`."""
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if isinstance(stage.op, Activation):
            if eltwise(stage.op) is None:
                return f"oneDNN has no '{stage.op.function}' to follow a kernel with"
            continue
        if not isinstance(stage.op, Binary) or stage.operand is None:
            return f"an epilogue stage is an activation or a binary function, not {stage.op.kind}"
        if stage.op.function not in _BINARIES:
            return f"oneDNN has no '{stage.op.function}' to follow a kernel with"
        if stage.swapped and stage.op.function not in _COMMUTATIVE:
            return f"oneDNN computes x {stage.op.function} operand, not operand {stage.op.function} x"
        if (reason := _refuse_operand(problem, stage.operand, how, axis)) is not None:
            return reason
    return None


def _refuse_operand(problem: KernelProblem, index: int, how: Spread | None, axis: int) -> str | None:
    operand, output = problem.inputs[index], problem.outputs[0]
    if how is None or (how.reach is Reach.AXIS and how.axis != axis):
        shapes = f"{list(operand.shape)} is neither like {list(output.shape)}"
        return f"an epilogue operand {shapes}, per channel, nor a scalar"
    if how.reach is not Reach.SAME and not operand.constant:
        return "an epilogue operand that is broadcast must be a constant"
    return None


def in_place_operand(problem: KernelProblem) -> int | None:
    """The input that is added before the output's memory is overwritten, if both are one: the first plain residual."""
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if stage.operand is None or how is None or how.reach is not Reach.SAME:
            continue
        is_sum = isinstance(stage.op, Binary) and stage.op.function == "add"
        if is_sum and not problem.inputs[stage.operand].constant:
            return stage.operand
    return None


def emit_epilogue(
    problem: KernelProblem, at: StepExpressions, flat: tuple[int, ...] | None = None
) -> tuple[str, tuple[str, ...]]:
    """The list of stages, and the operands that run() is given. `flat` is the output's shape as the kernel sees it."""
    output = problem.outputs[0].shape if flat is None else flat
    sum_of = in_place_operand(problem)
    calls: list[str] = []
    passed: list[str] = []
    for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
        if isinstance(stage.op, Activation):
            calls.append(_eltwise_call(stage.op))
            continue
        assert how is not None
        assert stage.operand is not None
        if stage.operand == sum_of and at.inputs[sum_of] == at.outputs[0]:
            calls.append("bolt::onednn::Stage::add_in_place()")
        else:
            calls.append(_binary_call(problem, stage, how, at, output))
            if at.prepare_inputs[stage.operand] is None:
                passed.append(at.inputs[stage.operand])
    return braces(calls), tuple(passed)


def _eltwise_call(op: Activation) -> str:
    found = eltwise(op)
    assert found is not None
    algorithm, alpha, beta = found
    return f"bolt::onednn::Stage::eltwise(bolt::onednn::Function::{algorithm}, {literal(alpha)}, {literal(beta)})"


def _binary_call(
    problem: KernelProblem, stage: EpilogueOp, how: Spread, at: StepExpressions, output: tuple[int, ...]
) -> str:
    assert isinstance(stage.op, Binary)
    assert stage.operand is not None
    operand = problem.inputs[stage.operand]
    name, dtype = f"bolt::onednn::Binary::{stage.op.function}", TYPES[operand.format.dtype]
    if at.prepare_inputs[stage.operand] is None:
        return f"bolt::onednn::Stage::binary({name}, {dtype})"
    shape = output if how.reach is Reach.SAME else _spread_dims(problem, how, output)
    return f"bolt::onednn::Stage::binary({name}, {braces(shape)}, {dtype}, {constant(at, stage.operand)})"


def _spread_dims(problem: KernelProblem, how: Spread, output: tuple[int, ...]) -> tuple[int, ...]:
    """Ones, but for the output's extent along the axis that a per-channel constant follows (counted from the end)."""
    behind = len(problem.outputs[0].shape) - how.axis
    dims = [1] * len(output)
    if how.reach is Reach.AXIS:
        dims[-behind] = output[-behind]
    return tuple(dims)


def constant(at: StepExpressions, index: int) -> str:
    """A `Constant`: its expression names it, which is the same in every plan of a model."""
    expression = at.prepare_inputs[index]
    return f'bolt::onednn::Constant{{{expression}, "{expression}"}}'


NO_CONSTANT = 'bolt::onednn::Constant{nullptr, ""}'
