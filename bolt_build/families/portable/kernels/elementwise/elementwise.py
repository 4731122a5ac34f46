"""Activations, binary functions with broadcasting, BatchNormalization as itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cxx import boolean, braces, double, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.common.functors import (
    TRANSCENDENTAL,
    activation,
    activation_type,
    binary,
    instructions,
)
from bolt_build.families.common.geometry import MOST_AXES, Loop, around, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import Reach, aligned, spreads
from bolt_build.families.portable.kernels.elementwise.flat import flat_form
from bolt_build.families.portable.kernels.elementwise.tiled import Points, points_of, tiled_form
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.portable.typed import (
    emit_pointwise,
    in_whole_points,
    is_computed,
    is_dense,
    issued,
    pointwise_bandwidth,
    pointwise_loops,
    refuse_pointwise,
    searched,
)
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS
from bolt_build.graph.ops.norms.normalization import BatchNorm

_CALLED_FUNCTION = 0.0025
"""Part of the peak rate where each element calls a function of the C library."""
_ACCESSES = (8, 4)
"""Neighbours that a thread of the plain kernel takes at once."""
_LOOKED = 0.72
"""The part of what threads that look for elements one by one reach elsewhere, as on an H200."""
_POWER, _HALF_POWER = 100, 20
"""Instructions of the C library's power, as an H200 behaved; and of that of half precision, as counted in machine
code."""


def _efficiency(problem: KernelProblem) -> float:
    ops = (problem.op, *(stage.op for stage in problem.epilogue))
    slow = any(
        (isinstance(op, Activation) and op.function in TRANSCENDENTAL)
        or (isinstance(op, Binary) and op.function == "pow")
        for op in ops
    )
    return _CALLED_FUNCTION if slow else 0.1


def _powers(problem: KernelProblem) -> int:
    ops = (problem.op, *(stage.op for stage in problem.epilogue))
    return sum(isinstance(op, Binary) and op.function == "pow" for op in ops)


def _innermost(operand: Operand) -> int:
    return memory_axes(len(operand.shape), operand.format.layout)[-1]


def _reads_apart(problem: KernelProblem) -> tuple[int, ...]:
    """The input, where whatever follows an axis of the output follows its rows."""
    output = problem.outputs[0]
    along = 1 if isinstance(problem.op, BatchNorm) else channel_axis(problem)
    rows = is_computed(problem) and len(output.shape) > 1 and along in (None, _innermost(output))
    if not rows:
        return ()
    other = _other_side(problem)
    return (0,) if other is None else (0, other)


def _other_side(problem: KernelProblem) -> int | None:
    """The input like the output that the stage right behind an activation without numbers combines with its result, as
    in a gate: then both may be read as the two sides of one function. None where there is no such stage."""
    op = problem.op
    if not isinstance(op, Activation) or FUNCTIONS[op.function].parameters or not problem.epilogue:
        return None
    stage, (how, *_) = problem.epilogue[0], spreads(problem)
    if stage.operand is None or how is None or how.reach is not Reach.SAME:
        return None
    return None if problem.inputs[stage.operand].constant else stage.operand


def _sides_apart(problem: KernelProblem) -> tuple[int, ...]:
    """The operands that are no constants: strides lead through them."""
    if not is_computed(problem):
        return ()
    return tuple(index for index in op_operands(problem) if not problem.inputs[index].constant)


def _stores_apart(problem: KernelProblem, whole: Callable[[KernelProblem], bool]) -> bool:
    """Whether rows of the output may lie apart: of the plain kernel, which has no other form beside it where threads
    have whole accesses."""
    return is_computed(problem) and len(problem.outputs[0].shape) > 1 and whole(problem)


def _rows(problem: KernelProblem, at: StepExpressions) -> str:
    """The output, or its rows where they lie apart."""
    output, pitch = problem.outputs[0], at.pitch(0)
    if not pitch:
        return at.outputs[0]
    return f"bolt::portable::apart_rows<{COMPUTED[output.format.dtype]}>({at.outputs[0]}, {output.row}, {pitch})"


def _elementwise(problem: KernelProblem, at: StepExpressions, stages: str, axis: int | None) -> StepCode:
    output, pitch = problem.outputs[0], at.input_pitch(0)
    outer, channels, inner = around(output, _innermost(output) if pitch else axis)
    types = f"{COMPUTED[problem.inputs[0].format.dtype]}, {COMPUTED[output.format.dtype]}"
    apart = {"pitch": pitch} if pitch else {}
    parameters = struct("bolt::portable::Elementwise", outer=outer, channels=channels, inner=inner, **apart)
    call = f"bolt::portable::elementwise<{types}>(r, {parameters}, {at.inputs[0]}, {_rows(problem, at)}, {stages});"
    return StepCode(("bolt_portable/elementwise.h",), None, "", call)


_TYPED_ACTIVATIONS = {
    "relu": "Relu", "neg": "Neg", "abs": "Abs", "sign": "Sign", "sqrt": "Sqrt", "exp": "Exp", "erf": "Erf",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "reciprocal": "Reciprocal",
}  # fmt: skip
"""Functions that integers and doubles have bodies for."""
_TYPED_BINARIES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "mod": "Mod",
    "fmod": "Fmod",
}  # fmt: skip


def _refuse_activation(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Activation)
    if not is_computed(problem) and (op.function in _TYPED_ACTIVATIONS or op.function == "clip"):
        return refuse_pointwise(problem)
    return computed_only(problem) or refuse_stages(problem)


def _emit_activation(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Activation)
    if not is_computed(problem):
        if op.function == "clip":
            return emit_pointwise(
                problem, at, f"bolt::portable::typed::Clip<double>{{{double(op.alpha)}, {double(op.beta)}}}"
            )
        return emit_pointwise(problem, at, f"bolt::portable::typed::{_TYPED_ACTIVATIONS[op.function]}{{}}")
    other = _other_side(problem)
    if other is not None and (at.input_pitch(0) or at.input_pitch(other)):
        stage = problem.epilogue[0]
        assert isinstance(stage.op, Binary)
        function = f"bolt::portable::Behind<{activation_type(op)}, {binary(stage.op)}, {boolean(stage.swapped)}>"
        return _broadcast(replace(problem, epilogue=problem.epilogue[1:]), at, function, (0, other))
    first = f"bolt::portable::apply({activation(op)})"
    return _elementwise(problem, at, chain(problem, at, (first,)), channel_axis(problem))


def _refuse_batch_norm(problem: KernelProblem) -> str | None:
    return computed_only(problem) or refuse_stages(problem, axis=1)


def _emit_batch_norm(problem: KernelProblem, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, BatchNorm)
    statistics = op_operands(problem)[1:]
    types = ", ".join(COMPUTED[problem.inputs[index].format.dtype] for index in statistics)
    pointers = ", ".join(at.inputs[index] for index in statistics)
    first = f"bolt::portable::normalize<{types}>({pointers}, {literal(problem.op.epsilon)})"
    return _elementwise(problem, at, chain(problem, at, (first,)), 1)


def _broadcast_loops(
    problem: KernelProblem, both: Sequence[int], at: StepExpressions | None = None
) -> tuple[Loop, ...]:
    """Loops over the output's memory with the steps of both sides, inputs of these numbers; the channels' loop stays
    apart."""
    output = problem.outputs[0]
    rank = len(output.shape)
    sides = []
    for index in both:
        operand = problem.inputs[index]
        pitch = at.input_pitch(index) if at is not None else 0
        shape, steps = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand, pitch)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(shape, steps, strict=True)))
    axis = channel_axis(problem)
    loops = (
        Loop(output.shape[i], (sides[0][i], sides[1][i]), fixed=i == axis)
        for i in memory_axes(rank, output.format.layout)
    )
    return merged(loops, 2)


def _refuse_binary(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Binary)
    if not is_computed(problem) and op.function in _TYPED_BINARIES:
        return refuse_pointwise(problem)
    if (reason := computed_only(problem) or refuse_stages(problem)) is not None:
        return reason
    count = len(_broadcast_loops(problem, op_operands(problem)))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def _emit_binary(problem: KernelProblem, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, Binary)
    if not is_computed(problem):
        return emit_pointwise(problem, at, f"bolt::portable::typed::{_TYPED_BINARIES[problem.op.function]}{{}}")
    return _broadcast(problem, at, binary(problem.op), op_operands(problem))


def _lanes(loops: Sequence[Loop]) -> int:
    """Neighbours of the output that a thread of the plain kernel takes at once where all sides are so: the most that
    divide a row and where its elements begin; 1 where there are none."""
    inner = loops[-1]
    if any(step not in (0, 1) for step in inner.steps):
        return 1
    steps = [step for loop in loops[:-1] for side, step in enumerate(loop.steps) if inner.steps[side]]
    return next((lanes for lanes in _ACCESSES if all(each % lanes == 0 for each in (inner.extent, *steps))), 1)


def _broadcast_bandwidth(problem: KernelProblem) -> float:
    """All of a GPU's bandwidth where whole accesses are of all tensors, or those that are not dense are one element;
    else the plain kernel looks for each element of these."""
    if not is_computed(problem):
        return pointwise_bandwidth(problem)
    called = issued(_POWER, _element_bytes(problem)) if _powers(problem) else 1.0
    return min(called, _read_bandwidth(problem))


def _element_bytes(problem: KernelProblem) -> float:
    return problem.nbytes / max(problem.outputs[0].type.elements, 1)


def _read_bandwidth(problem: KernelProblem) -> float:
    """The same of the loads alone."""
    both = _broadcast_loops(problem, op_operands(problem))
    if _lanes(both) > 1:
        return 1.0
    loops = pointwise_loops(problem, rows=True)
    moving = (side for side in range(len(problem.inputs)) if any(loop.steps[side] for loop in loops))
    tensors = sum(not is_dense(loops, side) for side in moving)
    return _LOOKED * searched(_ACCESSES[0], tensors, _element_bytes(problem), both[-1].extent) if tensors else 1.0


def _staged_binary(problem: KernelProblem, op: Binary) -> str:
    """Powers of half precision need no function of the C library."""
    if op.function != "pow" or problem.outputs[0].format.dtype not in (DType.F16, DType.BF16):
        return binary(op)
    normal = op is problem.op and problem.inputs[op_operands(problem)[0]].format.dtype is DType.F16
    return f"bolt::portable::HalfPow<{boolean(not normal)}>"


def _staged(problem: KernelProblem) -> str:
    """The function and its epilogue as one of all inputs, by their numbers."""
    ops = [(stage.op, stage.operand, stage.swapped) for stage in problem.epilogue]
    if isinstance(problem.op, Activation):
        ops.insert(0, (problem.op, None, False))
    stages = []
    for op, operand, swapped in ops:
        if isinstance(op, Activation):
            stages.append(f"bolt::portable::PointStage<{activation_type(op)}>{{{activation(op)}}}")
        else:
            assert isinstance(op, Binary)
            how = f"{_staged_binary(problem, op)}, {operand}, {boolean(swapped)}"
            stages.append(f"bolt::portable::PointStage<{how}>{{}}")
    if isinstance(problem.op, Activation):
        return f"bolt::portable::point_chain({', '.join(stages)})"
    assert isinstance(problem.op, Binary)
    left, right = op_operands(problem)
    function = _staged_binary(problem, problem.op)
    return f"bolt::portable::staged_point<{function}, {left}, {right}>({', '.join(stages)})"


def _work(problem: KernelProblem) -> float:
    """Instructions of an element's functions beside simple ones."""
    half = problem.outputs[0].format.dtype in (DType.F16, DType.BF16)
    return _powers(problem) * (_HALF_POWER if half else _POWER) + instructions(problem.epilogue)


