"""What kernels of recurrent layers are given in C++: the layer, its cell and its tensors."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.functors import activation, activation_type
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.recurrent.recurrent import OPTIONAL, Recurrent


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


def arguments(problem: KernelProblem, at: StepExpressions) -> tuple[str, str, str]:
    """The layer, its cell and its tensors, as expressions."""
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
    return parameters, _cell(op), tensors
