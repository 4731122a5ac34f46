"""The steps of recurrent layers."""

from __future__ import annotations

from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.functors import activation, activation_type
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.recurrent import OPTIONAL, Recurrent
from bolt_build.targets import target_named

_THREADS, _PARTS = 512, 8
"""Of the CUDA driver: threads of a block, and parts of the depth that threads of their own multiply."""
_ACCESS = 16
"""Bytes that one of its threads reads at once, where neighbours are there."""
_ROWS = (1, 2, 4)
"""Rows of the batch that a block may have."""


def _lanes(problem: KernelProblem) -> int:
    """Neighbouring weights that a GPU's thread reads at once."""
    weights = problem.inputs[1]
    return next(n for n in (8, 4, 2, 1) if n * weights.format.dtype.nbytes <= _ACCESS and weights.shape[1] % n == 0)


def _shared(problem: KernelProblem, rows: int) -> int:
    """Bytes of shared memory of a block: states, cells, what resets leave, and partial sums of gates."""
    _, hidden, columns = problem.inputs[1].shape
    parts = 1
    while parts < _PARTS and 2 * parts * (columns // _lanes(problem)) <= _THREADS:
        parts *= 2
    return 4 * rows * (3 * hidden + parts * columns)


def _rows(problem: KernelProblem) -> int:
    """As few as there are multiprocessors for: every block reads all weights at every step."""
    gpu = target_named(problem.target).gpu
    if gpu is None:
        return 1
    _, batch, directions, _ = problem.outputs[0].shape
    fitting = [rows for rows in _ROWS if _shared(problem, rows) <= gpu.shared_memory] or [1]
    enough = [rows for rows in fitting if directions * ceil(batch / rows) <= gpu.sms]
    return enough[0] if enough else fitting[-1]


def _refuse(problem: KernelProblem) -> str | None:
    assert isinstance(problem.op, Recurrent)
    if (reason := no_epilogue(problem)) is not None:
        return reason
    for index, operand in enumerate((*problem.inputs, *problem.outputs)):
        is_lengths = "lengths" in problem.op.given and index == len(problem.inputs) - 1
        if not is_lengths and operand.format.dtype not in COMPUTED:
            names = ", ".join(dtype.value for dtype in COMPUTED)
            return f"computes with {names}, not with {operand.format.dtype.value}"
    gpu = target_named(problem.target).gpu
    if gpu is not None and (needed := _shared(problem, 1)) > gpu.shared_memory:
        hidden = problem.inputs[1].shape[1]
        return Reason(
            "{} hidden units need {} bytes of shared memory, of which a block has {}", hidden, needed, gpu.shared_memory
        )
    return None


def _function(op: Recurrent, index: int) -> tuple[str, str]:
    """The C++ type of a gate's function, and an object of it."""
    name, alpha, beta = op.functions[index], op.alpha[index], op.beta[index]
    if name == "tanh":
        return "bolt::portable::SmoothTanh", "bolt::portable::SmoothTanh{}"
    if name in ("affine", "scaled_tanh"):
        kind = f"bolt::portable::{'Affine' if name == 'affine' else 'ScaledTanh'}"
        return kind, f"{kind}{{{literal(alpha)}, {literal(beta)}}}"
    function = Activation(name, alpha, beta)
    return activation_type(function), activation(function)


def _cell(op: Recurrent) -> str:
    functions = [_function(op, index) for index in range(len(op.functions))]
    first = {"lstm": [boolean(op.coupled)], "gru": [boolean(op.reset_after)], "rnn": []}[op.cell]
    types = ", ".join([*first, *(kind for kind, _ in functions)])
    name = {"lstm": "LstmCell", "gru": "GruCell", "rnn": "RnnCell"}[op.cell]
    return f"bolt::portable::{name}<{types}>{{{', '.join(made for _, made in functions)}}}"


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Recurrent)
    steps, batch, _ = problem.inputs[0].shape
    parameters = struct(
        "bolt::portable::Recurrent",
        steps=steps,
        batch=batch,
        directions=len(op.reverse),
        hidden=output.shape[-1],
        reverse=braces(boolean(backwards) for backwards in op.reverse),
        every=boolean(op.every),
        last=op.last,
        clip=literal(op.clip or float("inf")),
    )
    places = {"x": 0, "weights": 1, **{name: index for index, name in enumerate(op.given, 2)}}
    types, pointers = [], []
    for name in ("x", "weights", *OPTIONAL):
        there = name in places
        kind = ctype(problem.inputs[places[name]].format.dtype) if there else "bolt::portable::Nothing"
        types.append(kind)
        pointers.append(f"static_cast<const {kind}*>({at.inputs[places[name]] if there else 'nullptr'})")
    types.append(ctype(output.format.dtype))
    pointers.append(f"static_cast<{types[-1]}*>({at.outputs[0]})")
    tensors = f"bolt::portable::RecurrentTensors<{', '.join(types)}>{braces(pointers)}"
    call = f"bolt::portable::recurrent<{_rows(problem)}, {_lanes(problem)}>(r, {parameters}, {_cell(op)}, {tensors});"
    return StepCode(("bolt_portable/recurrent.h",), None, "", call)


_STEP = 2.4e7
"""Bytes that an H200's memory moves while a step waits for weights from L2 and for its block: 5 microseconds, a guess.
"""


def _bandwidth(problem: KernelProblem) -> float:
    return min(1.0, problem.nbytes / (problem.inputs[0].shape[0] * _STEP))


RULES = (
    Rule(
        Recurrent, _refuse, _emit, lambda problem: 0.1, gpu_efficiency=0.01, gpu_bandwidth=_bandwidth, layouts=row_major
    ),
)