def _staged_points(problem: KernelProblem, at: StepExpressions | None) -> Points:
    loops = pointwise_loops(problem, at, rows=True)
    return points_of(problem, _staged(problem), "bolt_portable/point_stages.h", loops, _work(problem))


def _points(problem: KernelProblem, at: StepExpressions | None) -> Points:
    assert isinstance(problem.op, Binary)
    if is_computed(problem):
        return _staged_points(problem, at)
    return points_of(problem, f"bolt::portable::typed::{_TYPED_BINARIES[problem.op.function]}{{}}")


def _activation_points(problem: KernelProblem, at: StepExpressions | None) -> Points | None:
    """Only what has tensors beside the input that the plain kernel would look for one by one."""
    return _staged_points(problem, at) if is_computed(problem) and len(problem.inputs) > 1 else None


def _activation_bandwidth(problem: KernelProblem) -> float:
    """All of a GPU's bandwidth but where the plain kernel looks for elements that follow an axis."""
    axis = channel_axis(problem)
    if not is_computed(problem) or axis is None:
        return 1.0
    _, channels, inner = around(problem.outputs[0], axis)
    run = channels if inner == 1 else inner
    if run % _ACCESSES[0] == 0:
        return 1.0
    return _LOOKED * searched(_ACCESSES[0], 1, _element_bytes(problem), run)


