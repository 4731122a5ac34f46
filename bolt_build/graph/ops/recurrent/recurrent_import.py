"""ONNX's LSTM, GRU and RNN: one product of all steps' inputs, and a recurrence behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.recurrent.recurrent import GATES, Recurrent

_FUNCTIONS: dict[str, tuple[str, float, float, int]] = {
    "relu": ("relu", 0.0, 0.0, 0), "tanh": ("tanh", 0.0, 0.0, 0), "sigmoid": ("sigmoid", 0.0, 0.0, 0),
    "affine": ("affine", 1.0, 0.0, 2), "leakyrelu": ("leaky_relu", 0.01, 0.0, 1),
    "thresholdedrelu": ("thresholded_relu", 1.0, 0.0, 1), "scaledtanh": ("scaled_tanh", 1.0, 1.0, 2),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5, 2), "elu": ("elu", 1.0, 0.0, 1), "softsign": ("softsign", 0.0, 0.0, 0),
    "softplus": ("softplus", 0.0, 0.0, 0),
}  # fmt: skip
"""By ONNX's name in lower case: ours, alpha and beta unless they are given, and how many of them it has."""

_DEFAULT = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}

_REVERSE = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Function:
    name: str
    alpha: float
    beta: float


def import_recurrent(node: NodeImport) -> None:
    recurrent_layer(node, node.node.op_type.lower(), node.input(1), node.input(2))


def recurrent_layer(node: NodeImport, cell: str, weights: str, states: str) -> None:
    """What the node does with these weights of x and of the states. Raises Refusal and ShapeError."""
    direction = node.text("direction", "forward")
    if direction not in _REVERSE:
        raise Refusal("unsupported-attribute", f"direction '{direction}' is none of {', '.join(_REVERSE)}")
    reverse = _REVERSE[direction]
    layout = node.integer("layout", 0)
    if layout not in (0, 1):
        raise Refusal("unsupported-attribute", f"layout {layout} is neither 0 nor 1")
    hidden = _hidden(node, cell, len(reverse), weights, states)
    x = node.input(0)
    if layout:
        x = node.emit(Transpose((1, 0, 2)), [x])
    functions = _functions(node, cell, len(reverse))
    options = _Options(
        node.real("clip", 0.0),
        cell == "gru" and bool(node.integer("linear_before_reset", 0)),
        cell == "lstm" and bool(node.integer("input_forget", 0)),
        node.wants(0),
        2 if cell == "lstm" and node.wants(2) else 1 if node.wants(1) else 0,
    )
    if not options.every and not options.last:
        return
    layer = _Layer(node, cell, weights, states, hidden, layout, options)
    if len(set(functions)) == 1:
        made = layer.recurrence(x, reverse, functions[0], 0)
    else:  # each direction by itself, for they have other functions
        made = node.emit(Concat(2), [layer.recurrence(x, (reverse[d],), functions[d], d) for d in range(len(reverse))])
    layer.results(made)


@dataclass(frozen=True)
class _Options:
    clip: float
    reset_after: bool
    coupled: bool
    every: bool
    last: int


