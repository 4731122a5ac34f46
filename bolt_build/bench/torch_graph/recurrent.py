"""Recurrent layers: torch's own, with the product of all steps' inputs that the graph has in front of them."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx, nn

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Array, Node, Op
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.recurrent.recurrent import GATES, Recurrent

_ORDER = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "rnn": (0,)}
"""torch's gates, i f g o and r z n, by their places among ONNX's."""
_FUNCTIONS = {
    "lstm": (("sigmoid", "tanh", "tanh"),), "gru": (("sigmoid", "tanh"),), "rnn": (("tanh",), ("relu",)),
}  # fmt: skip


@dataclass(frozen=True)
class _Product:
    """What steps' inputs are multiplied with, [directions, gates * hidden, width], and the bias, without one zeros."""

    x: str | None
    weights: Array
    bias: Array


def recurrent(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Recurrent)
    _expect_torchs_own(op, node)
    held = build.graph.constant(node.inputs[1])
    given = dict(zip(op.given, node.inputs[2:], strict=True))
    inside = build.graph.constant(given["bias"]) if "bias" in given else None
    if held is None or ("bias" in given and inside is None):
        raise Unsupported(f"a recurrent layer whose weights are computed has no counterpart in torch ('{node.name}')")
    product = _product_of(build, node, op)
    layer, parameters = _layer(op, product, held, inside)
    x = build.value(node.inputs[0] if product.x is None else product.x)
    backwards = op.reverse == (True,)
    if backwards:
        x = build.call(torch.flip, x, (0,))
    made = build.layer(layer, x, *_states(build, op, given, held.shape[1], node), **parameters)
    return _rows(build, op, made, backwards)


def _expect_torchs_own(op: Recurrent, node: Node) -> None:
    forms = (
        ("lengths" in op.given, "sequences of several lengths"), ("peepholes" in op.given, "peepholes"),
        (op.clip != 0.0, "a bound"), (op.coupled, "coupled gates"),
        (op.cell == "gru" and not op.reset_after, "a reset gate in front of the product"),
        (op.functions not in _FUNCTIONS[op.cell], f"the functions {', '.join(op.functions)}"),
        (op.reverse not in ((False,), (True,), (False, True)), "these directions"),
    )  # fmt: skip
    for found, what in forms:
        if found:
            raise Unsupported(f"a recurrent layer with {what} has no counterpart in torch ('{node.name}')")


def _product_of(build: Builder, node: Node, op: Recurrent) -> _Product:
    """The product in front, where the layer alone reads it and its factor is constant; otherwise one with ones."""
    graph, name, directions = build.graph, node.inputs[0], len(op.reverse)
    columns = build.shape(name)[2]
    producer = graph.producer(name)
    if producer is not None and producer.op == MatMul(transpose_b=True) and not producer.epilogue:
        held = build.constants(producer.inputs[1:])
        if held is not None and held[0].ndim == 2 and graph.consumers(name) == (node,) and name not in graph.outputs:
            bias = held[1] if len(held) == 2 else np.zeros(columns, np.float32)
            whole = np.broadcast_to(bias.astype(np.float32), (columns,)).reshape(directions, -1)
            return _Product(producer.inputs[0], held[0].reshape(directions, -1, held[0].shape[1]), whole)
    ones = np.eye(columns, dtype=np.float32).reshape(directions, -1, columns)
    return _Product(None, ones, np.zeros((directions, columns // directions), np.float32))


def _layer(
    op: Recurrent, product: _Product, weights: Array, inside: Array | None
) -> tuple[nn.RNNBase, dict[str, Array | None]]:
    """torch's layer, and its parameters by name."""
    hidden, width, both = weights.shape[1], product.weights.shape[2], len(op.reverse) == 2
    layer: nn.RNNBase
    if op.cell == "rnn":
        layer = nn.RNN(width, hidden, nonlinearity=op.functions[0], bidirectional=both)
    else:
        layer = (nn.LSTM if op.cell == "lstm" else nn.GRU)(width, hidden, bidirectional=both)
    rows = np.concatenate([np.arange(hidden) + gate * hidden for gate in _ORDER[op.cell]])
    parameters: dict[str, Array | None] = {}
    for d in range(len(op.reverse)):
        behind = np.zeros(GATES[op.cell] * hidden, np.float32)
        if inside is not None:
            behind[-hidden:] = inside[d]
        suffix = "l0_reverse" if d else "l0"
        parameters[f"weight_ih_{suffix}"] = product.weights[d][rows]
        parameters[f"weight_hh_{suffix}"] = np.ascontiguousarray(weights[d].T[rows])
        parameters[f"bias_ih_{suffix}"] = product.bias[d][rows]
        parameters[f"bias_hh_{suffix}"] = behind
    return layer, parameters


def _states(build: Builder, op: Recurrent, given: dict[str, str], hidden: int, node: Node) -> tuple[object, ...]:
    """The states in front of the first step, where there are any."""
    if "hidden" not in given and "cell" not in given:
        return ()
    shape = (len(op.reverse), build.shape(node.inputs[0])[1], hidden)

    def state(name: str) -> fx.Node:
        return build.value(given[name]) if name in given else build.buffer(np.zeros(shape, np.float32))

    return ((state("hidden"), state("cell")),) if op.cell == "lstm" else (state("hidden"),)


def _rows(build: Builder, op: Recurrent, made: fx.Node, backwards: bool) -> fx.Node:
    """[rows, batch, directions, hidden]: every step's state, then the last ones."""
    parts = []
    if op.every:
        steps = build.call(operator.getitem, made, 0)
        if backwards:
            steps = build.call(torch.flip, steps, (0,))
        parts.append(build.call(torch.unflatten, steps, 2, (len(op.reverse), -1)))
    if op.last:
        last = build.call(operator.getitem, made, 1)
        states = [last]
        if op.cell == "lstm":
            states = [build.call(operator.getitem, last, index) for index in range(op.last)]
        parts += [build.call(torch.unsqueeze, build.call(torch.transpose, state, 0, 1), 0) for state in states]
    return parts[0] if len(parts) == 1 else build.call(torch.cat, parts, 0)


RECURRENT: dict[type[Op], Lower] = {Recurrent: recurrent}