def _whole_activation(problem: KernelProblem) -> bool:
    return _activation_bandwidth(problem) == 1.0


def _whole(problem: KernelProblem) -> bool:
    return _broadcast_bandwidth(problem) == 1.0


def _whole_tiles(problem: KernelProblem) -> bool:
    """True where tiles would save no thread a look for elements."""
    return _read_bandwidth(problem) == 1.0 if is_computed(problem) else in_whole_points(problem)


def _broadcast(problem: KernelProblem, at: StepExpressions, function: str, both: Sequence[int]) -> StepCode:
    """A function of two of the problem's inputs, and its epilogue."""
    loops = _broadcast_loops(problem, both, at)
    left, right = both
    parameters = struct(
        "bolt::portable::Broadcast",
        rank=len(loops),
        extent=braces(loop.extent for loop in loops),
        a=braces(loop.steps[0] for loop in loops),
        b=braces(loop.steps[1] for loop in loops),
        channel_axis=next((i for i, loop in enumerate(loops) if loop.fixed), -1),
    )
    operands = (problem.inputs[left], problem.inputs[right], problem.outputs[0])
    types = ", ".join([function, *(COMPUTED[operand.format.dtype] for operand in operands)])
    call = (
        f"bolt::portable::broadcast<{types}>(r, {parameters}, {at.inputs[left]}, {at.inputs[right]}, "
        f"{_rows(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/elementwise.h",), None, "", call)


RULES = (
    Rule(
        Activation,
        _refuse_activation,
        _emit_activation,
        _efficiency,
        gpu_bandwidth=_activation_bandwidth,
        in_place=(0,),
        reads_apart=_reads_apart,
        stages_apart=True,
        gpu_pitched=lambda problem: _stores_apart(problem, _whole_activation),
        forms=(flat_form(_activation_points, _whole_activation),),
    ),
    Rule(
        Binary,
        _refuse_binary,
        _emit_binary,
        _efficiency,
        gpu_bandwidth=_broadcast_bandwidth,
        in_place=(0, 1),
        reads_apart=_sides_apart,
        stages_apart=True,
        gpu_pitched=lambda problem: _stores_apart(problem, _whole),
        forms=(flat_form(_points, _whole), tiled_form(_points, _whole_tiles)),
    ),
    Rule(BatchNorm, _refuse_batch_norm, _emit_batch_norm, _efficiency, in_place=(0,), reads_apart=_reads_apart),
)