@dataclass(frozen=True)
class _Layer:
    node: NodeImport
    cell: str
    weights: str
    states: str
    hidden: int
    layout: int
    options: _Options

    def recurrence(self, x: str, reverse: tuple[bool, ...], functions: tuple[_Function, ...], first: int) -> str:
        """The states [rows, batch, directions, hidden] of the directions from `first` on."""
        node, hidden, gates = self.node, self.hidden, GATES[self.cell]
        directions, options = len(reverse), self.options

        def part(index: int) -> str:
            return self._directions(node.input(index), first, directions)

        biases, inside = self._biases(first, directions) if node.has(3) else (None, None)
        width = node.type_of(self.weights).shape[2]
        mine = self._directions(self.weights, first, directions)
        weights = node.emit(Reshape((directions * gates * hidden, width)), [mine])
        product = node.emit(MatMul(transpose_b=True), [x, weights, *([] if biases is None else [biases])])
        inputs = [product, node.emit(Transpose((0, 2, 1)), [self._directions(self.states, first, directions)])]
        given = []
        if inside is not None:
            given.append("bias")
            inputs.append(inside)
        for index, name in ((7, "peepholes"), (5, "hidden"), (6, "cell")):
            if (self.cell != "lstm" and name != "hidden") or not node.has(index):
                continue
            given.append(name)
            turned = bool(self.layout) and name != "peepholes"
            inputs.append(self._directions(self._state(index), first, directions) if turned else part(index))
        if node.has(4):
            given.append("lengths")
            inputs.append(node.input(4))
        op = Recurrent(
            self.cell, reverse, tuple(each.name for each in functions), tuple(each.alpha for each in functions),
            tuple(each.beta for each in functions), tuple(given), options.every, options.last, options.clip,
            options.reset_after, options.coupled,
        )  # fmt: skip
        return node.emit(op, inputs)

    def _state(self, index: int) -> str:
        """A first state [batch, directions, hidden] as [directions, batch, hidden]."""
        return self.node.emit(Transpose((1, 0, 2)), [self.node.input(index)])

    def _directions(self, name: str, first: int, count: int) -> str:
        """Those entries of the first axis."""
        shape = self.node.type_of(name).shape
        if count == shape[0]:
            return name
        return self.node.emit(_rows(shape, first, count), [name])

    def _biases(self, first: int, directions: int) -> tuple[str, str | None]:
        """What is added to x, one a column; and of a GRU whose reset gate stands behind the product what is added
        there."""
        node, hidden, gates = self.node, self.hidden, GATES[self.cell]
        both = self._directions(node.input(3), first, directions)
        columns = gates * hidden
        halves = [node.emit(Slice((0, begin), (directions, columns), (1, 1)), [both]) for begin in (0, columns)]
        if not self.options.reset_after:
            total = node.emit(Binary("add"), halves)
            return node.emit(Reshape((directions * columns,)), [total]), None
        kept = columns - hidden
        outside = node.emit(
            Binary("add"), [node.emit(Slice((0, 0), (directions, kept), (1, 1)), [half]) for half in halves]
        )
        last = [node.emit(Slice((0, kept), (directions, hidden), (1, 1)), [half]) for half in halves]
        total = node.emit(Concat(1), [outside, last[0]])
        return node.emit(Reshape((directions * columns,)), [total]), last[1]

    def results(self, made: str) -> None:
        """Y, Y_h and Y_c of the states [rows, batch, directions, hidden]."""
        node, options = self.node, self.options
        rows, batch, directions, hidden = node.type_of(made).shape
        steps = rows - options.last
        order = (1, 0, 2, 3) if self.layout else (0, 2, 1, 3)
        if options.every:
            every = made
            if options.last:
                every = node.emit(_rows((rows, batch, directions, hidden), 0, steps), [made])
            node.emit(Transpose(order), [every], 0)
        for output in range(1, 1 + options.last):
            if not node.wants(output):
                continue
            row = steps + output - 1
            state = made
            if rows > 1:
                state = node.emit(_rows((rows, batch, directions, hidden), row, 1), [made])
            if self.layout:
                node.emit(Reshape((batch, directions, hidden)), [state], output)
            else:
                flat = node.emit(Reshape((batch, directions, hidden)), [state])
                node.emit(Transpose((1, 0, 2)), [flat], output)


def _rows(shape: Sequence[int], first: int, count: int) -> Slice:
    """`count` entries of the first axis from `first` on."""
    return Slice((first, *(0,) * (len(shape) - 1)), (count, *shape[1:]), (1,) * len(shape))


def _hidden(node: NodeImport, cell: str, directions: int, w: str, r: str) -> int:
    """The number of hidden units. Raises ShapeError where inputs do not fit each other."""
    x, weights, recurrent = (node.type_of(name).shape for name in (node.input(0), w, r))
    if not len(x) == len(weights) == len(recurrent) == 3:
        raise ShapeError("X, W and R must have three axes")
    hidden, gates = node.integer("hidden_size", recurrent[2]), GATES[cell]
    if weights != (directions, gates * hidden, x[2]) or recurrent != (directions, gates * hidden, hidden):
        raise ShapeError(
            f"W {list(weights)} and R {list(recurrent)} are not those of {hidden} hidden units in {directions} "
            f"directions behind an input {list(x)}"
        )
    if node.has(3) and node.type(3).shape != (directions, 2 * gates * hidden):
        raise ShapeError(f"B {list(node.type(3).shape)} must be {[directions, 2 * gates * hidden]}")
    return hidden


def _functions(node: NodeImport, cell: str, directions: int) -> list[tuple[_Function, ...]]:
    """The functions of each direction. Raises Refusal."""
    default = _DEFAULT[cell]
    names = node.texts("activations", default * directions)
    if len(names) != len(default) * directions:
        message = f"{len(names)} activations are given where {len(default) * directions} are needed"
        raise Refusal("invalid-node", message)
    numbers = [list(node.reals(name)) if node.given(name) else [] for name in ("activation_alpha", "activation_beta")]
    found = []
    for name in names:
        known = _FUNCTIONS.get(name.lower())
        if known is None:
            raise Refusal("unsupported-attribute", f"the activation '{name}' is not supported")
        ours, alpha, beta, count = known
        if count > 0 and numbers[0]:
            alpha = numbers[0].pop(0)
        if count > 1 and numbers[1]:
            beta = numbers[1].pop(0)
        found.append(_Function(ours, alpha, beta))
    return [tuple(found[d * len(default) : (d + 1) * len(default)]) for d in range(directions)]


_SEQUENCE = Data((5, 2, 4))

IMPORTERS = (
    Importer(
        "LSTM",
        (7, 14, 22),
        import_recurrent,
        example=Example((_SEQUENCE, Weights((1, 12, 4)), Weights((1, 12, 3))), (("hidden_size", 3),)),
    ),
    Importer(
        "GRU",
        (7, 14, 22),
        import_recurrent,
        example=Example((_SEQUENCE, Weights((1, 9, 4)), Weights((1, 9, 3))), (("hidden_size", 3),)),
    ),
    Importer(
        "RNN",
        (7, 14, 22),
        import_recurrent,
        example=Example((_SEQUENCE, Weights((1, 3, 4)), Weights((1, 3, 3))), (("hidden_size", 3),)),
    ),
)
